"""Print what strategies of what to label next reached."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from sinkshot.cli._console import out
from sinkshot.report.label_curves import strategy_rows
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import Sheet, Study


def measured_curves(outcome: RunResult) -> Iterator[tuple[Study, Sheet]]:
    """Yield the sheets of label curves that were measured."""
    for study in outcome.studies if outcome.facts else ():
        for sheet in study.sheets if study.kind == "label-curves" else ():
            if sheet.measure in outcome.facts:
                yield study, sheet


def print_label_curves(outcome: RunResult) -> None:
    """Print the areas under the curves of every sheet, the largest first."""
    console = out()
    for study, sheet in measured_curves(outcome):
        if sheet.measure is None:
            continue
        facts = outcome.facts[sheet.measure]
        console.print(f"\n{study.title}; {sheet.label}; areas under the curves, {facts['draws']} draws", style="bold")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for head in ("strategy", "accuracy", "macro accuracy", "classes found", "over random"):
            table.add_column(head, justify="left" if head == "strategy" else "right")
        for row in strategy_rows(facts):
            apart = "" if row.over_random is None else f"{row.over_random[0]:+.2f} ± {row.over_random[1]:.2f}"
            own = f"{row.accuracy:.2f} ± {row.half_width:.2f}"
            table.add_row(row.name, own, f"{row.macro_accuracy:.2f}", f"{row.found:.1f}", apart)
        console.print(table)
