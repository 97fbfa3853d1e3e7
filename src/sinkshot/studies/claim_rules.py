"""The rules by which claims about tables and figures are judged, each a comparison of measured numbers.

`RULES` has them by the name that a study uses; `sinkshot.studies.claims` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sinkshot.evaluate import half_width
from sinkshot.metrics import sign
from sinkshot.studies.compare import (
    FAILS,
    HOLDS,
    LEVEL,
    UNDECIDED,
    Number,
    Verdict,
    above,
    combined,
    difference,
    holm,
    p_value,
)
from sinkshot.studies.study import Cell, Column, Entry, Row, Sheet

Results = Mapping[Any, Any]
"""Of a cell, an object with `accuracy`, `ci95`, `per_episode` and, in open set, `auroc` and others; of a measure, its
dict.
"""


@dataclass(frozen=True)
class Finding:
    """One comparison behind a verdict."""

    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Numbers:
    """The measured numbers of a sheet, and the paper's."""

    sheet: Sheet
    results: Results

    def of(self, entry: Entry) -> Number | None:
        """Return the measured number of an entry."""
        return None if entry.cell is None else self.of_cell(entry.cell, entry.metric)

    def of_cell(self, cell: Cell, metric: str = "accuracy") -> Number | None:
        """Return the measured number of a cell, of this sheet or another."""
        result = self.results.get(cell)
        mean = None if result is None else getattr(result, metric)
        if result is None or mean is None:
            return None
        bank, recipe = cell.bank, cell.recipe
        rows = (bank.data_set, bank.split, bank.trained_on, getattr(result, "labels", ""))
        drawn = (*rows, recipe.drawn_by, recipe.way, recipe.shot, recipe.seed)
        values = getattr(result, "per_episode" if metric == "accuracy" else f"{metric}_per_episode", None)
        if values is None:
            return Number(100 * mean, 100 * result.ci95 if metric == "accuracy" else None, None, drawn, sign(metric))
        percent = 100 * np.asarray(values, dtype=np.float64)
        return Number(100 * mean, half_width(percent) if len(percent) > 1 else None, percent, drawn, sign(metric))

    def or_paper(self, entry: Entry) -> Number | None:
        """Return the measured number of an entry, or the paper's if there is nothing to measure."""
        if entry.cell is None and entry.paper is not None and not self.sheet.elsewhere:
            return Number(entry.paper.mean, entry.paper.ci95 or 0.0)
        return self.of(entry)


# --- rules ----------------------------------------------------------------------------------------------------------


def best_row(
    numbers: Numbers, *, row: str, columns: Any = (), groups: Any = (), without: Any = ()
) -> Iterator[Finding]:
    """The row is above all other rows (of `groups`, if given, and not `without`) in its columns.

    It is not if another row is above it, significantly after Holm's correction for the number of other rows.
    """
    rows = [r for r in numbers.sheet.rows if not groups or r.group in several(groups) or r.label == row]
    rows = [r for r in rows if r.label not in several(without)]
    for place, column in _columns(numbers.sheet, columns):
        for best in (r for r in rows if r.label == row):
            mine = numbers.of(best.entries[place])
            if mine is None:
                continue
            rivals = [(r, numbers.or_paper(r.entries[place])) for r in rows if r is not best]
            gone = [r.label for r, number in rivals if number is None and r.entries[place].cell is not None]
            known = _corrected([(*above(mine, number), r, number) for r, number in rivals if number is not None])
            if not known:
                yield Finding(UNDECIDED, f"{_place(column)}: {row} {mine.mean:.2f}; no other row has a number here.")
                continue
            weakest = next(v for v in (FAILS, UNDECIDED, HOLDS) if any(verdict == v for verdict, *_ in known))
            nearest = min((one for one in known if one[0] == weakest), key=lambda one: mine.sign * one[1].mean)
            _, apart, rival, number = nearest
            whose = " (paper)" if rival.entries[place].cell is None else ""
            text = (
                f"{_place(column)}: {row} {mine.mean:.2f}, {rival.label}{whose} {number.mean:.2f}, {difference(apart)}."
            )
            if gone and weakest == HOLDS:
                weakest, text = UNDECIDED, f"{text} Not measured: {', '.join(gone)}."
            yield Finding(weakest, text)


Compared = tuple[Verdict, Number, Row, Number]
"""Whether a row is above another, the difference, the other row and its number."""


def _corrected(found: list[Compared]) -> list[Compared]:
    """Leave open what does not hold before Holm's correction alone."""
    adjusted = holm([p if (p := p_value(apart)) is not None else 1.0 for _, apart, _, _ in found])
    return [
        (UNDECIDED if verdict == FAILS and p > LEVEL else verdict, apart, row, number)
        for (verdict, apart, row, number), p in zip(found, adjusted, strict=True)
    ]


def row_above_row(numbers: Numbers, *, row: str, other: str, columns: Any = ()) -> Iterator[Finding]:
    """One row is above another, both with the same details (such as the backbone)."""
    for place, column in _columns(numbers.sheet, columns):
        for upper in (r for r in numbers.sheet.rows if r.label == row):
            for lower in (r for r in numbers.sheet.rows if r.label == other and r.details == upper.details):
                a, b = numbers.of(upper.entries[place]), numbers.of(lower.entries[place])
                if a is None or b is None:
                    continue
                verdict, apart = above(a, b)
                where = ", ".join([_place(column), *upper.details])
                yield Finding(verdict, f"{where}: {row} {a.mean:.2f}, {other} {b.mean:.2f}, {difference(apart)}.")


def best_detail(numbers: Numbers, *, rows: Any, detail: str, columns: Any = ()) -> Iterator[Finding]:
    """Of rows with the same label, the one with this detail (such as a backbone) is above all with another."""
    for place, column in _columns(numbers.sheet, columns):
        for upper in (r for r in numbers.sheet.rows if r.label in several(rows) and detail in r.details):
            a, where = numbers.of(upper.entries[place]), f"{_place(column)}, {upper.label}: {detail}"
            lower = [r for r in numbers.sheet.rows if r.label == upper.label and r is not upper]
            others = [(r, b) for r in lower if (b := numbers.of(r.entries[place])) is not None]
            if a is None:
                continue
            if not others:
                yield Finding(UNDECIDED, f"{where} {a.mean:.2f}; no other was measured.")
            for rival, b in others:
                verdict, apart = above(a, b)
                yield Finding(
                    verdict, f"{where} {a.mean:.2f}, {', '.join(rival.details)} {b.mean:.2f}, {difference(apart)}."
                )


def gain_between(
    numbers: Numbers, *, row: str, other: str, low: float, high: float, columns: Any = ()
) -> Iterator[Finding]:
    """One row is above another with the same details by `low` to `high` percentage points."""
    for place, column in _columns(numbers.sheet, columns):
        for upper in (r for r in numbers.sheet.rows if r.label == row):
            for lower in (r for r in numbers.sheet.rows if r.label == other and r.details == upper.details):
                a, b = numbers.of(upper.entries[place]), numbers.of(lower.entries[place])
                if a is not None and b is not None:
                    apart = combined([(1.0, a), (-1.0, b)])
                    where = ", ".join([_place(column), *upper.details])
                    yield Finding(
                        _within(apart, low, high),
                        f"{where}: {row} {a.mean:.2f}, {other} {b.mean:.2f}, {difference(apart)}.",
                    )


def _within(apart: Number, low: float, high: float) -> Verdict:
    """Whether a difference lies between two values: its whole interval, none of it, or it is undecided."""
    if low <= apart.low and apart.high <= high:
        return HOLDS
    return FAILS if apart.high < low or apart.low > high else UNDECIDED


def rises(numbers: Numbers, *, rows: Any = ()) -> Iterator[Finding]:
    """The last point of a curve is above the first, and no point is below the one before it."""
    for row, x, points in _curves(numbers, rows):
        if points is None:
            yield _incomplete(row)
            continue
        verdict, apart = above(points[-1], points[0])
        falls = [i for i in range(1, len(points)) if above(points[i], points[i - 1])[0] == FAILS]
        text = (
            f"{row.label}: {points[0].mean:.2f} at {x[0]:g}, {points[-1].mean:.2f} at {x[-1]:g}, {difference(apart)}"
            + "".join(f"; a drop of {points[i - 1].mean - points[i].mean:.2f} at {x[i]:g}" for i in falls[:1])
        )
        yield Finding(FAILS if falls else verdict, f"{text}.")


def rises_to_plateau(numbers: Numbers, *, rows: Any = (), late: float = 0.5) -> Iterator[Finding]:
    """A curve rises; its gain in the second half is at most `late` times that in the first."""
    yield from rises(numbers, rows=rows)
    for row, x, points in _curves(numbers, rows):
        if points is None:
            continue
        middle = min(range(len(x)), key=lambda i: abs(x[i] - (x[0] + x[-1]) / 2))
        first, last = points[0], points[-1]
        half = points[middle]
        # (last - half) - late * (half - first), which is below zero on a plateau
        excess = combined([(1.0, last), (-1.0 - late, half), (late, first)])
        verdict = HOLDS if excess.high < 0 else FAILS if excess.low > 0 else UNDECIDED
        yield Finding(
            verdict,
            f"{row.label}: the gain up to {x[middle]:g} is {half.mean - first.mean:.2f}, and from there to {x[-1]:g} "
            f"{last.mean - half.mean:z.2f}.",
        )


def optimum_between(
    numbers: Numbers, *, rows: Any = (), low: float | None = None, high: float | None = None
) -> Iterator[Finding]:
    """The best point of a curve lies between `low` and `high`, by default anywhere but at the ends."""
    for row, x, points in _curves(numbers, rows):
        if points is None:
            yield _incomplete(row)
            continue
        least = x[1] if low is None else low
        most = x[-2] if high is None else high
        inside = [i for i in range(len(x)) if least <= x[i] <= most]
        outside = [i for i in range(len(x)) if i not in inside]
        if not inside or not outside:
            yield Finding(
                UNDECIDED, f"{row.label}: the curve needs points inside and outside of {least:g} to {most:g}."
            )
            continue
        best, rival = (max(some, key=lambda i: points[i].sign * points[i].mean) for some in (inside, outside))
        verdicts = [above(points[best], points[i])[0] for i in outside]
        verdict = FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
        _, apart = above(points[best], points[rival])
        yield Finding(
            verdict,
            f"{row.label}: best within {least:g} to {most:g} is {points[best].mean:.2f} at {x[best]:g}, "
            f"best outside {points[rival].mean:.2f} at {x[rival]:g}, {difference(apart)}.",
        )


def merged_above_single(
    numbers: Numbers, *, columns: Any = (), rows: Any = (), low: float | None = None, high: float = math.inf
) -> Iterator[Finding]:
    """Several backbones are above the best single one that was measured; with `low`, by that up to `high` points.

    A single one that was measured on other rows, such as a whole bank beside the first rows of each class, has other
    episodes, easier or harder ones, and is left out.
    """
    for row in (r for r in numbers.sheet.rows if not rows or r.label in several(rows)):
        for place, column in _columns(numbers.sheet, columns):
            cell = row.entries[place].cell
            merged = None if cell is None else numbers.of_cell(cell)
            if cell is None or merged is None or len(cell.bank.backbones) < 2:
                continue
            alone = {
                backbone: numbers.of_cell(replace(cell, bank=replace(cell.bank, backbones=(backbone,))))
                for backbone in cell.bank.backbones
            }
            measured = {backbone: number for backbone, number in alone.items() if number is not None}
            known = {backbone: number for backbone, number in measured.items() if number.drawn == merged.drawn}
            where = f"{_place(column)}, {row.label}"
            if measured and not known:
                yield Finding(
                    UNDECIDED, f"{where}: {merged.mean:.2f}; the backbones alone were measured on other rows."
                )
                continue
            if not known:
                yield Finding(UNDECIDED, f"{where}: {merged.mean:.2f}; none of the backbones has been measured alone.")
                continue
            best = max(known, key=lambda backbone: known[backbone].mean)
            verdict, apart = above(merged, known[best])
            if low is not None:
                verdict = _within(apart, low, high)
            yield Finding(
                verdict, f"{where}: {merged.mean:.2f}, {best} alone {known[best].mean:.2f}, {difference(apart)}."
            )


def above_value(numbers: Numbers, *, row: str, value: float, columns: Any = ()) -> Iterator[Finding]:
    """A row is above a value, in percent."""
    for place, column in _columns(numbers.sheet, columns):
        for mine in (numbers.of(r.entries[place]) for r in numbers.sheet.rows if r.label == row):
            if mine is None:
                continue
            verdict, _ = above(mine, Number(value, 0.0))
            interval = "" if mine.ci95 is None else f" ± {mine.ci95:.2f}"
            yield Finding(verdict, f"{_place(column)}: {mine.mean:.2f}{interval}, against {value:g}.")


def pass_rate_jumps(numbers: Numbers, *, times: float = 10.0) -> Iterator[Finding]:
    """The share of tests for a Gaussian that pass grows at least `times`."""
    yield from _pass_rate(numbers, lambda before, after, _: after > 0 and after >= times * before)


def pass_rate_above(numbers: Numbers, *, value: float) -> Iterator[Finding]:
    """After the chain, more than `value` percent of the tests for a Gaussian pass, however many did before."""
    yield from _pass_rate(numbers, lambda _, after, tests: 100 * after > value * tests)


def _pass_rate(numbers: Numbers, holds: Callable[[int, int, int], bool]) -> Iterator[Finding]:
    """Judge by the tests that pass before, those that pass after, and all of them."""
    found = None if numbers.sheet.measure is None else numbers.results.get(numbers.sheet.measure)
    if found is None or not found["tests"]:
        return
    before, after = found["before"]["passed"], found["after"]["passed"]
    factor = f", {after / before:.1f} times as many" if before else ""
    share = [100 * count / found["tests"] for count in (before, after)]
    yield Finding(
        HOLDS if holds(before, after, found["tests"]) else FAILS,
        f"Of {found['tests']} tests {before} pass before ({share[0]:.2f} %) and {after} after "
        f"({share[1]:.2f} %){factor}.",
    )


RULES: dict[str, Callable[..., Iterator[Finding]]] = {
    "best-row": best_row,
    "row-above-row": row_above_row,
    "best-detail": best_detail,
    "gain-between": gain_between,
    "rises": rises,
    "rises-to-plateau": rises_to_plateau,
    "optimum-between": optimum_between,
    "merged-above-single": merged_above_single,
    "above-value": above_value,
    "pass-rate-jumps": pass_rate_jumps,
    "pass-rate-above": pass_rate_above,
}


# --- rows and columns of a sheet --------------------------------------------------------------------------------------


def several(names: Any) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def _columns(sheet: Sheet, names: Any) -> list[tuple[int, Column]]:
    """Return the columns whose label, group, or "group label" is among the names; all if there are no names."""
    wanted = several(names)
    every = list(enumerate(sheet.columns))
    return [(i, c) for i, c in every if not wanted or {c.label, c.group, f"{c.group} {c.label}"} & set(wanted)]


def _place(column: Column) -> str:
    return f"{column.group} {column.label}".strip()


def _curves(numbers: Numbers, names: Any) -> Iterator[tuple[Row, list[float], list[Number] | None]]:
    """Yield measured rows of a figure with their x and their points sorted by x; None if a point is missing."""
    order = sorted(range(len(numbers.sheet.columns)), key=lambda i: numbers.sheet.columns[i].x or 0.0)
    x = [numbers.sheet.columns[i].x or 0.0 for i in order]
    for row in numbers.sheet.rows:
        if names and row.label not in several(names):
            continue
        points = [numbers.of(row.entries[i]) for i in order]
        known = [point for point in points if point is not None]
        if known and len(known) == len(points) and len(known) > 2:
            yield row, x, known
        elif known:
            yield row, x, None


def _incomplete(row: Row) -> Finding:
    return Finding(UNDECIDED, f"{row.label}: some points of the curve have not been measured.")
