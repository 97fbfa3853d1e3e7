"""Figures of confidence: a reliability diagram for each method, and risk against coverage of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkshot.calibration import BINS, Confidence
from sinkshot.report.figures.studies import Drawing
from sinkshot.report.figures.svg import DASHES, INK, MUTED, SERIES, Key, Panel, line_mark, line_sign, panel, printable
from sinkshot.studies.study import Cell, Sheet

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult

_ACROSS, _DOWN = 3, 3  # diagrams in a panel
_NAMED = ("sinkshot", "bms", "ncm")  # rows whose risk has a colour of its own, before those of least risk
_SEEN = 0.002  # share of the queries without which the accuracy of a bin says little
_POINTS = 200  # of a curve of risk: no eye sees more


@dataclass(frozen=True)
class _Line:
    label: str
    group: str
    confidence: Confidence


def calibration_drawing(name: str, sheet: Sheet, results: Mapping[Cell, StoredResult]) -> Drawing:
    """Draw the confidences of the rows of a sheet, each row by its first cell that has been measured."""
    lines = [line for row in sheet.rows if (line := _line(row.label, row.group, row.entries, results)) is not None]
    if not lines:
        return Drawing()
    panels: list[Panel] = []
    for group, members in groupby(lines, key=lambda line: line.group):
        ordered = sorted(members, key=lambda line: line.confidence.ece)
        parts = [ordered[i : i + _ACROSS * _DOWN] for i in range(0, len(ordered), _ACROSS * _DOWN)]
        for number, part in enumerate(parts, start=1):
            title = " ".join(filter(None, [group, f"({number} of {len(parts)})" if len(parts) > 1 else ""]))
            panels.append(_reliability(f"{name}-reliability-{len(panels)}", title or "Reliability", part))
    coloured = _coloured(lines)
    panels.append(_risks(f"{name}-risk", lines, coloured))
    keys = [Key(line_sign(i), line.label) for i, line in enumerate(coloured)]
    if len(coloured) < len(lines):
        keys.append(Key(line_mark(MUTED, ""), "the other methods"))
    return Drawing(tuple(panels), tuple(keys))


def _line(label: str, group: str, entries: Sequence[Any], results: Mapping[Cell, StoredResult]) -> _Line | None:
    cells = [entry.cell for entry in entries if entry.cell is not None and entry.cell in results]
    found = next((c for cell in cells if (c := results[cell].confidence) is not None), None)
    return None if found is None else _Line(label, group, found)


def _coloured(lines: Sequence[_Line]) -> list[_Line]:
    """Rows that are told apart by colour: those named above, then those with the least area under their risk."""
    named = [line for name in _NAMED for line in lines if line.label == name]
    others = sorted((line for line in lines if line not in named), key=lambda line: line.confidence.aurc)
    return [*named, *others][: len(SERIES)]


def _reliability(name: str, title: str, lines: Sequence[_Line]) -> Panel:
    told = "; ".join(f"{line.label} {100 * line.confidence.ece:.1f}" for line in lines)
    down = -(-len(lines) // _ACROSS)
    return panel(
        name,
        title,
        f"Reliability diagrams: accuracy against confidence. Expected calibration error in percent: {told}.",
        lambda axes: _diagrams(axes, lines, down),
        height=0.35 + 1.85 * down,
    )


def _diagrams(axes: Any, lines: Sequence[_Line], down: int) -> None:
    """Small diagrams side by side, the diagonal of perfect calibration in each."""
    axes.set_axis_off()
    for number, line in enumerate(lines):
        row, column = divmod(number, _ACROSS)
        left, bottom = (column + 0.12) / _ACROSS, 1 - (row + 0.86) / down
        small = axes.inset_axes((left, bottom, 0.8 / _ACROSS, 0.6 / down))
        found = line.confidence.reliability
        small.bar((np.arange(BINS) + 0.5) / BINS, found.share, width=1 / BINS, color=MUTED, alpha=0.25, linewidth=0)
        small.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)))
        seen = found.share >= _SEEN
        style = {"color": SERIES[0], "linewidth": 1.5, "marker": "o", "markersize": 3, "zorder": 3, "clip_on": False}
        small.plot(found.confidence[seen], found.accuracy[seen], **style)
        small.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        small.set_xticklabels(["0", ".5", "1"] if row == down - 1 or number + _ACROSS >= len(lines) else [])
        small.set_yticklabels(["0", ".5", "1"] if column == 0 else [])
        small.tick_params(length=0, labelsize=8.5)
        small.set_title(f"ECE {100 * line.confidence.ece:.1f}", fontsize=8.5, color=MUTED, loc="left", pad=3)
        small.text(0, 1.17, printable(line.label), fontsize=9.5, color=INK, transform=small.transAxes)


def _risks(name: str, lines: Sequence[_Line], coloured: Sequence[_Line]) -> Panel:
    told = "; ".join(f"{line.label} {100 * line.confidence.aurc:.2f}" for line in coloured)
    return panel(
        name,
        "Risk against coverage",
        "Share of errors among the most confident queries, against the share of queries answered. Area under the "
        f"curve in percent: {told}.",
        lambda axes: _curves(axes, lines, coloured),
        height=4.0,
    )


def _curves(axes: Any, lines: Sequence[_Line], coloured: Sequence[_Line]) -> None:
    highest = 0.0
    for line in [*(one for one in lines if one not in coloured), *reversed(coloured)]:
        coverage, risk = _thinned(*line.confidence.risk_coverage)
        if line in coloured:
            place = coloured.index(line)
            dash = DASHES[place % len(DASHES)]
            axes.plot(100 * coverage, 100 * risk, color=SERIES[place], linewidth=2, linestyle=dash, zorder=4)
        else:
            axes.plot(100 * coverage, 100 * risk, color=MUTED, linewidth=0.8, alpha=0.45, zorder=2)
        highest = max(highest, 100 * float(risk[coverage >= 0.05].max(initial=0.0)))
    axes.set(xlim=(0, 100), ylim=(0, 1.05 * max(highest, 1.0)))
    axes.set_xlabel("coverage: most confident queries, %")
    axes.set_ylabel("errors among them, %")
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="y")


def _thinned(coverage: Any, risk: Any) -> tuple[Any, Any]:
    """Keep points that are apart on the axis, the last among them."""
    kept = np.unique(np.searchsorted(coverage, np.linspace(coverage[0], 1, _POINTS)).clip(max=len(coverage) - 1))
    return coverage[kept], risk[kept]
