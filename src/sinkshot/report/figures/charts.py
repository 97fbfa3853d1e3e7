"""Kinds of charts, each painted on given axes: curves, clouds of points, bars, intervals, histograms, an episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sinkshot.report.figures.svg import DASHES, INK, LINE, MARKERS, MUTED, PAPER, SERIES, line_mark, printable

PAPER_DASH = (0, (4, 2.5))
_PAPER_ALPHA = 0.55


@dataclass(frozen=True)
class Interval:
    """A value with a half-width, and another to compare it with."""

    label: str
    value: float
    half_width: float
    mark: float | None = None
    mark_half_width: float = 0.0


@dataclass(frozen=True)
class Points:
    """The rows of an episode in the plane, their classes, and which queries were labelled wrong."""

    support: NDArray[Any]  # [l, 2]
    query: NDArray[Any]  # [q, 2]
    of_support: NDArray[Any]  # [l]
    of_query: NDArray[Any]  # [q]
    wrong: NDArray[Any]  # [q]


@dataclass(frozen=True)
class Point:
    """A point of a curve in percent; either number may be missing."""

    x: float
    here: float | None
    half_width: float
    paper: float | None


@dataclass(frozen=True)
class Curve:
    """A series of points, and the index of its colour and marker."""

    label: str
    points: Sequence[Point]
    index: int

    @property
    def here(self) -> NDArray[np.float64]:
        """Rows of x, value and half-width [n, 3] of what was measured."""
        rows = [(point.x, point.here, point.half_width) for point in self.points if point.here is not None]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    @property
    def paper(self) -> NDArray[np.float64]:
        """Rows of x and value [n, 2] of the paper."""
        rows = [(point.x, point.paper) for point in self.points if point.paper is not None]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)


def curves(axes: Any, series: Sequence[Curve], ticks: Sequence[tuple[float, str]], label: str, other: str = "") -> None:
    """Plot curves with confidence bands, and the paper's dashed below them.

    With `other`, the paper's curve comes from another bank; it has its own axis at the right, with the same span.
    """
    apart = bool(other) and any(len(c.here) for c in series) and any(len(c.paper) for c in series)
    theirs = axes.twinx() if apart else axes
    for curve in series:
        colour, marker = SERIES[curve.index % len(SERIES)], MARKERS[curve.index % len(MARKERS)]
        theirs.plot(
            *curve.paper.T,
            linestyle=PAPER_DASH,
            marker=marker,
            color=MUTED if apart else colour,
            alpha=_PAPER_ALPHA,
            linewidth=1.4,
            markersize=4.5,
            markerfacecolor="none",
            zorder=2,
        )
        x, value, half = curve.here.T
        axes.fill_between(x, value - half, value + half, color=colour, alpha=0.16, linewidth=0, zorder=3)
        axes.plot(x, value, marker=marker, color=colour, linewidth=2, markersize=5.5, zorder=4)
    axes.set_xticks([x for x, _ in ticks], [printable(text) for _, text in ticks])
    axes.set_xlabel(printable(label))
    axes.set_ylabel("accuracy here, %" if apart else "accuracy, %")
    if apart:
        theirs.set_ylabel(printable(f"paper, {other}, %"))
        _same_span(axes, theirs, series)
    for each in {axes, theirs}:
        each.tick_params(axis="both", length=0)
        each.spines[["left", "right"]].set_visible(False)
    axes.grid(axis="y")


def _same_span(axes: Any, theirs: Any, series: Sequence[Curve]) -> None:
    """Scale both axes equally, so that shapes can be compared."""
    here = np.concatenate([curve.here[:, 1] + side * curve.here[:, 2] for curve in series for side in (-1, 1)])
    paper = np.concatenate([curve.paper[:, 1] for curve in series])
    widest = 1.15 * max(np.ptp(here), np.ptp(paper), 0.5)
    for each, values in ((axes, here), (theirs, paper)):
        middle = (values.min() + values.max()) / 2
        each.set_ylim(middle - widest / 2, middle + widest / 2)


def curve_sign(index: int, paper: bool) -> Markup:
    """Return the line of a curve, with its marker, as a sign for the legend."""
    colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
    return line_mark(colour, marker, dash="5 3" if paper else "none", opacity=_PAPER_ALPHA if paper else 1)


def paper_sign() -> Markup:
    """Return a dashed line without a marker as a sign for the legend: whatever is the paper's."""
    return line_mark(MUTED, "", dash="5 3")


def cloud(axes: Any, points: Sequence[NDArray[np.float64]], labels: Sequence[str]) -> None:
    """Plot classes of points [n, 3] in perspective."""
    for i, mine in enumerate(points):
        colour, marker = SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]
        axes.scatter(*mine.T, color=colour, marker=marker, s=13, linewidths=0, alpha=0.75)
    axes.set_proj_type("persp", focal_length=0.6)
    axes.view_init(elev=22, azim=-58)
    axes.set_box_aspect(None, zoom=1.18)
    axes.set(xlabel=labels[0], ylabel=labels[1], zlabel=labels[2], xticklabels=[], yticklabels=[], zticklabels=[])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((0, 0, 0, 0))
        axis.line.set_color(LINE)
        axis.labelpad = -10


def bars(axes: Any, labels: Sequence[str], shares: Sequence[float], colours: Sequence[str]) -> None:
    """Plot percentages as horizontal bars, with their values."""
    height = np.arange(len(labels))[::-1]
    for y, share, colour in zip(height, shares, colours, strict=True):
        axes.barh(y, share, color=colour, height=0.6)
        axes.annotate(f"{share:.2f} %", (share, y), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(height, [printable(label) for label in labels], color=INK)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)


def intervals(axes: Any, rows: Sequence[Interval], label: str, write: Callable[[float], str], zero: bool) -> None:
    """Plot values with intervals, one per line, values at the right; diamonds are the marks."""
    height = np.arange(len(rows))[::-1]
    for y, row in zip(height, rows, strict=True):
        if row.mark is not None:
            axes.errorbar(row.mark, y - 0.22, xerr=row.mark_half_width, color=SERIES[1], linewidth=1.6)
            axes.plot(row.mark, y - 0.22, "D", color=SERIES[1], markersize=5, markerfacecolor=PAPER)
        axes.errorbar(row.value, y, xerr=row.half_width, color=SERIES[0], linewidth=2.2)
        axes.plot(row.value, y, "o", color=SERIES[0], markersize=6)
        axes.annotate(
            write(row.value), (1.02, y), xycoords=("axes fraction", "data"), va="center", annotation_clip=False
        )
    if zero:
        axes.axvline(0, color=MUTED, linewidth=1)
    axes.set_yticks(height, [printable(row.label) for row in rows], color=INK)
    axes.set_ylim(-0.7, len(rows) - 0.4)
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(label)


def distributions(
    axes: Any, samples: Sequence[NDArray[Any]], edges: NDArray[Any], label: str, count: str, colour: int = 0
) -> None:
    """Histograms of samples over the same edges."""
    histograms(axes, [np.histogram(sample, edges)[0] for sample in samples], edges, label, count, colour)


def histograms(
    axes: Any, bins: Sequence[NDArray[Any]], edges: NDArray[Any], label: str, count: str, colour: int = 0
) -> None:
    """Plot histograms over the same bins, in different colours and dashes."""
    for i, counts in enumerate(bins):
        paint = SERIES[(i + colour) % len(SERIES)]
        axes.stairs(counts, edges, color=paint, alpha=0.13, fill=True)
        axes.stairs(counts, edges, color=paint, linewidth=1.8, linestyle=DASHES[i % len(DASHES)])
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="x", pad=7)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(label)
    axes.set_ylabel(count)


def episode(axes: Any, points: Points, labels: Sequence[str]) -> None:
    """Plot an episode in the plane: supports as stars, rings around misclassified queries."""
    for c in range(int(points.of_support.max()) + 1):
        colour, marker = SERIES[c % len(SERIES)], MARKERS[c % len(MARKERS)]
        mine = points.query[points.of_query == c].T
        axes.plot(*mine, marker, color=colour, markersize=5.5, alpha=0.85, markeredgewidth=0)
        mine = points.support[points.of_support == c].T
        axes.plot(*mine, "*", color=colour, markersize=23, markeredgecolor=PAPER, markeredgewidth=1.2, zorder=4)
        axes.plot(*mine, marker, color=PAPER, markersize=5, markeredgewidth=0, zorder=5)
    missed = points.query[points.wrong].T
    axes.plot(*missed, "o", color=INK, markersize=10.5, markerfacecolor="none", markeredgewidth=1, zorder=3)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.06)
    axes.set(xticks=[], yticks=[], xlabel=labels[0], ylabel=labels[1])
    axes.spines[["top", "right"]].set_visible(True)
