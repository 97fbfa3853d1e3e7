"""Print leaderboards: methods ranked, with their time, and which of them are broken."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from sinkshot.cli._console import out
from sinkshot.report.leaderboard import Board, Broken, board
from sinkshot.studies.run import RunResult

_SIGNS = {"above": "+", "below": "-", "level": "="}


def boards(outcome: RunResult) -> list[tuple[str, Board]]:
    """Return the leaderboards with any result, and the names of their studies."""
    found = [
        (study.name, board(study, sheet, outcome.results))
        for study in outcome.studies
        if study.kind == "leaderboard"
        for sheet in study.sheets
    ]
    return [(name, one) for name, one in found if any(spot.episodes for rank in one.ranks for spot in rank.spots)]


def print_boards(outcome: RunResult) -> None:
    """Print every leaderboard: accuracy, comparison with the reference row (+, - or =), and time."""
    console = out()
    for name, one in boards(outcome):
        console.print(f"\n{name}; {one.sheet.label}", style="bold")
        if one.against:
            console.print(
                f"+ above {one.against} on the same episodes, - below, = not significant; ms: time per episode"
            )
        console.print(_table(one))
        for part in one.broken:
            console.print(broken_sentence(part, one.floor), soft_wrap=True)
        if one.fewer:
            console.print("fewer episodes: " + ", ".join(f"{label} {count:,}" for label, count in one.fewer))


def _table(one: Board) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    for column in one.sheet.columns:
        table.add_column(f"{column.group}\n{column.label}", justify="right", no_wrap=True)
        table.add_column("\nms", justify="right", no_wrap=True)
    for rank in one.ranks:
        cells = []
        for spot in rank.spots:
            if spot.place.here is None or spot.seconds is None:
                cells += ["", ""]
                continue
            sign = " " if spot.match is None else _SIGNS[spot.match.standing]
            interval = "" if spot.place.pooled else f" ± {spot.place.half_width:.2f}"
            cells += [f"{spot.place.here:.2f}{interval} {sign}", f"{1000 * spot.seconds:.3g}"]
        table.add_row(rank.label, *cells)
    return table


def broken_sentence(part: Broken, floor: str) -> str:
    """Name the transductive methods that are below the inductive baseline."""
    rows = ", ".join(f"{label} ({apart.difference:+.2f})" for label, apart in part.rows)
    return f"{part.column.group} {part.column.label}, below {floor}: {rows}"


def broken(outcome: RunResult) -> list[dict[str, Any]]:
    """Return the broken methods as `--json` prints them; differences as fractions."""
    return [
        {
            "study": name,
            "sheet": one.sheet.label,
            "column": f"{part.column.group} {part.column.label}".strip(),
            "row": label,
            "below": one.floor,
            "difference": apart.difference / 100,
            "ci95": apart.ci95 / 100,
        }
        for name, one in boards(outcome)
        for part in one.broken
        for label, apart in part.rows
    ]
