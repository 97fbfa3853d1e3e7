"""Figures of studies: draw a sheet and its results as panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkshot.report.figures import charts
from sinkshot.report.figures.charts import Curve, Point
from sinkshot.report.figures.svg import MUTED, SERIES, Key, Panel, class_sign, line_sign, panel
from sinkshot.report.table_cells import TableCell, table_cells
from sinkshot.studies.study import Cell, Sheet, StudyKind

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult


@dataclass(frozen=True)
class Drawing:
    """Panels with one legend."""

    panels: tuple[Panel, ...] = ()
    key: tuple[Key, ...] = ()


def draw(
    name: str, kind: StudyKind, sheet: Sheet, results: Mapping[Cell, StoredResult], facts: Mapping[str, Any] | None
) -> Drawing:
    """Draw a sheet; `name` is unique on the page. Tables and unknown facts have no drawing."""
    if kind == "curve":
        return _curves(name, sheet, results)
    if kind == "distribution":
        return _distribution(name, sheet, facts)
    if kind == "projection" and facts is not None:
        return _projection(name, facts)
    if kind == "gaussianity" and facts is not None:
        return _gaussianity(name, facts)
    return Drawing()


def _curves(name: str, sheet: Sheet, results: Mapping[Cell, StoredResult]) -> Drawing:
    """Accuracy against x, the paper's under ours; of another bank, each series in a panel of its own."""
    series = [
        Curve(row.label, [_point(x, place) for x, place in zip(_xs(sheet), line, strict=True)], i)
        for i, (row, line) in enumerate(zip(sheet.rows, table_cells(sheet, results), strict=True))
    ]
    measured = [curve for curve in series if len(curve.here)]
    if sheet.elsewhere and measured:
        panels = [_panel(f"{name}-{curve.index}", curve.label, sheet, [curve]) for curve in measured]
    else:
        panels = [_panel(name, sheet.label, sheet, series)]
    return Drawing(tuple(panels), _key(series))


def _xs(sheet: Sheet) -> list[float]:
    return [float(i) if column.x is None else column.x for i, column in enumerate(sheet.columns)]


def _point(x: float, place: TableCell) -> Point:
    return Point(x, place.here, place.half_width, place.paper.mean if place.paper else None)


def _panel(name: str, title: str, sheet: Sheet, series: Sequence[Curve]) -> Panel:
    ticks = [(x, column.label) for x, column in zip(_xs(sheet), sheet.columns, strict=True) if column.label]
    return panel(
        name,
        title,
        f"{sheet.label}: accuracy in percent against {sheet.axis or 'x'}. {' '.join(_told(curve) for curve in series)}",
        lambda axes: charts.curves(axes, series, ticks, sheet.axis, sheet.elsewhere),
        height=3.1,
    )


def _told(curve: Curve) -> str:
    """A curve in words."""

    def points(rows: Any) -> str:
        return ", ".join(f"{row[0]:g}: {row[1]:.2f}" for row in rows)

    here, paper = points(curve.here), points(curve.paper)
    told = [f"here {here}" if here else "not measured here", f"in the paper {paper}" if paper else ""]
    return f"{curve.label}: {'; '.join(part for part in told if part)}."


def _key(series: Sequence[Curve]) -> tuple[Key, ...]:
    """One entry for each series as it was drawn here, and one for the paper's."""
    keys = [Key(charts.curve_sign(curve.index, paper=False), curve.label) for curve in series if len(curve.here)]
    only_paper = [curve for curve in series if not len(curve.here)]
    keys += [Key(charts.curve_sign(curve.index, paper=True), f"{curve.label}, paper") for curve in only_paper]
    if len(only_paper) < len(series):
        keys.append(Key(charts.paper_sign(), "the same in the paper"))
    return tuple(keys)


# --- facts about features -------------------------------------------------------------------------------------------

_SHOWN = 150  # points of a class: more would hide each other


def _distribution(name: str, sheet: Sheet, facts: Mapping[str, Any] | None) -> Drawing:
    """Histograms of one feature before and after, and the paper's under them."""
    panels, classes = [], []
    if facts is not None:
        classes = facts["classes"]
        for part, when in (("before", "raw"), ("after", f"after {facts['chain']}")):
            panels.append(_histograms(f"{name}-{part}", f"Feature {facts['feature']}, {when}", facts[part]))
    for part, when in (("before", "raw"), ("after", "after the power transform")):
        if part in sheet.paper:
            panels.append(_histograms(f"{name}-paper-{part}", f"In the paper, {when}", sheet.paper[part]))
            classes = classes or list(sheet.paper[part]["counts"])
    return Drawing(tuple(panels), tuple(Key(line_sign(i), label) for i, label in enumerate(classes)))


def _histograms(name: str, title: str, part: Mapping[str, Any]) -> Panel:
    start = np.asarray(part["x"], dtype=np.float64)
    edges = np.append(start, 2 * start[-1] - start[-2] if len(start) > 1 else start[-1] + part.get("width", 1))
    bins = [np.asarray(counts) for counts in part["counts"].values()]
    told = "; ".join(
        f"{label} has most rows at {start[np.argmax(counts)]:.2g}" for label, counts in part["counts"].items()
    )
    return panel(
        name,
        title,
        f"Histograms of one feature for {len(bins)} classes. {title}: {told}.",
        lambda axes: charts.histograms(axes, bins, edges, "value", "rows"),
        height=2.5,
    )


def _projection(name: str, facts: Mapping[str, Any]) -> Drawing:
    """Classes in space on the first three principal components, before and after."""
    titles = {"before": "Raw features", "after": f"After {facts['chain']}"}
    panels = [_cloud(f"{name}-{part}", titles[part], facts[part]) for part in titles]
    return Drawing(tuple(panels), tuple(Key(class_sign(i), label) for i, label in enumerate(facts["classes"])))


def _cloud(name: str, title: str, part: Mapping[str, Any]) -> Panel:
    points = [np.asarray(rows, dtype=np.float64) for rows in part["points"].values()]
    points = [rows[:: max(1, -(-len(rows) // _SHOWN))] for rows in points]
    labels = [f"{i}: {100 * share:.0f} %" for i, share in enumerate(part["variance"], start=1)]
    return panel(
        name,
        title,
        f"{title}: rows of {' and '.join(part['points'])} on their first three principal components, which hold "
        f"{', '.join(f'{100 * share:.0f} %' for share in part['variance'])} of the variance.",
        lambda axes: charts.cloud(axes, points, labels),
        height=3.7,
        projection="3d",
    )


def _gaussianity(name: str, facts: Mapping[str, Any]) -> Drawing:
    """The share of distributions that pass the test, before and after."""
    labels, shares = ["raw", f"after {facts['chain']}"], [100 * facts[part]["rate"] for part in ("before", "after")]
    told = "; ".join(f"{label} {share:.2f} percent" for label, share in zip(labels, shares, strict=True))
    title = "Share that passes"
    drawn = panel(
        name,
        title,
        f"Share of distributions that pass the test for a Gaussian: {told}.",
        lambda axes: charts.bars(axes, labels, shares, [MUTED, SERIES[0]]),
        height=1.5,
    )
    return Drawing((drawn,))
