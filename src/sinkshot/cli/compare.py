"""`sinkshot compare`: two reports, or two methods on the same episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sinkshot import methods
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import guarded, out, percent, print_json
from sinkshot.cli.reproduce import STORE
from sinkshot.errors import InputError, unknown_name
from sinkshot.evaluate import half_width
from sinkshot.metrics import TITLES
from sinkshot.open_set import OPEN_SET
from sinkshot.report.pairs import paired
from sinkshot.studies.resolve import canonical
from sinkshot.studies.store import Store, StoredResult


@dataclass(frozen=True)
class Difference:
    """The difference a - b in one cell, in [-1, 1]; if paired, also in how many episodes a wins, ties and loses."""

    cell: str
    metric: str
    a: float
    b: float
    difference: float
    ci95: float
    episodes: tuple[int, int]
    paired: bool  # on the same episodes
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None


@guarded
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Folder of a report, its results.sqlite, or a method.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with, of the same kind.")],
    folder: Annotated[Path, typer.Option("--out", help="Report to compare methods in.")] = Path("sinkshot-report"),
    store: Annotated[Path | None, typer.Option(help=f"Results of that report.  [default: OUT/{STORE}]")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Compare two reports of `sinkshot reproduce`, or two methods within one.

    Results on the same episodes are compared in pairs, which gives much narrower intervals.

    Example: sinkshot compare bms kmeans --out sinkshot-report
    """
    first, second = (store_at(name) for name in (a, b))
    if first is not None and second is not None:
        pairs = list(of_stores(latest(first), latest(second)))
        nothing = f"{first} and {second} have no result in common: no method with the same settings on the same bank."
    else:
        for name, found in ((a, first), (b, second)):
            if found is None and name not in methods.METHODS:
                known = unknown_name("method", name, methods.METHODS)
                raise InputError(f"{name} is neither a file nor a folder with a {STORE}, and not a method: {known}")
        if first is not None or second is not None:
            raise InputError(
                f"{a} and {b} are a report and a method; give two reports, or two methods and --out REPORT."
            )
        place = store or folder / STORE
        pairs = list(of_methods(latest(place), a, b))
        nothing = f"{place} has no result of both {a} and {b}; measure them with sinkshot reproduce."
    if not pairs:
        raise InputError(nothing)
    if as_json:
        print_json({"a": a, "b": b, "cells": [dataclasses.asdict(pair) for pair in pairs]})
    else:
        show(a, b, pairs)


def store_at(name: str) -> Path | None:
    """Return the store in a report's folder, or the file itself; None if there is neither."""
    place = Path(name)
    if place.is_dir():
        place = place / STORE
    return place if place.is_file() else None


def latest(place: Path) -> list[StoredResult]:
    """Return the latest result of each cell of a store."""
    with Store(place, reading=True) as store:
        return list({key(stored): stored for stored in store.everything()}.values())


def key(stored: StoredResult) -> tuple[object, ...]:
    """Return what identifies a cell, whatever computed it."""
    recipe = dataclasses.replace(stored.recipe, episodes=1)
    return stored.bank, recipe, stored.method, stored.preprocess, canonical(stored.hyper)


def of_stores(first: Sequence[StoredResult], second: Sequence[StoredResult]) -> Iterator[Difference]:
    """Compare every cell that both stores have."""
    others = {key(stored): stored for stored in second}
    for one in first:
        if (other := others.get(key(one))) is not None:
            yield from differences(one, other, f"{described(one)}, {where(one)}")


def of_methods(results: Sequence[StoredResult], a: str, b: str) -> Iterator[Difference]:
    """Compare two methods with default hyper-parameters and the same preprocessing, or each with its own."""
    usual = [stored for stored in results if stored.method in (a, b) and not changed(stored)]
    for one in (stored for stored in usual if stored.method == a):
        for other in (stored for stored in usual if stored.method == b):
            same_episodes = key(one)[:2] == key(other)[:2] and one.bank_hash == other.bank_hash
            if same_episodes and (one.preprocess == other.preprocess or (has_own(one) and has_own(other))):
                chains = dict.fromkeys(stored.preprocess or "no preprocessing" for stored in (one, other))
                yield from differences(one, other, f"{' and '.join(chains)}, {where(one)}")


def differences(one: StoredResult, other: StoredResult, cell: str) -> Iterator[Difference]:
    """Yield the difference in accuracy and, under open-set, in AUROC, AUPR and FPR95."""
    same = one.bank_hash == other.bank_hash and key(one)[:2] == key(other)[:2]
    for name in ("accuracy", *OPEN_SET):
        metric = TITLES[name]
        of_one, of_other = one.values(name), other.values(name)
        if of_one is None or of_other is None:
            continue
        if same:
            apart, counts = paired(of_one, of_other, name)
            size = len(apart)
            means = float(of_one[:size].mean()), float(of_other[:size].mean())
            yield Difference(cell, metric, *means, float(apart.mean()), half_width(apart), (size, size), True, *counts)
        else:
            means = float(of_one.mean()), float(of_other.mean())
            width = math.hypot(half_width(of_one), half_width(of_other))
            yield Difference(cell, metric, *means, means[0] - means[1], width, (len(of_one), len(of_other)), False)


def has_own(stored: StoredResult) -> bool:
    """Whether a result uses the default preprocessing of its method."""
    method = methods.METHODS[stored.method]
    return stored.preprocess in method.chains


def changed(stored: StoredResult) -> dict[str, object]:
    """Return the hyper-parameters that differ from the defaults."""
    method = methods.METHODS.get(stored.method)
    own = {} if method is None else dict(method.hyper)
    if method is not None and stored.recipe.unequal:
        own |= method.imbalanced
    return {name: value for name, value in stored.hyper.items() if name not in own or own[name] != value}


def described(stored: StoredResult) -> str:
    """Name a result by method, changed hyper-parameters and preprocessing."""
    settings = [f"{name}={value}" for name, value in changed(stored).items()]
    return f"{' '.join([stored.method, *settings])}, {stored.preprocess or 'no preprocessing'}"


def where(stored: StoredResult) -> str:
    """Name the bank and the task of a result."""
    recipe = stored.recipe
    usual = "" if recipe.protocol == "balanced" else f", {recipe.drawn_by}"
    return f"{stored.bank}, {recipe.way}-way {recipe.shot}-shot, {recipe.query} queries{usual}, seed {recipe.seed}"


def show(a: str, b: str, pairs: Sequence[Difference]) -> None:
    """Print one row per cell."""
    out().print(f"a: {a}\nb: {b}\nin percent; ± 95 % CI half-width of the difference")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("cell")
    for title in ("", "a", "b", "a - b", "a wins, ties, b wins"):
        table.add_column(title, justify="right" if title else "left", no_wrap=bool(title))
    table.add_column("")
    for pair in pairs:
        counts = f"{pair.wins:,}  {pair.ties:,}  {pair.losses:,}" if pair.paired else "different episodes"
        clear = abs(pair.difference) > pair.ci95 and min(pair.episodes) > 1  # one episode has no interval
        unclear = "" if clear else "equal" if not pair.difference else "not significant"
        apart = f"{100 * pair.difference:+.2f} ± {100 * pair.ci95:.2f}"
        table.add_row(pair.cell, pair.metric, percent(pair.a), percent(pair.b), apart, counts, unclear)
    out().print(table)
