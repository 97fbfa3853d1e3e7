"""A report as Markdown: the same numbers as the page, as plain tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sinkshot.errors import printable
from sinkshot.report.page import DASH, count, number, percent, seconds, signed
from sinkshot.report.table_cells import MARGIN, TableCell, texts

if TYPE_CHECKING:
    from sinkshot.report.leaderboard import Board, Spot
    from sinkshot.report.pairs import Match
    from sinkshot.report.studies import Report, Section, SheetView
    from sinkshot.studies.run import RunResult

_SIGNS = {"level": "≈", "above": "▲", "below": "▼", "undecided": "?"}


def escape(text: str) -> str:
    r"""Escape plain text for Markdown, also within a table.

    >>> escape("BMS* | a_b")
    'BMS\\* \\| a\\_b'
    """
    return re.sub(r"([\\`*_\[\]<>|#~&$])", r"\\\1", printable(" ".join(text.split())))


def markdown_report(report: Report, outcome: RunResult) -> str:
    """Return the whole report; measured times are under its last heading."""
    parts = [
        f"# {escape(report.heading)}",
        *([] if report.boards else [_summary(report)]),
        *_claims(report),
        *(part for section in report.sections for part in _section(section)),
        *_meetings(report),
    ]
    if outcome.missing:
        parts += ["## What is missing", "\n".join(f"- {escape(sentence)}" for sentence in outcome.missing)]
    took = (outcome.finished - outcome.started).total_seconds()
    parts += ["## This run", f"```\n{outcome.command}\n```"] if outcome.command else ["## This run"]
    parts.append(f"{escape(outcome.machine)}. " + ", ".join(f"{k} {v}" for k, v in outcome.versions.items()) + ".")
    parts += ["## Time", f"Started {outcome.started:%Y-%m-%d %H:%M:%S %Z}, took {seconds(took)} seconds."]
    return "\n\n".join(parts) + "\n"


def _summary(report: Report) -> str:
    tally, verdicts = report.tally, report.verdicts
    measured = f"{len(report.measured)} of {len(report.cells)} cells are measured."
    claims = (
        f"{verdicts['holds']} claims hold, {verdicts['does not hold']} do not, {verdicts['undecided']} are undecided."
    )
    if not report.printed:
        known = [measured, claims] if report.told else [measured]
        return " ".join(known) + "\n\nNumbers are percent ± 95 % CI half-width."
    return (
        f"{measured} {tally.judged} can be compared with "
        f"the paper: {tally.level} agree, {tally.above} are above its value, {tally.below} below and "
        f"{tally.undecided} undecided. {claims}\n\n"
        "Numbers are percent ± 95 % CI half-width: **ours**, the paper's, and the difference. ≈ agrees: the "
        f"difference, with its interval, is within {MARGIN:g} percentage point. ▲ above, ▼ below: it is not, and the "
        "interval excludes zero. ? undecided: more episodes would tell."
    )


def _claims(report: Report) -> Iterator[str]:
    if report.told:
        rows = [
            [section.study.where, judgement.claim.text, judgement.sheet, judgement.verdict, judgement.evidence]
            for section, judgement in report.told
        ]
        yield f"## {report.claims_heading}"
        yield _table(["Where", "Claim", "On", "Verdict", "Evidence"], [map(escape, row) for row in rows], 5)


def _section(section: Section) -> Iterator[str]:
    study = section.study
    yield "## " + escape(": ".join(part for part in (study.where, study.title) if part))
    if study.about:
        yield escape(study.about)
    for shown in section.sheets:
        if not shown.measured:
            yield f"{escape(shown.sheet.label)}: not measured here."
        elif shown.board is not None:
            yield f"### {escape(shown.sheet.label)}"
            yield from _board(shown.board)
        elif shown.groups:
            yield f"### {escape(shown.sheet.label)}"
            yield _sheet(shown)
        elif study.kind == "gaussianity" and shown.facts is not None:
            yield f"### {escape(shown.sheet.label)}"
            yield _gaussianity(shown.facts)
        elif shown.strategies:
            yield f"### {escape(shown.sheet.label)}"
            yield _strategies(shown)
        else:
            yield f"{escape(shown.sheet.label)}: see the figure on the page."


def _sheet(shown: SheetView) -> str:
    sheet = shown.table
    columns = [" ".join(part for part in (column.group, column.label) if part) for column in sheet.columns]
    heads, rows = len(sheet.heads), []
    for group in shown.groups:
        if group.label:
            rows.append([f"*{escape(group.label)}*", *[""] * (heads - 1 + len(columns))])
        rows.extend([*map(escape, texts(row, heads)), *map(_place, line)] for row, line in group.rows)
    note = f"\n\nThe paper's values are for {escape(sheet.elsewhere)}, a different bank." if sheet.elsewhere else ""
    return _table([*map(escape, sheet.heads), *map(escape, columns)], rows, heads) + note


def _board(board: Board) -> Iterator[str]:
    """Yield the ranking, the difference to the reference method, and the methods that break."""
    heads = [" ".join(part for part in (column.group, column.label) if part) for column in board.sheet.columns]
    yield _table(["Method", *map(escape, heads)], [[escape(r.label), *map(_spot, r.spots)] for r in board.ranks])
    if board.against:
        yield f"Percent, and the difference to {escape(board.against)} on the same episodes."
    for part in board.broken:
        below = ", ".join(f"{escape(label)} ({signed(match.difference)})" for label, match in part.rows)
        yield f"{escape(f'{part.column.group} {part.column.label}')}, below {escape(board.floor)}: {below}."
    if board.fewer:
        yield "Fewer episodes: " + ", ".join(f"{escape(label)} {count(many)}" for label, many in board.fewer) + "."


def _spot(spot: Spot) -> str:
    apart = "" if spot.match is None else f" · {signed(spot.match.difference)} {_SIGNS[spot.match.standing]}"
    return _place(spot.place) + apart


def _place(place: TableCell) -> str:
    parts = []
    if place.here is not None:
        parts.append(f"**{number(place.here)}**" + ("" if place.pooled else f" ± {number(place.half_width)}"))
    if place.paper is not None:
        parts.append(f"paper {escape(place.paper.text)}")
    if place.difference is not None and place.standing is not None:
        parts.append(f"{signed(place.difference)} {_SIGNS[place.standing]}")
    return " · ".join(parts) or DASH


def _strategies(shown: SheetView) -> str:
    """Areas under label curves, and paired differences of the area under the accuracy."""
    heads = ["Strategy", "accuracy", "macro accuracy", "classes found", "labels of strangers"]
    rows = [
        [
            row.name,
            f"{row.accuracy:.2f} ± {row.half_width:.2f}",
            f"{row.macro_accuracy:.2f}",
            f"{row.found:.1f}",
            f"{row.strangers:.1f}",
            *(
                "" if apart is None else f"{apart[0]:+.2f} ± {apart[1]:.2f}"
                for apart in (row.over_random, row.over_default)
            ),
        ]
        for row in shown.strategies
    ]
    return _table([*heads, "over random", "over the default"], rows)


def _gaussianity(facts: Mapping[str, Any]) -> str:
    parts = (("raw", facts["before"]), (f"after {facts['chain']}", facts["after"]))
    rows = [
        [label, count(part["passed"]), count(facts["tests"]), f"{percent(part['rate'])} %", number(part["skewness"])]
        for label, part in parts
    ]
    told = " to ".join(dict.fromkeys(map(str, facts.get("rows", ()))))
    size = f"\n\n{facts['classes']} classes, {told} rows a class." if told else ""
    return _table(["Features", "pass", "of", "share", "mean skewness"], rows) + size


def _meetings(report: Report) -> Iterator[str]:
    if report.meetings:
        yield "## On the same episodes"
        yield (
            "Percentage points ± 95 % CI half-width, and the episodes won / tied / lost. The best setting of each "
            "method is compared with the best of all, its other settings with its best; best is the largest mean "
            "accuracy over its columns."
        )
    for meeting in report.meetings:
        yield f"### {escape(str(meeting.bank))}"
        heads = ["Setting", "Against", *map(escape, meeting.heads)]
        lines = [line for lines in meeting.methods for line in lines if line.against]
        yield _table(heads, [[str(line.setting), str(line.against), *map(_match, line.matches)] for line in lines], 2)


def _match(match: Match | None) -> str:
    if match is None:
        return DASH
    score = f"{count(match.wins)} / {count(match.ties)} / {count(match.losses)}"
    return f"{signed(match.difference)} ± {number(match.ci95)} {_SIGNS[match.standing]} · {score}"


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """Format a table; the first `words` columns are text, the others are numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
