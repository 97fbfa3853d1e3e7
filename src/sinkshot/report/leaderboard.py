"""Leaderboards: methods ranked by accuracy, with time per episode and paired differences to a reference method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sinkshot.calibration import POOLED
from sinkshot.methods import METHODS
from sinkshot.metrics import TITLES, sign
from sinkshot.report.figures.studies import Drawing
from sinkshot.report.figures.svg import INK, MARKERS, MUTED, PAPER, SERIES, Key, Panel, marker_sign, panel
from sinkshot.report.pairs import Match, match
from sinkshot.report.table_cells import TableCell, table_cells
from sinkshot.studies.study import Cell, Column, Entry, Row, Sheet, Study

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult

Results = Mapping[Cell, "StoredResult"]
KINDS = ("inductive", "transductive", "transductive, assumes equal sizes")


@dataclass(frozen=True)
class Spot:
    """One number of a method: its table cell, its time, and its comparison with the reference row."""

    place: TableCell
    seconds: float | None = None  # of an episode, on one machine with all cores at work
    episodes: int = 0
    match: Match | None = None
    rival: float = 0.0  # worth of the row compared with

    @property
    def worth(self) -> float:
        """What ranks it: where few episodes were seen, the rival's worth and the difference to it on those few.

        The first twenty episodes may be easier than all.
        """
        return self.place.worth if self.match is None else self.rival + self.match.better * self.match.difference

    @property
    def ranks(self) -> bool:
        """Whether it is measured, and of each episode: how well calibrated a method is does not rank it."""
        return self.place.here is not None and not self.place.pooled

    @property
    def time(self) -> str:
        """Time per episode as text."""
        return "" if self.seconds is None else time_of(self.seconds)


@dataclass(frozen=True)
class Rank:
    """A method with its numbers; `kind` is the place in KINDS."""

    label: str
    kind: int
    spots: tuple[Spot, ...]

    @property
    def kind_name(self) -> str:
        """Whether it is transductive, and what it assumes."""
        return KINDS[self.kind]

    def above(self, middles: Sequence[float]) -> float:
        """Mean height above a number for each column, over those that are measured; below everything if none is."""
        columns = zip(self.spots, middles, strict=True)
        known = [spot.worth - middle for spot, middle in columns if spot.ranks]
        return sum(known) / len(known) if known else -math.inf


@dataclass(frozen=True)
class Broken:
    """Transductive methods that are below the inductive baseline in a column."""

    column: Column
    rows: tuple[tuple[str, Match], ...]  # the worst first


@dataclass(frozen=True)
class Board:
    """A sheet as a leaderboard, best rows first."""

    sheet: Sheet
    against: str
    floor: str
    ranks: tuple[Rank, ...]
    broken: tuple[Broken, ...]

    @property
    def fewer(self) -> tuple[tuple[str, int], ...]:
        """Methods with fewer episodes than the others, and their number."""
        counts = {rank.label: max(spot.episodes for spot in rank.spots) for rank in self.ranks}
        most = max(counts.values(), default=0)
        return tuple((label, count) for label, count in counts.items() if 0 < count < most)


def board(study: Study, sheet: Sheet, results: Results) -> Board:
    """Rank the rows of a sheet by their mean advantage over the average row.

    So a row that lacks the harder columns gains nothing by it; among complete rows that is the order of their means.
    """
    lines = list(zip(sheet.rows, table_cells(replace(sheet, rows=_ungrouped(sheet.rows)), results), strict=True))
    against = next((line for row, line in lines if row.label == study.against), None)
    ranks = []
    for row, line in lines:
        rivals = [None] * len(line) if against is None or line is against else against
        spots = tuple(_spot(place, rival, results) for place, rival in zip(line, rivals, strict=True))
        ranks.append(Rank(row.label, _kind(row), spots))
    middles = [_middle([rank.spots[number] for rank in ranks]) for number in range(len(sheet.columns))]
    ranks.sort(key=lambda rank: -rank.above(middles))
    floor = next((row for row in sheet.rows if row.label == study.floor), None)
    broken = () if floor is None else tuple(_broken(sheet, floor, results))
    return Board(sheet, study.against, study.floor, tuple(ranks), broken)


def _middle(column: Sequence[Spot]) -> float:
    """Mean worth of the measured numbers of a column."""
    known = [spot.worth for spot in column if spot.ranks]
    return sum(known) / len(known) if known else 0.0


def _ungrouped(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows of one group, so that one of them is the best of all."""
    return tuple(replace(row, group="") for row in rows)


def _kind(row: Row) -> int:
    cell = next((entry.cell for entry in row.entries if entry.cell is not None), None)
    method = None if cell is None else METHODS.get(cell.method)
    return 0 if method is None or not method.transductive else 2 if method.balanced else 1


def _spot(place: TableCell, rival: TableCell | None, results: Results) -> Spot:
    cell = place.entry.cell
    stored = None if cell is None else results.get(cell)
    if stored is None:
        return Spot(place)
    seconds, episodes = stored.seconds["total"] / stored.episodes, stored.episodes
    if rival is None:
        return Spot(place, seconds, episodes)
    return Spot(place, seconds, episodes, _match(place.entry, rival.entry, results), rival.worth)


def _match(entry: Entry, rival: Entry | None, results: Results) -> Match | None:
    """Compare two entries on the same episodes, by the first one's metric."""
    values = [None if one is None or one.cell is None else results.get(one.cell) for one in (entry, rival)]
    if values[0] is None or values[1] is None:
        return None
    a, b = values[0].values(entry.metric), values[1].values(entry.metric)
    return None if a is None or b is None else match(a, b, entry.metric)


def _broken(sheet: Sheet, floor: Row, results: Results) -> list[Broken]:
    """Return the accuracy columns in which a transductive row is significantly below the baseline."""
    found = []
    for number, column in enumerate(sheet.columns):
        below = []
        for row in sheet.rows:
            entry = row.entries[number]
            apart = _match(entry, _same_episodes(entry, number, floor), results)
            if entry.metric == "accuracy" and _kind(row) and apart is not None and apart.standing == "below":
                below.append((row.label, apart))
        if below:
            found.append(Broken(column, tuple(sorted(below, key=lambda pair: pair[1].difference))))
    return found


def _same_episodes(entry: Entry, number: int, floor: Row) -> Entry | None:
    """Return the baseline's entry with the same episodes: of this column, or of another with the same recipe."""
    if entry.cell is None or floor.entries[number].cell is not None:
        return floor.entries[number]
    drawn = replace(entry.cell.recipe, episodes=0)
    same = (e for e in floor.entries if e.cell is not None and replace(e.cell.recipe, episodes=0) == drawn)
    return next((e for e in same if e.metric == entry.metric), None)


# --- the plot -------------------------------------------------------------------------------------------------------


def drawing(name: str, shown: Board) -> Drawing:
    """Plot accuracy against time per episode, one panel per column; Pareto-optimal methods are labelled."""
    metrics = [entry.metric for entry in shown.sheet.rows[0].entries] if shown.sheet.rows else []
    panels = [_panel(f"{name}-{number}", shown, number) for number, one in enumerate(metrics) if one not in POOLED]
    used = sorted({rank.kind for rank in shown.ranks})
    keys = [Key(marker_sign(MARKERS[kind], SERIES[kind]), KINDS[kind]) for kind in used]
    return Drawing(tuple(one for one in panels if one is not None), tuple(keys))


@dataclass(frozen=True)
class _Dot:
    label: str
    kind: int
    seconds: float
    value: float
    half_width: float


def _panel(name: str, shown: Board, number: int) -> Panel | None:
    dots = [
        _Dot(rank.label, rank.kind, spot.seconds, spot.place.here, spot.place.half_width)
        for rank in shown.ranks
        if (spot := rank.spots[number]).seconds is not None and spot.place.here is not None
    ]
    if not dots:
        return None
    column = shown.sheet.columns[number]
    title = " ".join(part for part in (column.group, column.label) if part)
    name_of_metric = shown.sheet.rows[0].entries[number].metric
    metric, better = TITLES[name_of_metric], sign(name_of_metric)
    first = ", ".join(f"{dot.label} {dot.value:.2f} at {time_of(dot.seconds)}" for dot in front(dots, better))
    return panel(
        name,
        title,
        f"{shown.sheet.label}, {title}: {metric} in percent against time per episode. No method is both faster and "
        f"better than: {first}.",
        lambda axes: _scatter(axes, dots, f"{metric}, %", shown.against, better),
        height=3.6,
    )


def front(dots: Sequence[Any], better: int = 1) -> list[Any]:
    """Return the Pareto-optimal dots, fastest first; with -1, less is better."""
    kept: list[Any] = []
    for dot in sorted(dots, key=lambda dot: (dot.seconds, -better * dot.value)):
        if not kept or better * dot.value > better * kept[-1].value:
            kept.append(dot)
    return kept


def _scatter(axes: Any, dots: Sequence[_Dot], label: str, against: str, better: int) -> None:
    """Plot dots with intervals over log time, and a line through the Pareto-optimal ones."""
    leading = front(dots, better)
    axes.set_xscale("log")
    steps = [(dot.seconds, dot.value) for dot in leading]
    if len(steps) > 1:
        axes.step(*zip(*steps, strict=True), where="post", color=MUTED, linewidth=1, alpha=0.6, zorder=1)
    for dot in dots:
        colour = SERIES[dot.kind]
        axes.errorbar(dot.seconds, dot.value, yerr=dot.half_width, color=colour, linewidth=1, alpha=0.5, zorder=2)
        axes.plot(
            dot.seconds, dot.value, MARKERS[dot.kind], color=colour, markersize=6, markeredgecolor=PAPER, zorder=3
        )
    fastest, slowest = min(dot.seconds for dot in dots), max(dot.seconds for dot in dots)
    if slowest < 1.01 * fastest:  # one dot, or equal times, would leave the axis without width
        axes.set_xlim(fastest / 2, 2 * slowest)
    axes.margins(x=0.1, y=0.1)
    axes.autoscale_view()
    named = [*leading[::-1], *(dot for dot in dots if dot.label == against and dot not in leading)]
    for dot, (x, y), side in _named(axes, named, dots):
        axes.annotate(dot.label, (dot.seconds, dot.value), (x, y), textcoords="offset points", ha=side, color=INK)
    axes.xaxis.set_major_formatter(lambda seconds, _: time_of(seconds))
    axes.minorticks_off()
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="both")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time of an episode")
    axes.set_ylabel(label)


_LETTER, _LINE = 0.023, 0.055  # of the width and the height of a panel
_SIDES = (("center", 0, 6), ("center", 0, -15), ("left", 7, -4), ("right", -7, -4))


def _named(axes: Any, named: Sequence[_Dot], dots: Sequence[_Dot]) -> Iterator[tuple[_Dot, tuple[int, int], str]]:
    """Yield positions of names beside their dots, without overlaps; names that do not fit are dropped."""
    place = axes.transData + axes.transAxes.inverted()
    spots = {dot.label: place.transform((dot.seconds, dot.value)) for dot in dots}
    taken = [(x - 0.01, y - 0.015, x + 0.01, y + 0.015) for x, y in spots.values()]
    for dot in named:
        for side, right, up in _SIDES:
            width, (x, y) = _LETTER * len(dot.label), spots[dot.label]
            left = x + right / 360 - {"center": width / 2, "left": 0, "right": width}[side]
            low = y + up / 200
            box = left, low, left + width, low + _LINE
            if box[0] > 0 and box[2] < 1.03 and box[3] < 1.04 and not any(_meet(box, other) for other in taken):
                taken.append(box)
                yield dot, (right, up), side
                break


def _meet(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def time_of(seconds: float) -> str:
    """Write a time with two digits.

    >>> time_of(0.00052), time_of(1.2), time_of(0.1)
    ('0.52 ms', '1.2 s', '100 ms')
    """
    return f"{seconds:.2g} s" if seconds >= 0.95 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
