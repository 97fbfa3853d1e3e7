"""`sinkshot eval`: accuracy of methods on the same episodes, with confidence intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sinkshot import methods as registry
from sinkshot.bank import FeatureBank, load
from sinkshot.classes import part
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import exit_code, guarded, out, percent, print_json, say
from sinkshot.cli._signals import while_read
from sinkshot.cli.set_option import parse_settings
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError, unknown_name
from sinkshot.evaluate import Interrupted, Paired, Result, compare
from sinkshot.evaluate import evaluate as run
from sinkshot.metrics import TITLES
from sinkshot.open_set import OPEN_SET
from sinkshot.progress import ProgressReporter
from sinkshot.query_sizes import ALPHA, RATIO

_FEW = 5  # methods: up to here all pairs are compared, beyond that each with one


@guarded
def evaluate(
    features: shared.Features,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method, or all, inductive, transductive; repeatable.  [default: bms]"),
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(metavar="STEPS", help="Steps, such as PEMnE.  [default: the method's]")
    ] = None,
    way: shared.Way = 5,
    shot: shared.Shot = 1,
    query: shared.Query = 15,
    episodes: Annotated[int, typer.Option(help="Number of episodes.")] = 10_000,
    protocol: shared.Protocol = "balanced",
    alpha: shared.Alpha = ALPHA,
    ratio: shared.Ratio = RATIO,
    seed: shared.Seed = 0,
    base: shared.Base = None,
    labels: shared.Labels = None,
    classes: shared.Classes = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="[METHOD.]KEY=VALUE", help="Hyper-parameter; repeatable.")
    ] = None,
    device: shared.Device = "auto",
    engine: shared.Engine = "auto",
    as_json: shared.AsJson = False,
    plugin: shared.Plugins = None,
    max_memory: shared.MaxMemory = None,
) -> None:
    """Evaluate methods on few-shot episodes of a feature bank.

    Example: sinkshot eval cifar-fs_wrn-28-10_novel --method bms --method ncm --shot 5

    Example: sinkshot eval cifar-fs_wrn-28-10_novel --method all --episodes 100
    """
    del max_memory, plugin  # their callbacks have been called
    names, of_group = chosen(method or ["bms"], protocol)
    hyper = hyper_parameters(names, settings or [])
    bank = load(features, labels=labels)
    bank = bank if classes is None else part(bank, classes)
    base_bank = load(base) if base else None
    recipe = Recipe(protocol, way, shot, query, episodes, seed, alpha, ratio)
    if of_group:
        recipe.draw(bank.labels, 0, 1, bank.class_names)  # a bad recipe fails here, once for all methods
    how = {"preprocess": preprocess, "base": base_bank, "device": device, "engine": engine}
    each = {name: how | hyper[name] for name in names}
    if base is None and preprocess is None and (beside := base_beside(features, bank)) is not None:
        each |= {name: each[name] | {"base": beside} for name in names if registry.get(name).with_base}
    results, skipped, stopped = measure(bank, recipe, each, of_group)
    if skipped and not results and not stopped:
        raise InputError(f"none of the methods can run on this bank; {names[0]}: {skipped[names[0]]}")
    if results:
        remarks = notes(results, preprocess) + [f"{name} was skipped: {why}" for name, why in skipped.items()]
        show(results, as_json, remarks, several=len(names) > 1)
    if stopped:
        finished = ", ".join(f"{r.method} {r.episodes:,} of {episodes:,}" for r in results) or "nothing"
        say(f"interrupted; the results above are from: {finished} episodes")
        raise typer.Exit(exit_code())


def base_beside(features: str, bank: FeatureBank) -> FeatureBank | None:
    """Load the base classes of the same network from beside a bank: `cub_wrn-28-10_base` for `cub_wrn-28-10_novel`."""
    path = Path(features)
    stem, _, split = path.stem.rpartition("_")
    beside = path.with_name(f"{stem}_base{path.suffix}")
    network = bank.meta.get("weights_sha256")
    if not stem or split == "base" or network is None or not beside.is_file():
        return None
    base = load(beside)
    return base if base.meta.get("weights_sha256") == network else None


def measure(
    bank: FeatureBank, recipe: Recipe, how: Mapping[str, Mapping[str, Any]], of_group: set[str]
) -> tuple[list[Result], dict[str, str], bool]:
    """Evaluate methods; `how` has the arguments of each.

    Return the results, why methods of a group were skipped, and whether there was an interrupt.
    """
    results: list[Result] = []
    skipped: dict[str, str] = {}
    with ProgressReporter() as progress:
        for name, arguments in how.items():
            try:
                with while_read():
                    results.append(run(bank, recipe, method=name, progress=progress.bar(name), **arguments))
            except Interrupted as interrupt:
                if interrupt.result is not None:
                    results.append(interrupt.result)
                return results, skipped, True
            except InputError as error:
                if name not in of_group:
                    raise
                skipped[name] = str(error)
    return results, skipped, False


def chosen(words: list[str], protocol: str) -> tuple[list[str], set[str]]:
    """Return the methods that the options name, each once, and those that only a group names."""
    names: dict[str, None] = {}
    for word in words:
        group = word in registry.GROUPS
        names |= dict.fromkeys([m.name for m in registry.group(word, protocol)] if group else [word])
    return list(names), set(names) - set(words)


def hyper_parameters(names: list[str], settings: list[str]) -> dict[str, dict[str, Any]]:
    """Read --set options: KEY=VALUE applies to every method that has KEY, METHOD.KEY=VALUE to one."""
    known = {name: registry.get(name).hyper for name in names}
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in parse_settings(settings, example="epochs=40"):
        prefix, dot, rest = key.partition(".")
        takers, key = ([prefix], rest) if dot and prefix in known else (names, key)
        having = [name for name in takers if key in known[name]]
        special = [name for name in having if key in registry.get(name).fixed]
        if special and (len(having) > 1 or value is None):
            raise InputError(f"{key} defines {special[0]}, so it must be set for one method: METHOD.{key}=VALUE.")
        if not having:
            raise unknown_name(f"hyper-parameter of {', '.join(takers)}", key, {k for n in takers for k in known[n]})
        for name in having:
            chosen[name][key] = value
    return chosen


def notes(results: list[Result], preprocess: str | None) -> list[str]:
    """Say what was used without being asked for: base means or features, or a fallback preprocessing."""
    own = {r.method: registry.get(r.method) for r in results}
    taken = [note for r in results for note in r.notes]
    return taken + [
        f"{r.method}: {wanted(own[r.method])} the mean of the base classes, which is unknown; "
        f"{r.preprocess or 'no preprocessing'} is used instead. Give --base FEATURES to use it."
        for r in results
        if preprocess is None and r.preprocess not in (own[r.method].preprocess, own[r.method].with_base)
    ]


def wanted(method: registry.Method) -> str:
    """Name the chains that a method would use if base classes were known."""
    return f"{method.with_base} and {method.preprocess} need" if method.with_base else f"{method.preprocess} needs"


def show(results: list[Result], as_json: bool, remarks: list[str], several: bool) -> None:
    """Print results and their paired differences; `several` tells whether several methods were asked for."""
    paired = comparisons(results)
    if as_json:
        objects = [r.to_dict() for r in results]
        together = {"results": objects, "paired": [dataclasses.asdict(p) for p in paired]}
        print_json(together if several else objects[0])
        for remark in remarks:
            say(remark)
        return
    recipe = results[0].recipe
    if len(results) > _FEW:
        results = sorted(results, key=lambda r: -r.accuracy)
        paired = sorted(paired, key=lambda p: -p.difference)
    out().print(
        f"{recipe.way}-way {recipe.shot}-shot, {recipe.query} queries per class, {recipe.drawn_by}, "
        f"seed {recipe.seed}; "
        "accuracy in percent ± 95 % CI half-width"
    )
    out().print(result_table(results))
    if paired:
        out().print(paired_table(paired))
    for remark in remarks:
        out().print(remark)


def comparisons(results: list[Result]) -> list[Paired]:
    """Compare all pairs of a few results; of many, each with BMS, or else with the first."""
    if len(results) <= _FEW:
        return [compare(a, b) for a, b in combinations(results, 2)]
    middle = next((r for r in results if r.method == "bms"), results[0])
    return [compare(r, middle) for r in results if r is not middle]


def result_table(results: list[Result]) -> Table:
    """Return one row per method."""
    shown = [name for name in OPEN_SET if any(r.values(name) is not None for r in results)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("method", "preprocess"):
        table.add_column(title, no_wrap=True)
    for title in ("accuracy", *(TITLES[name] for name in shown), "episodes", "seconds", "episodes/s", "engine"):
        table.add_column(title, justify="right", no_wrap=True)
    for r in results:
        seconds = r.seconds["total"]
        table.add_row(
            r.method,
            r.preprocess or "none",
            percent(r.accuracy, r.ci95),
            *("" if (mean := r.mean(name)) is None else percent(mean) for name in shown),
            f"{r.episodes:,}",
            f"{seconds:.2f}",
            f"{r.episodes / seconds:,.0f}",
            r.engine,
        )
    return table


def paired_table(paired: list[Paired]) -> Table:
    """Return the differences on the same episodes."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("on the same episodes")
    table.add_column("difference", justify="right")
    table.add_column("")
    for p in paired:
        verdict = "" if abs(p.difference) > p.ci95 else "not significant"
        table.add_row(f"{p.a} - {p.b}", f"{100 * p.difference:+.2f} ± {100 * p.ci95:.2f}", verdict)
    return table
