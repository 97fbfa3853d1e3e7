"""Cells of a table or figure: the measured number beside the paper's, in percent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sinkshot.calibration import POOLED
from sinkshot.evaluate import half_width
from sinkshot.metrics import sign
from sinkshot.studies.claim_rules import Numbers
from sinkshot.studies.compare import LEVEL, combined, holm, p_value
from sinkshot.studies.study import Cell, Column, Entry, Row, Sheet, Value

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult

Standing = Literal["level", "above", "below", "undecided"]
MARGIN = 1.0  # percentage points within which a number agrees with a paper's


def standing(difference: float, half_width: float) -> Standing:
    """Compare two numbers by their difference and its 95 % CI half-width."""
    return "level" if abs(difference) <= half_width else "above" if difference > 0 else "below"


def agreement(difference: float, half_width: float, margin: float = MARGIN) -> Standing:
    """Compare a number with a paper's, both in percent, by their difference and its 95 % CI half-width.

    `level` (agrees) needs the whole interval of the difference within the margin, so few episodes cannot agree. Else
    it is `above` or `below` if the interval excludes zero, and `undecided` if not: more episodes would tell.
    """
    if abs(difference) + half_width <= margin:
        return "level"
    told = standing(difference, half_width)
    return "undecided" if told == "level" else told


def joint_half_width(a: float, b: float) -> float:
    """Half-width of the difference of two independent numbers with these half-widths."""
    return math.hypot(a, b)


@dataclass(frozen=True)
class TableCell:
    """A measured number and the paper's; either may be missing."""

    entry: Entry
    here: float | None = None
    half_width: float = 0.0
    elsewhere: bool = False  # the paper's value is for another bank: not comparable
    single: bool = False  # of one episode, which has no interval: not comparable
    pooled: bool = False  # of all queries together, which has no interval either
    best: bool = False  # of those measured in the same column and group
    tied: bool = False  # not significantly worse than the best, after Holm's correction

    @property
    def paper(self) -> Value | None:
        """The value as the paper prints it."""
        return self.entry.paper

    @property
    def difference(self) -> float | None:
        """Difference to the paper's value, if they can be compared."""
        if self.here is None or self.paper is None or self.elsewhere:
            return None
        return self.here - self.paper.mean

    @property
    def standing(self) -> Standing | None:
        """How it agrees with the paper's value (`agreement`); a value without an interval is taken as exact."""
        if self.difference is None or self.paper is None or self.single:
            return None
        width = joint_half_width(self.half_width, self.paper.ci95 or 0.0)
        return agreement(sign(self.entry.metric) * self.difference, width)

    @property
    def worth(self) -> float:
        """The measured number, turned so that more is better; minus infinity if there is none."""
        return -math.inf if self.here is None else self.here if sign(self.entry.metric) > 0 else 100 - self.here


def texts(row: Row, heads: int) -> list[str]:
    """Return label and details of a row, as many as there are heads."""
    words = [row.title, *row.details][:heads]
    return words + [""] * (heads - len(words))


def transposed(sheet: Sheet) -> Sheet:
    """Transpose the sheet of a figure: one row per x, one column per series."""
    rows = [
        Row(column.label or f"{column.x:g}", tuple(row.entries[i] for row in sheet.rows))
        for i, column in enumerate(sheet.columns)
    ]
    columns = tuple(Column(row.label) for row in sheet.rows)
    return replace(sheet, columns=columns, rows=tuple(rows), heads=(sheet.axis or "x",))


def measured(entry: Entry, results: Mapping[Cell, StoredResult]) -> TableCell:
    """Return the table cell of an entry, with mean and half-width in percent if it was measured."""
    stored = None if entry.cell is None else results.get(entry.cell)
    if stored is not None and entry.metric in POOLED:
        value = stored.pooled(entry.metric)
        return TableCell(entry) if value is None else TableCell(entry, 100 * value, single=True, pooled=True)
    values = None if stored is None else stored.values(entry.metric)
    if values is None:
        return TableCell(entry)
    return TableCell(entry, 100 * float(values.mean()), 100 * half_width(values), single=len(values) < 2)


def table_cells(sheet: Sheet, results: Mapping[Cell, StoredResult]) -> list[list[TableCell]]:
    """Return the table cells of a sheet, row by row."""
    rows = [
        [replace(measured(entry, results), elsewhere=bool(sheet.elsewhere) or row.head) for entry in row.entries]
        for row in sheet.rows
    ]
    marked = _with_best(sheet, rows)
    return marked if sheet.axis else _with_tied(sheet, marked, results)  # points of a curve are no rivals


def _with_tied(
    sheet: Sheet, rows: list[list[TableCell]], results: Mapping[Cell, StoredResult]
) -> list[list[TableCell]]:
    """Mark what is not significantly worse than the best of its column and group, after Holm's correction.

    On the same episodes differences are paired. Numbers without an interval are not compared.
    """
    numbers = Numbers(sheet, results)
    marked = [list(line) for line in rows]
    for i in range(len(sheet.columns)):
        for group in dict.fromkeys(row.group for row in sheet.rows):
            places = [r for r, row in enumerate(sheet.rows) if row.group == group and not rows[r][i].single]
            best = next((r for r in places if rows[r][i].best), None)
            mine = None if best is None else numbers.of(rows[best][i].entry)
            others = [(r, n) for r in places if r != best and (n := numbers.of(rows[r][i].entry)) is not None]
            if mine is None or not others:
                continue
            apart = [combined([(1.0, mine), (-1.0, number)]) for _, number in others]
            adjusted = holm([1.0 if (p := p_value(one)) is None else p for one in apart])
            for (r, _), p in zip(others, adjusted, strict=True):
                marked[r][i] = replace(marked[r][i], tied=p > LEVEL and not marked[r][i].best)
    return marked


def _with_best(sheet: Sheet, rows: list[list[TableCell]]) -> list[list[TableCell]]:
    """Mark the best measured number of each column and group that has two or more."""
    rivals: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row, line in zip(sheet.rows, rows, strict=True):
        for i, place in enumerate(line):
            if place.here is not None and place.entry.metric != "ece_null":  # of which neither more nor less is better
                rivals[row.group, i].append(place.worth)

    def mark(group: str, i: int, place: TableCell) -> TableCell:
        of = rivals.get((group, i), [])
        return replace(place, best=place.here is not None and len(of) > 1 and place.worth == max(of))

    return [
        [mark(row.group, i, place) for i, place in enumerate(line)] for row, line in zip(sheet.rows, rows, strict=True)
    ]


@dataclass(frozen=True)
class Tally:
    """How many table cells were measured, and how they compare with the paper's values for the same bank."""

    measured: int
    wanted: int  # cells that could be measured if all banks were found
    level: int
    above: int
    below: int
    undecided: int = 0  # for lack of episodes

    @property
    def judged(self) -> int:
        """Places with a value of the paper to stand beside."""
        return self.level + self.above + self.below + self.undecided


def tally(all_places: Iterable[TableCell]) -> Tally:
    """Count table cells."""
    listed = list(all_places)
    stands = Counter(place.standing for place in listed)
    return Tally(
        measured=sum(place.here is not None for place in listed),
        wanted=sum(place.entry.cell is not None for place in listed),
        level=stands["level"],
        above=stands["above"],
        below=stands["below"],
        undecided=stands["undecided"],
    )
