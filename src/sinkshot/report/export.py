"""All cells of all studies as one flat table: CSV, and Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from sinkshot.episodes import Recipe
from sinkshot.errors import printable
from sinkshot.files import replacing
from sinkshot.report.pairs import Match, Meeting, holm_of_meeting
from sinkshot.report.table_cells import TableCell, table_cells
from sinkshot.studies.compare import Number, holm, p_value
from sinkshot.studies.study import Cell, Column, Row, Sheet, Study

if TYPE_CHECKING:
    from sinkshot.report.leaderboard import Board
    from sinkshot.studies.run import StoredResult

PARQUET_NEEDS = "it needs pyarrow: pip install 'sinkshot[parquet]'."


@dataclass(frozen=True)
class Record:
    """One table cell of one study. Values are in percent; unknown values are empty."""

    study: str
    where: str
    sheet: str
    group: str
    row: str
    details: str
    column_group: str
    column: str
    x: float | None
    metric: str
    here: float | None
    here_ci95: float | None
    paper: float | None
    paper_ci95: float | None
    paper_text: str | None
    paper_elsewhere: str | None  # the bank of the paper's value, if it is a different one
    difference: float | None
    standing: str | None
    data_set: str | None = None
    backbones: str | None = None
    split: str | None = None
    trained_on: str | None = None
    coordinates: int | None = None
    selections: int | None = None
    protocol: str | None = None
    alpha: float | None = None  # of `dirichlet`
    ratio: float | None = None  # of `long-tail`
    way: int | None = None
    shot: int | None = None
    query: int | None = None
    episodes: int | None = None
    seed: int | None = None
    method: str | None = None
    preprocess: str | None = None
    hyper: str | None = None  # JSON
    engine: str | None = None
    bank_hash: str | None = None
    version: str | None = None
    libraries: str | None = None
    hardware: str | None = None
    seconds: float | None = None
    finished: str | None = None


def flat(studies: Iterable[Study], results: Mapping[Cell, StoredResult]) -> list[Record]:
    """Return one record per table cell, in the order of the studies."""
    return [
        _record(study, sheet, row, column, place, results)
        for study in studies
        for sheet in study.sheets
        for row, line in zip(sheet.rows, table_cells(sheet, results), strict=True)
        for column, place in zip(sheet.columns, line, strict=True)
    ]


def _record(
    study: Study, sheet: Sheet, row: Row, column: Column, place: TableCell, results: Mapping[Cell, StoredResult]
) -> Record:
    paper, cell = place.paper, place.entry.cell
    return Record(
        study=study.name,
        where=study.where,
        sheet=sheet.label,
        group=row.group,
        row=row.label,
        details=", ".join(row.details),
        column_group=column.group,
        column=column.label,
        x=column.x,
        metric=place.entry.metric,
        here=place.here,
        here_ci95=None if place.here is None or place.single else place.half_width,
        paper=paper.mean if paper else None,
        paper_ci95=paper.ci95 if paper else None,
        paper_text=paper.text if paper else None,
        paper_elsewhere=sheet.elsewhere or None if paper else None,
        difference=place.difference,
        standing=place.standing,
        **({} if cell is None else _settings(cell) | _measured(results.get(cell))),
    )


def _settings(cell: Cell) -> dict[str, Any]:
    bank, recipe = cell.bank, cell.recipe
    return {
        **{name: getattr(bank, name) for name in ("data_set", "split", "trained_on", "coordinates", "selections")},
        **{name: getattr(recipe, name) for name in ("protocol", "way", "shot", "query", "episodes", "seed")},
        **_query_sizes(recipe),
        "backbones": "+".join(bank.backbones),
        "method": cell.method,
        "preprocess": cell.preprocess,
        "hyper": json.dumps(dict(cell.hyper), default=str),
    }


def _query_sizes(recipe: Recipe) -> dict[str, float | None]:
    """Return the parameters of query sizes, None where the protocol does not use them."""
    return {
        "alpha": recipe.alpha if recipe.protocol == "dirichlet" else None,
        "ratio": recipe.ratio if recipe.protocol == "long-tail" else None,
    }


def _measured(stored: StoredResult | None) -> dict[str, Any]:
    if stored is None:
        return {}
    return {
        **{name: getattr(stored, name) for name in ("engine", "bank_hash", "version", "hardware", "finished")},
        "preprocess": stored.preprocess,
        "episodes": stored.episodes,
        "hyper": json.dumps(stored.hyper, sort_keys=True, default=str),
        "libraries": ", ".join(f"{name} {number}" for name, number in stored.versions.items()),
        "seconds": stored.seconds.get("total"),
    }


@dataclass(frozen=True)
class DifferenceRecord:
    """One paired difference on the same episodes, in percentage points."""

    bank: str
    setting: str
    against: str
    protocol: str
    alpha: float | None  # of `dirichlet`
    ratio: float | None  # of `long-tail`
    way: int
    shot: int
    query: int
    seed: int
    episodes: int
    difference: float
    ci95: float
    wins: int
    ties: int
    losses: int
    p_holm: float  # adjusted for all comparisons on this bank and recipe


def differences(found: Iterable[Meeting]) -> list[DifferenceRecord]:
    """Return one record per comparison and recipe."""
    records = []
    for meeting in found:
        adjusted = holm_of_meeting(meeting)
        for line in (line for lines in meeting.methods for line in lines if line.against):
            for recipe, match in zip(meeting.recipes, line.matches, strict=True):
                if match is not None:
                    names = str(meeting.bank), str(line.setting), str(line.against)
                    records.append(_difference(names, recipe, match, adjusted[id(match)]))
    return records


def board_differences(boards: Iterable[Board]) -> list[DifferenceRecord]:
    """Return one record per method and accuracy column of leaderboards: its difference to the reference row."""
    records = []
    for shown in boards:
        for column in zip(*(rank.spots for rank in shown.ranks), strict=True):
            found = [(spot.place.entry.cell, spot.match) for spot in column if spot.place.entry.metric == "accuracy"]
            compared = [(cell, match) for cell, match in found if cell is not None and match is not None]
            adjusted = holm([p_value(Number(match.difference, match.ci95)) or 0.0 for _, match in compared])
            for (cell, match), p_holm in zip(compared, adjusted, strict=True):
                names = str(cell.bank), cell.method, shown.against
                records.append(_difference(names, cell.recipe, match, p_holm))
    return records


def _difference(names: tuple[str, str, str], recipe: Recipe, match: Match, p_holm: float) -> DifferenceRecord:
    bank, setting, against = names
    return DifferenceRecord(
        bank=bank,
        setting=setting,
        against=against,
        protocol=recipe.protocol,
        **_query_sizes(recipe),
        way=recipe.way,
        shot=recipe.shot,
        query=recipe.query,
        seed=recipe.seed,
        episodes=match.wins + match.ties + match.losses,
        difference=match.difference,
        ci95=match.ci95,
        wins=match.wins,
        ties=match.ties,
        losses=match.losses,
        p_holm=p_holm,
    )


def write_csv(path: str | os.PathLike[str], records: Iterable[Record | DifferenceRecord], kind: type = Record) -> None:
    """Write records of one kind as CSV in UTF-8."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in asdict(record).items()} for record in records)


def parquet_is_possible() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Write records as Parquet; needs pyarrow."""
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64()}
    kinds = {name: (get_args(kind) or (kind,))[0] for name, kind in get_type_hints(Record).items()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    rows = [{name: _text(value) for name, value in asdict(record).items()} for record in records]
    with replacing(path) as temporary, temporary.open("wb") as file:  # pyarrow takes names in UTF-8 alone
        parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), file)


def _text(value: Any) -> Any:
    """Replace what never was text, such as bytes of a file name, and escape control characters."""
    return printable(value.encode("utf-8", errors="replace").decode()) if isinstance(value, str) else value
