"""`sinkshot tune`: choose hyper-parameters on validation classes."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer
from rich.table import Table

from sinkshot.bank import FeatureBank, load
from sinkshot.classes import check_split, others
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import exit_code, guarded, out, percent, print_json, say
from sinkshot.cli._signals import while_read
from sinkshot.cli.set_option import parse_value
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.metrics import TITLES, Metric, sign
from sinkshot.open_set import OPEN_SET
from sinkshot.progress import ProgressReporter
from sinkshot.query_sizes import ALPHA, RATIO
from sinkshot.tuning import Candidate, Stopped, Tuned
from sinkshot.tuning import tune as search

_EASY = 0.995  # above this, too few errors are left to choose by


@guarded
def tune(  # long: one parameter for each option
    features: Annotated[
        str,
        typer.Argument(metavar="FEATURES", help="Feature bank of the validation classes: a file or a bundled name."),
    ],
    method: Annotated[str, typer.Option(help="Method to tune.")] = "bms",
    grid: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="Values to try; ';' separates lists. Repeatable.")
    ] = None,
    preprocess: Annotated[
        list[str] | None, typer.Option(metavar="STEPS", help="Preprocessing to try; repeatable.")
    ] = None,
    random: Annotated[int | None, typer.Option(help="Try N random combinations.  [default: all]")] = None,
    classes: shared.Classes = None,
    way: shared.Way = 5,
    shot: shared.Shot = 1,
    query: shared.Query = 15,
    episodes: Annotated[int, typer.Option(help="Episodes of the last round and of the check.")] = 500,
    protocol: shared.Protocol = "balanced",
    alpha: shared.Alpha = ALPHA,
    ratio: shared.Ratio = RATIO,
    metric: Annotated[str, typer.Option(help="accuracy; under open-set also auroc, aupr or fpr95.")] = "accuracy",
    seed: shared.Seed = 0,
    base: shared.Base = None,
    labels: shared.Labels = None,
    device: shared.Device = "auto",
    engine: shared.Engine = "auto",
    as_json: shared.AsJson = False,
    plugin: shared.Plugins = None,
    max_memory: shared.MaxMemory = None,
) -> None:
    """Choose hyper-parameters of a method on validation classes, never on the classes you report on.

    Example: sinkshot tune cifar-fs_wrn-28-10_novel --classes 0-9 --method bms --grid lam=4,6,8,10 --grid epochs=0,20
    """
    del max_memory, plugin  # their callbacks have been called
    values = dict(map(read_values, grid or []))
    bank = load(features, labels=labels)
    remark = check_split(bank, features) if classes is None else _rest(bank, classes, method)
    recipe = Recipe(protocol, way, shot, query, episodes, seed, alpha, ratio)
    if metric not in (known := ("accuracy", *OPEN_SET)):
        raise InputError(f"--metric must be one of {', '.join(known)}; {metric!r} was given.")
    try:
        with ProgressReporter() as progress, while_read():
            found = search(
                bank,
                recipe,
                method=method,
                grid=values,
                preprocess=preprocess or (),
                random=random,
                classes=classes,
                metric=cast(Metric, metric),
                base=load(base) if base else None,
                device=device,
                engine=engine,
                progress=progress.bar(method),
            )
    except Stopped as stopped:
        if stopped.tuned is not None and not as_json:
            out().print(candidate_table(stopped.tuned))
        say("interrupted: nothing was chosen; any results so far are above.")
        raise typer.Exit(exit_code()) from None
    if as_json:
        print_json(found.to_dict())
        say(remark) if remark else None
        return
    show(found, remark)


def read_values(text: str) -> tuple[str, list[Any]]:
    """Read a --grid option.

    >>> read_values("lam=4,8.5"), read_values("weights=1,1,1;0.1,1,0.1")
    (('lam', [4, 8.5]), ('weights', [[1, 1, 1], [0.1, 1, 0.1]]))
    """
    key, equals, values = text.partition("=")
    if not equals or not key or not values:
        raise InputError(f"--grid takes KEY=VALUE,VALUE,..., such as lam=4,6,8; {text!r} was given.")
    return key, [parse_value(value) for value in values.split(";" if ";" in values else ",")]


def _rest(bank: FeatureBank, classes: str, method: str) -> str:
    left = others(bank, classes)
    if not left:
        return "All classes of the bank were used for tuning: report no results on them."
    return f"Report results on the other classes only: sinkshot eval ... --method {method} --classes {left}"


def show(found: Tuned, remark: str) -> None:
    """Print the candidates and a recommendation."""
    recipe, console = found.recipe, out()
    console.print(
        f"{found.method}, {recipe.way}-way {recipe.shot}-shot, {recipe.query} queries per class, {recipe.drawn_by}, "
        f"seed {recipe.seed}; {TITLES[found.metric]} in percent ± 95 % CI half-width"
    )
    console.print(candidate_table(found))
    best = found.candidates[0]
    if found.check is None:
        console.print("\nNothing beats the default.")
    else:
        against = f"{100 * found.check.difference:+.2f} ± {100 * found.check.ci95:.2f}"
        console.print(f"\nBest minus default on {recipe.episodes:,} fresh episodes: {against}")
        console.print(
            f"Use: {best.options}" if found.improved else "That is not significant: nothing beats the default."
        )
    mean = found.default.mean
    if (mean if sign(found.metric) > 0 else 1 - mean) > _EASY:
        console.print("The default makes almost no errors on these classes; tune on harder ones.")
    if remark:
        console.print(remark)


def candidate_table(found: Tuned) -> Table:
    """Return one row per candidate, the default first, then from best to worst."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("candidate", no_wrap=True)
    for title in ("episodes", TITLES[found.metric], "above the default"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row("default", f"{len(found.default.values):,}", percent(found.default.mean, found.default.ci95), "")
    for one in found.candidates:
        table.add_row(one.options, f"{len(one.values):,}", percent(one.mean, one.ci95), _apart(found, one))
    return table


def _apart(found: Tuned, one: Candidate) -> str:
    paired = found.against(one)
    return f"{100 * paired.difference:+.2f} ± {100 * paired.ci95:.2f}"
