"""`sinkshot eval`: methods on the same episodes of a bank, with intervals."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sinkshot import methods as registry
from sinkshot.bank import load
from sinkshot.classes import part
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

_FEW = 5  # methods: up to here every pair of them is compared, beyond that all with one


@guarded
def evaluate(
    features: Annotated[str, typer.Argument(help="Feature bank: a file, or the name of a bundled one.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method, or all, inductive, transductive; may be repeated.  [default: bms]"),
    ] = None,
    preprocess: Annotated[str | None, typer.Option(help="Chain such as PEMnE.  [default: the method's own]")] = None,
    way: Annotated[int, typer.Option(help="Classes in an episode.")] = 5,
    shot: Annotated[int, typer.Option(help="Labelled rows of a class.")] = 1,
    query: Annotated[int, typer.Option(help="Unlabelled rows of a class.")] = 15,
    episodes: Annotated[int, typer.Option(help="Number of episodes.")] = 10_000,
    protocol: Annotated[str, typer.Option(help="balanced, official, dirichlet, long-tail or open-set.")] = "balanced",
    alpha: Annotated[float, typer.Option(help="Of dirichlet: the smaller, the less equal the query sizes.")] = ALPHA,
    ratio: Annotated[float, typer.Option(help="Of long-tail: the largest class to the smallest.")] = RATIO,
    seed: Annotated[int, typer.Option(help="Which stream of episodes.")] = 0,
    base: Annotated[Path | None, typer.Option(help="Features of the base classes, for steps Mb.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels beside an .npy file.")] = None,
    classes: Annotated[str | None, typer.Option(help="Some classes of the bank alone, such as 0-9,12.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="[METHOD.]KEY=VALUE, a hyper-parameter; may be repeated.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or another torch device.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, numpy, numba, torch or triton.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Measure methods on few-shot episodes of a feature bank.

    Example: sinkshot eval cifar-fs_wrn-28-10_novel --method bms --method ncm --shot 5

    Example: sinkshot eval cifar-fs_wrn-28-10_novel --method all --episodes 100
    """
    names, of_group = chosen(method or ["bms"], protocol)
    hyper = hyper_parameters(names, settings or [])
    bank = load(features, labels=labels)
    bank = bank if classes is None else part(bank, classes)
    base_bank = load(base) if base else None
    recipe = Recipe(protocol, way, shot, query, episodes, seed, alpha, ratio)
    results: list[Result] = []
    left_out: dict[str, str] = {}  # methods of a group that cannot run here, and why
    stopped = False
    if of_group:
        recipe.draw(bank.labels, 0, 1, bank.class_names)  # what is wrong with it is wrong for all of them
    with ProgressReporter() as progress:
        for name in names:
            try:
                with while_read():
                    result = run(
                        bank,
                        recipe,
                        method=name,
                        preprocess=preprocess,
                        base=base_bank,
                        device=device,
                        engine=engine,
                        progress=progress.bar(name),
                        **hyper[name],
                    )
            except Interrupted as interrupt:
                stopped = True
                if interrupt.result is not None:
                    results.append(interrupt.result)
                break
            except InputError as error:
                if name not in of_group:
                    raise
                left_out[name] = str(error)
                continue
            results.append(result)
    if left_out and not results and not stopped:
        raise InputError(f"none of the methods can be measured here; {names[0]}: {left_out[names[0]]}")
    if results:
        remarks = notes(results, preprocess) + [f"{name} is left out: {why}" for name, why in left_out.items()]
        show(results, as_json, remarks, several=len(names) > 1)
    if stopped:
        finished = ", ".join(f"{r.method} {r.episodes:,} of {episodes:,}" for r in results) or "nothing"
        say(f"interrupted; episodes finished and counted above: {finished}")
        raise typer.Exit(exit_code())


def chosen(words: list[str], protocol: str) -> tuple[list[str], set[str]]:
    """Return the methods that words name, each once, and those of them that come from a group alone."""
    names: dict[str, None] = {}
    for word in words:
        group = word in registry.GROUPS
        names |= dict.fromkeys([m.name for m in registry.group(word, protocol)] if group else [word])
    return list(names), set(names) - set(words)


def hyper_parameters(names: list[str], settings: list[str]) -> dict[str, dict[str, Any]]:
    """Read --set options: KEY=VALUE goes to every method that has KEY, METHOD.KEY=VALUE to one."""
    known = {name: registry.get(name).hyper for name in names}
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in parse_settings(settings, example="epochs=40"):
        prefix, dot, rest = key.partition(".")
        takers, key = ([prefix], rest) if dot and prefix in known else (names, key)
        having = [name for name in takers if key in known[name]]
        special = [name for name in having if key in registry.get(name).fixed]
        if special and (len(having) > 1 or value is None):
            raise InputError(f"{key} is what makes {special[0]} a method of its own; set it by METHOD.{key}=VALUE.")
        if not having:
            raise unknown_name(f"hyper-parameter of {', '.join(takers)}", key, {k for n in takers for k in known[n]})
        for name in having:
            chosen[name][key] = value
    return chosen


def notes(results: list[Result], preprocess: str | None) -> list[str]:
    """Say what was taken that nobody asked for: means and features, or another chain than a method's own."""
    own = {r.method: registry.get(r.method).preprocess for r in results}
    taken = [note for r in results for note in r.notes]
    return taken + [
        f"{r.method}: the mean of the base classes that {own[r.method]} needs is not known, so "
        f"{r.preprocess or 'no preprocessing'} is used instead (--base FEATURES gives it)."
        for r in results
        if preprocess is None and r.preprocess != own[r.method]
    ]


def show(results: list[Result], as_json: bool, remarks: list[str], several: bool) -> None:
    """Print results, and how they differ on the same episodes; `several` methods were asked for, or one."""
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
        f"{recipe.way}-way {recipe.shot}-shot, {recipe.query} queries a class, {recipe.drawn_by}, seed {recipe.seed}; "
        "accuracy in percent ± half of the 95 % interval"
    )
    out().print(result_table(results))
    if paired:
        out().print(paired_table(paired))
    for remark in remarks:
        out().print(remark)


def comparisons(results: list[Result]) -> list[Paired]:
    """Every pair of a few results; of many, each against BMS, or else the first."""
    if len(results) <= _FEW:
        return [compare(a, b) for a, b in combinations(results, 2)]
    middle = next((r for r in results if r.method == "bms"), results[0])
    return [compare(r, middle) for r in results if r is not middle]


def result_table(results: list[Result]) -> Table:
    """One row for each method."""
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
    """Differences on the same episodes."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("on the same episodes")
    table.add_column("difference", justify="right")
    table.add_column("")
    for p in paired:
        verdict = "" if abs(p.difference) > p.ci95 else "not clear of zero"
        table.add_row(f"{p.a} - {p.b}", f"{100 * p.difference:+.2f} ± {100 * p.ci95:.2f}", verdict)
    return table
