"""Label curves as a table and panels: areas under the curves, and paired differences to two of the strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkshot.report.figures import charts
from sinkshot.report.figures.charts import Curve, Point
from sinkshot.report.figures.studies import Drawing
from sinkshot.report.figures.svg import Key, Panel, panel
from sinkshot.selection import DEFAULT
from sinkshot.studies.label_curves import difference, half_width

REFERENCE = "random"  # strategies are compared with it and with the default
PANELS = {"accuracy": "Accuracy", "macro_accuracy": "Macro accuracy", "found": "Classes found"}


@dataclass(frozen=True)
class StrategyRow:
    """One strategy in the table; areas and differences in percent."""

    name: str
    accuracy: float
    half_width: float
    macro_accuracy: float
    found: float
    strangers: float  # share of labels spent on rows of no class
    over_random: tuple[float, float] | None  # of the area under accuracy, with its 95 % half-width
    over_default: tuple[float, float] | None


def strategy_rows(facts: Mapping[str, Any]) -> list[StrategyRow]:
    """Return the strategies, the largest area under the accuracy first."""
    told = facts["strategies"]

    def area(name: str, metric: str) -> float:
        return 100 * float(np.mean(told[name][metric]["areas"]))

    def over(name: str, other: str) -> tuple[float, float] | None:
        if other not in told or name == other:
            return None
        mean, half = difference(told[name]["accuracy"]["areas"], told[other]["accuracy"]["areas"])
        return 100 * mean, 100 * half

    rows = [
        StrategyRow(
            name,
            area(name, "accuracy"),
            100 * float(half_width(np.asarray(told[name]["accuracy"]["areas"]))),
            area(name, "macro_accuracy"),
            area(name, "found"),
            area(name, "strangers"),
            over(name, REFERENCE),
            over(name, DEFAULT),
        )
        for name in told
    ]
    return sorted(rows, key=lambda row: -row.accuracy)


def draw_label_curves(name: str, label: str, facts: Mapping[str, Any]) -> Drawing:
    """Draw accuracy, macro accuracy and the classes found against the labels a class."""
    order = [row.name for row in strategy_rows(facts)]
    panels = tuple(_panel(f"{name}-{metric}", label, metric, facts, order) for metric in PANELS)
    return Drawing(panels, tuple(Key(charts.curve_sign(i, paper=False), strategy) for i, strategy in enumerate(order)))


def _panel(name: str, label: str, metric: str, facts: Mapping[str, Any], order: list[str]) -> Panel:
    series = []
    for index, strategy in enumerate(order):
        told = facts["strategies"][strategy][metric]
        points = zip(facts["labels"], told["mean"], told["half_width"], strict=True)
        series.append(Curve(strategy, [Point(x, 100 * y, 100 * half, None) for x, y, half in points], index))
    ends = "; ".join(f"{curve.label} {curve.here[1, 1]:.1f} to {curve.here[-1, 1]:.1f}" for curve in series)
    ticks = [(float(x), str(x)) for x in facts["labels"]]

    def paint(axes: Any) -> None:
        charts.curves(axes, series, ticks, "labels a class")
        axes.set_ylabel(f"{PANELS[metric].lower()}, %")
        axes.set_ylim(bottom=40)

    alt = f"{label}: {PANELS[metric].lower()} in percent against labels a class, from 1 to the last: {ends}."
    return panel(name, PANELS[metric], alt, paint, height=3.1)
