"""The page of `sinkshot demo`: measured accuracy beside the paper's, and figures that explain it."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import sinkshot
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.evaluate import Paired, Result, compare
from sinkshot.report.figures import charts, demo, svg
from sinkshot.report.page import signed, write_page
from sinkshot.report.table_cells import MARGIN, Standing, agreement, joint_half_width, standing


@dataclass(frozen=True)
class PaperValue:
    """Accuracy and 95 % CI half-width as a paper prints them, in percent."""

    accuracy: float
    ci95: float


@dataclass(frozen=True)
class DemoRow:
    """One method: its results at one and five shots, and the paper's."""

    label: str
    one: Result
    five: Result
    paper: tuple[PaperValue, PaperValue] | None = None

    @property
    def cells(self) -> tuple[DemoCell, DemoCell]:
        """Both results, each beside its value of the paper."""
        one, five = self.paper or (None, None)
        return DemoCell(self.one, one), DemoCell(self.five, five)

    @property
    def seconds(self) -> float:
        """Seconds for both."""
        return self.one.seconds["total"] + self.five.seconds["total"]


@dataclass(frozen=True)
class DemoCell:
    """A result and the paper's value for it."""

    result: Result
    paper: PaperValue | None

    @property
    def difference(self) -> float:
        """Difference to the paper, in percentage points."""
        return 0.0 if self.paper is None else 100 * self.result.accuracy - self.paper.accuracy

    @property
    def verdict(self) -> Standing:
        """How it agrees with the paper, as in a report of studies."""
        width = joint_half_width(100 * self.result.ci95, 0.0 if self.paper is None else self.paper.ci95)
        return agreement(self.difference, width)


def demo_page(
    bank: FeatureBank, results: Sequence[DemoRow], path: str | os.PathLike[str], command: str | None = None
) -> None:
    """Write the page.

    Parameters
    ----------
    bank : FeatureBank
        The one that was measured on.
    results : sequence of DemoRow
        In the order of the table; all on the same episodes. Differences are taken against the first whose method is
        `bms`, or else the last.
    path : path
        Where the page goes; it is one file that needs no other.
    command : str, optional
        What makes the page again; by default `sinkshot demo` with the episodes and the seed of the results.
    """
    if not results:
        raise InputError("the page needs results of at least one method; none were given.")
    bms = next((row for row in results if row.one.method == "bms"), results[-1])
    ncm = next((row for row in results if row.one.method == "ncm" and row.one.preprocess), results[0])
    recipe = bms.one.recipe
    judged = [cell for row in results for cell in row.cells if cell.paper]
    write_page(
        path,
        "demo.html.jinja",
        title=_title(bank),
        bank=bank,
        rows=results,
        bms=bms,
        ncm=ncm,
        best=[max(results, key=lambda row: row.cells[i].result.accuracy) for i in (0, 1)],
        judged=judged,
        stands=Counter(cell.verdict for cell in judged),
        margin=MARGIN,
        recipe=recipe,
        episodes=bms.one.episodes,
        seconds=sum(row.seconds for row in results),
        engines=", ".join(sorted({cell.result.engine for row in results for cell in row.cells})),
        accuracy=_accuracy(results),
        accuracy_key=_accuracy_key(),
        standing=standing,
        paired=[(row, _paired(row, bms)) for row in results if row is not bms],
        differences=_differences(results, bms),
        spread=demo.spread(ncm.one, bms.one, (ncm.label, bms.label)),
        power=demo.power(bank),
        example=demo.example(bank, bms.one, bms.label),
        versions={name: version(name) for name in ("numpy", "scipy", "matplotlib")},
        sinkshot=sinkshot.__version__,
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores",
        command=command or f"sinkshot demo --episodes {recipe.episodes} --seed {recipe.seed}",
    )


def _title(bank: FeatureBank) -> str:
    """Name a bank by its data set and backbone, if known."""
    known = [bank.meta[key] for key in ("data_set", "backbone") if bank.meta.get(key)]
    return ", ".join(known) or "a feature bank"


def _accuracy(rows: Sequence[DemoRow]) -> tuple[svg.Panel, ...]:
    """Accuracy by method, one panel for each number of shots."""

    def panel(i: int) -> svg.Panel:
        cells = [row.cells[i] for row in rows]
        lines = [
            charts.Interval(
                row.label,
                100 * cell.result.accuracy,
                100 * cell.result.ci95,
                cell.paper.accuracy if cell.paper else None,
                cell.paper.ci95 if cell.paper else 0.0,
            )
            for row, cell in zip(rows, cells, strict=True)
        ]
        told = [f"{line.label} {line.value:.2f}" + (f" (paper {line.mark})" if line.mark else "") for line in lines]
        shot = cells[0].result.recipe.shot
        return svg.panel(
            f"accuracy-{i}",
            f"{shot}-shot",
            f"{shot}-shot accuracy in percent: {'; '.join(told)}.",
            lambda axes: charts.intervals(axes, lines, "accuracy, %", lambda value: f"{value:.2f}", zero=False),
            height=_height(rows),
        )

    return panel(0), panel(1)


def _paired(row: DemoRow, reference: DemoRow) -> tuple[Paired, Paired]:
    names = row.label, reference.label
    return compare(row.one, reference.one, names), compare(row.five, reference.five, names)


def _differences(rows: Sequence[DemoRow], reference: DemoRow) -> tuple[svg.Panel, ...]:
    """Paired differences to one method, one panel for each number of shots."""
    others = [row for row in rows if row is not reference]

    def panel(i: int) -> svg.Panel:
        pairs = [_paired(row, reference)[i] for row in others]
        lines = [charts.Interval(pair.a, 100 * pair.difference, 100 * pair.ci95) for pair in pairs]
        told = [f"{line.label} {signed(line.value)} ± {line.half_width:.2f}" for line in lines]
        shot = reference.cells[i].result.recipe.shot
        return svg.panel(
            f"difference-{i}",
            f"{shot}-shot",
            f"{shot}-shot difference to {reference.label} in points: {'; '.join(told)}.",
            lambda axes: charts.intervals(axes, lines, f"points above {reference.label}", signed, zero=True),
            height=_height(others),
        )

    return (panel(0), panel(1)) if others else ()


def _height(rows: Sequence[Any]) -> float:
    return 0.75 + 0.42 * len(rows)


def _accuracy_key() -> tuple[svg.Key, svg.Key]:
    here = svg.marker_sign("o", svg.SERIES[0], 11)
    paper = svg.marker_sign("D", svg.SERIES[1], 8, hollow=True)
    return svg.Key(here, "here"), svg.Key(paper, "in the paper")
