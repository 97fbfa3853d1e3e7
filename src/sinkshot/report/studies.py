"""The report of a run of studies: one page, and the same numbers as Markdown, LaTeX, CSV and Parquet."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sinkshot
from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.methods import references
from sinkshot.report import export
from sinkshot.report.figures.calibration import calibration_drawing
from sinkshot.report.figures.studies import Drawing, draw
from sinkshot.report.label_curves import StrategyRow, draw_label_curves, strategy_rows
from sinkshot.report.latex import cite_keys, latex_differences, latex_tables
from sinkshot.report.leaderboard import Board, board, drawing
from sinkshot.report.markdown import markdown_report
from sinkshot.report.page import DASH, percent, write_page
from sinkshot.report.pairs import Meeting, meetings
from sinkshot.report.table_cells import MARGIN, TableCell, Tally, table_cells, tally, transposed
from sinkshot.studies import parse
from sinkshot.studies.claims import Judgement
from sinkshot.studies.study import Cell, Row, Sheet, Study

if TYPE_CHECKING:
    from sinkshot.studies.run import RunResult, StoredResult


@dataclass(frozen=True)
class Written:
    """The files of a report, the page first, and notes about them."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def write_report(folder: str | os.PathLike[str], outcome: RunResult) -> Written:
    """Write a report into a folder, which is created if needed; each file is written atomically.

    `index.html`, `report.md`, `tables.tex`, `references.bib`, `cells.csv`, `differences.csv`, and `cells.parquet` where
    pyarrow is installed. The same outcome gives the same bytes. What a clock measured stands within `<time>` on the
    page, under the last heading of `report.md`, and in the columns `seconds` and `finished` of the cells.
    """
    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {home}: {error.strerror or error}.") from error
    report = gather(outcome)
    names = ("index.html", "report.md", "tables.tex", "references.bib", "cells.csv", "differences.csv", "cells.parquet")
    page, text, latex, works, flat, apart, parquet = (home / name for name in names)
    shown = {"sinkshot": sinkshot.__version__, "report": report, "outcome": outcome, "maker": maker, "margin": MARGIN}
    write_page(page, "studies.html.jinja", **shown)
    _write(text, markdown_report(report, outcome))
    tables = latex_tables(outcome.studies, outcome.results)
    _write(latex, "\n".join(filter(None, [tables, latex_differences(report.meetings)])))
    _write(works, references.bibliography(key for study in outcome.studies for key in _works(study)))
    boards = [shown.board for section in report.sections for shown in section.sheets if shown.board is not None]
    pairs = [*export.differences(report.meetings), *export.board_differences(boards)]
    export.write_csv(apart, pairs, export.DifferenceRecord)
    records = export.flat(outcome.studies, outcome.results)
    export.write_csv(flat, records)
    files = page, text, latex, works, flat, apart
    if export.parquet_is_possible():
        export.write_parquet(parquet, records)
        return Written((*files, parquet))
    parquet.unlink(missing_ok=True)  # one of an earlier run would hold other numbers than the rest
    return Written(files, (f"{parquet.name} was not written: {export.PARQUET_NEEDS}",))


def _works(study: Study) -> set[str]:
    """Return the BibTeX keys of all rows of a study."""
    return {key for sheet in study.sheets for row in sheet.rows for key in cite_keys(row)}


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", errors="replace"))


# --- what a report holds --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Rows of a table under one heading."""

    label: str
    rows: tuple[tuple[Row, tuple[TableCell, ...]], ...]


@dataclass(frozen=True)
class SheetView:
    """A sheet with its numbers and figures."""

    sheet: Sheet
    table: Sheet  # the same; of a figure, with its x axis downwards
    anchor: str
    groups: tuple[Group, ...]
    drawing: Drawing
    facts: Mapping[str, Any] | None = None
    board: Board | None = None  # of a leaderboard

    @property
    def table_cells(self) -> list[TableCell]:
        """All table cells."""
        return [place for group in self.groups for _, line in group.rows for place in line]

    @property
    def strategies(self) -> list[StrategyRow]:
        """Strategies of what to label next, if the facts are label curves."""
        return strategy_rows(self.facts) if self.facts is not None and "strategies" in self.facts else []

    @property
    def measured(self) -> bool:
        """Whether at least one number or fact is known."""
        return self.facts is not None or any(place.here is not None for place in self.table_cells)

    @property
    def printed(self) -> bool:
        """Whether the paper has at least one number or fact."""
        return bool(self.sheet.paper) or any(place.paper is not None for place in self.table_cells)

    def paper_share(self, part: str) -> str:
        """Return the share of tests for a Gaussian that pass in the paper, `before` or `after`, as far as it says."""
        said, tests = self.sheet.paper.get(part, {}), self.sheet.paper.get("tests")
        if "passed" in said and tests:
            return f"{percent(said['passed'] / tests)} %"
        return f"above {percent(said['rate_above'], 0)} %" if "rate_above" in said else DASH

    @property
    def headings(self) -> list[tuple[str, int]]:
        """Groups of adjacent columns, with their widths; empty if there are no groups."""
        groups = [(label, len(list(of))) for label, of in groupby(column.group for column in self.table.columns)]
        return groups if any(label for label, _ in groups) else []


@dataclass(frozen=True)
class Section:
    """A study with everything that is known about it."""

    study: Study
    anchor: str
    sheets: tuple[SheetView, ...]
    judgements: tuple[Judgement, ...]
    tally: Tally

    @property
    def measured(self) -> bool:
        """Whether at least one number or fact is known."""
        return any(shown.measured for shown in self.sheets)

    @property
    def told(self) -> list[Judgement]:
        """Judgements of sheets on which something was measured."""
        known = {shown.sheet.label for shown in self.sheets if shown.measured}
        return [judgement for judgement in self.judgements if judgement.sheet in known]


@dataclass(frozen=True)
class Maker:
    """Libraries and hardware that cells were measured with."""

    libraries: tuple[tuple[str, str], ...]
    hardware: str


def maker(stored: StoredResult) -> Maker:
    """Return libraries and hardware of a cell."""
    return Maker(tuple(stored.versions.items()), stored.hardware)


@dataclass(frozen=True)
class Report:
    """The content of the page and the Markdown, in the paper's order."""

    sections: tuple[Section, ...]
    tally: Tally
    cells: tuple[Cell, ...]  # every cell once
    measured: tuple[Cell, ...]
    meetings: tuple[Meeting, ...]
    makers: tuple[Maker, ...]
    of_paper: bool  # among the studies are those that come with the package
    bms_seconds: float | None = None  # of one 5-way episode with BMS or BMS*, on average

    @property
    def boards(self) -> bool:
        """Whether it is about our own comparisons alone, in which no paper has a word."""
        kinds = {section.study.kind for section in self.sections}
        return bool(kinds) and kinds <= {"leaderboard", "calibration", "label-curves"}

    @property
    def printed(self) -> bool:
        """Whether a study has values of a paper, or is one of the paper's."""
        return self.of_paper or any(shown.printed for section in self.sections for shown in section.sheets)

    @property
    def heading(self) -> str:
        """The title of the page: the study's own, if there is one study without values of a paper."""
        if self.boards:
            return "Methods on the same episodes"
        if self.printed:
            return "Measured here, beside the paper"
        return self.sections[0].study.title if len(self.sections) == 1 else "Measured here"

    @property
    def claims_heading(self) -> str:
        """The title over the claims of all studies."""
        return "What the paper claims" if self.of_paper else "Claims"

    @property
    def told(self) -> list[tuple[Section, Judgement]]:
        """Judgements of sheets on which something was measured."""
        return [(section, judgement) for section in self.sections for judgement in section.told]

    @property
    def untold(self) -> int:
        """Judgements of sheets on which nothing was measured."""
        return sum(len(section.judgements) for section in self.sections) - len(self.told)

    @property
    def verdicts(self) -> Counter[str]:
        """The number of judgements by verdict."""
        return Counter(judgement.verdict for _, judgement in self.told)


def gather(outcome: RunResult) -> Report:
    """Combine the measured numbers with the paper's."""
    names = _anchors([study.name for study in outcome.studies])
    sections = tuple(
        _section(study, name, judgements, outcome)
        for study, name, judgements in zip(outcome.studies, names, outcome.judgements, strict=True)
    )
    wanted = tuple(dict.fromkeys(cell for study in outcome.studies for cell in study.cells()))
    return Report(
        sections=sections,
        tally=tally(place for section in sections for shown in section.sheets for place in shown.table_cells),
        cells=wanted,
        measured=tuple(cell for cell in wanted if cell in outcome.results),
        meetings=tuple(meetings(outcome.studies, outcome.results)),
        makers=tuple(dict.fromkeys(maker(stored) for stored in outcome.results.values())),
        of_paper=any(study.name in parse.names() for study in outcome.studies),
        bms_seconds=_bms_seconds(outcome),
    )


def _bms_seconds(outcome: RunResult) -> float | None:
    """Seconds of one 5-way episode of BMS and BMS*, on average over the measured cells; None if there are none."""
    known = [
        stored
        for stored in outcome.results.values()
        if stored.method in ("bms", "bms-star") and stored.recipe.way == 5 and stored.recipe.protocol == "balanced"
    ]
    total = sum(stored.episodes for stored in known)
    return sum(stored.seconds["total"] for stored in known) / total if total else None


def _section(study: Study, anchor: str, judgements: tuple[Judgement, ...], outcome: RunResult) -> Section:
    shown = tuple(_shown(study, sheet, f"{anchor}--{i}", outcome) for i, sheet in enumerate(study.sheets, start=1))
    return Section(
        study=study,
        anchor=anchor,
        sheets=shown,
        judgements=judgements,
        tally=tally(place for sheet in shown for place in sheet.table_cells),
    )


def _shown(study: Study, sheet: Sheet, anchor: str, outcome: RunResult) -> SheetView:
    table = transposed(sheet) if study.kind == "curve" else sheet
    filled = zip(table.rows, map(tuple, table_cells(table, outcome.results)), strict=True)
    groups = tuple(Group(label, tuple(rows)) for label, rows in groupby(filled, key=lambda pair: pair[0].group))
    facts = None if sheet.measure is None else outcome.facts.get(sheet.measure)
    if facts is not None and facts.get("tests") == 0:  # no class was large enough to test
        facts = None
    if study.kind == "leaderboard":
        ranked = board(study, sheet, outcome.results)
        return SheetView(sheet, table, anchor, groups, drawing(anchor, ranked), board=ranked)
    if study.kind == "calibration":
        return SheetView(sheet, table, anchor, groups, calibration_drawing(anchor, sheet, outcome.results))
    shown = SheetView(sheet, table, anchor, groups, Drawing(()), facts)
    if not shown.measured and not shown.printed:
        return shown
    if study.kind == "label-curves" and facts is not None:
        return replace(shown, drawing=draw_label_curves(anchor, sheet.label, facts))
    return replace(shown, drawing=draw(anchor, study.kind, sheet, outcome.results, facts))


_TAKEN = ("main", "contents", "claims", "same-episodes", "missing", "cells", "run")  # anchors of the page itself


def _anchors(names: Sequence[str]) -> list[str]:
    """Return a unique anchor for each study."""
    taken, anchors = set(_TAKEN), []
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "study"
        anchor, number = plain, 2
        while anchor in taken:
            anchor, number = f"{plain}-{number}", number + 1
        taken.add(anchor)
        anchors.append(anchor)
    return anchors
