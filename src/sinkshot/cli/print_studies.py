"""Print studies: the list of them, their numbers, which claims hold and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from sinkshot.calibration import POOLED
from sinkshot.cli._console import out, percent
from sinkshot.cli.print_label_curves import measured_curves
from sinkshot.cli.print_leaderboards import broken
from sinkshot.evaluate import half_width
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.coverage import summary
from sinkshot.studies.resolve import without_selection
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import BankKey, Entry, Row, Sheet, Study, Value

_SIGNS = {"holds": "yes", "does not hold": "no", "undecided": "undecided"}
_HELD = {"holds": True, "does not hold": False, "undecided": None}
_VERDICTS = {"undecided": "cannot be told"}  # as older JSON has it


# --- the list of studies --------------------------------------------------------------------------------------------


def listed(studies: Sequence[Study], catalogue: Catalogue) -> dict[str, Any]:
    """Return what `--list` prints: studies, how many of their cells can be measured, and the banks."""
    return {
        "studies": [
            {
                "name": study.name,
                "where": study.where,
                "title": study.title,
                "cells": len(study.cells()) + len(study.measures()),
                "possible": sum(not isinstance(catalogue.files(key), Missing) for key in _keys(study)),
                "missing": _missing_files([study], catalogue),
            }
            for study in studies
        ],
        "coverage": summary(studies, catalogue),
        "banks": {str(key): str(catalogue.find(key)) for key in catalogue.present()},
    }


def print_list(studies: Sequence[Study], catalogue: Catalogue) -> None:
    """Print the studies, how much of each can be measured, and what the rest needs."""
    told = listed(studies, catalogue)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("study", "", "title", "cells", "missing feature files"):
        table.add_column(title, justify="right" if title == "cells" else "left", no_wrap=title in ("study", ""))
    for study in told["studies"]:
        possible = f"{study['possible']} of {study['cells']}"
        table.add_row(study["name"], study["where"], study["title"], possible, ", ".join(study["missing"]))
    out().print(table)
    values = told["coverage"]
    if values["values"]:
        out().print(
            f"\nOf {values['values']} values in a paper's tables and curves, {values['with_method']} have a method: "
            f"{values['same']} can be measured on the same data set and backbone, {values['same_head']} more there by "
            f"a head on our features, {values['stand_in']} on another bank, {values['head']} there by such a head, and "
            f"{values['no_features']} lack features. "
            f"{values['no_method']} have no method. --json gives the reasons.",
        )
    out().print("\nBanks found:")
    for name, file in told["banks"].items():
        out().print(f"  {name}: {file}", soft_wrap=True)


def _keys(study: Study) -> list[BankKey]:
    """Return the bank of every cell and measure of a study."""
    banks = [cell.bank for cell in study.cells()] + [measure.bank for measure in study.measures()]
    return [without_selection(key) for key in banks]


def _missing_files(studies: Sequence[Study], catalogue: Catalogue) -> list[str]:
    found = [catalogue.files(key) for key in dict.fromkeys(key for study in studies for key in _keys(study))]
    return list(dict.fromkeys(name for missing in found if isinstance(missing, Missing) for name in missing.names))


# --- results ---------------------------------------------------------------------------------------------------


def _of_a_paper(study: Study) -> bool:
    """Whether a study has values of a paper."""
    return any(entry.paper is not None for sheet in study.sheets for row in sheet.rows for entry in row.entries)


def print_tables(outcome: RunResult) -> None:
    """Print the measured numbers of every sheet, with the paper's in brackets if it is for the same bank."""
    console = out()
    console.print(
        "In percent ± 95 % CI half-width, accuracy unless a table names another metric"
        + ("; a paper's values in brackets." if any(map(_of_a_paper, outcome.studies)) else ".")
    )
    for study in outcome.studies:
        for sheet in study.sheets if study.kind != "leaderboard" else ():
            rows = [row for row in sheet.rows if any(_measured(entry, outcome) for entry in row.entries)]
            if rows:
                console.print(f"\n{study.where or study.name}: {study.title}; {sheet.label}", style="bold")
                console.print(_table(sheet, rows, outcome))


def _table(sheet: Sheet, rows: Sequence[Row], outcome: RunResult) -> Table:
    used = [
        number for number in range(len(sheet.columns)) if any(_measured(row.entries[number], outcome) for row in rows)
    ]
    table = Table(box=None, padding=(0, 2, 0, 0))
    heads = [sheet.axis] if sheet.axis else list(sheet.heads)
    for head in heads:
        table.add_column(head, no_wrap=True)
    for number in used:
        column = sheet.columns[number]
        table.add_column(f"{column.group}\n{column.label}" if column.group else column.label, justify="right")
    brief = len(used) > 6
    for row in rows:
        words = [f"{row.group}: {row.title}" if row.group else row.title, *row.details]
        words = [*words, *[""] * len(heads)][: len(heads)]
        table.add_row(*words, *(_place(row.entries[number], sheet, outcome, brief) for number in used))
    return table


def _measured(entry: Entry, outcome: RunResult) -> bool:
    return entry.cell is not None and entry.cell in outcome.results


def _place(entry: Entry, sheet: Sheet, outcome: RunResult, brief: bool) -> str:
    number = _number(entry, outcome)
    if number is None:
        return ""
    text = percent(number[0], None if brief else number[1])
    paper = entry.paper is not None and not sheet.elsewhere and not brief
    return f"{text} ({entry.paper.mean:.2f})" if paper and entry.paper is not None else text


def _number(entry: Entry, outcome: RunResult) -> tuple[float, float | None] | None:
    """Return mean and half-width of an entry, by its metric; one of all queries together has no half-width."""
    stored = None if entry.cell is None else outcome.results.get(entry.cell)
    if stored is not None and entry.metric in POOLED:
        return None if (value := stored.pooled(entry.metric)) is None else (value, None)
    values = None if stored is None else stored.values(entry.metric)
    return None if values is None else (float(values.mean()), half_width(values))


def print_claims(outcome: RunResult) -> None:
    """Print which claims of the studies hold, as far as they could be measured."""
    judgements = list(outcome.judged())
    if not judgements:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "claim", "on"):
        table.add_column(title, no_wrap=not title)
    for study, one in judgements:
        table.add_row(_SIGNS[one.verdict], f"{study.where or study.name}: {one.claim.text}", one.sheet)
    out().print("\nDo the claims hold here? (The report has the evidence.)", style="bold")
    out().print(table)


def print_missing(outcome: RunResult, catalogue: Catalogue) -> None:
    """Print what could not be measured, and what to do about it."""
    files = _missing_files(outcome.studies, catalogue)
    console = out()
    if files:
        wanting = "a feature file is" if len(files) == 1 else f"{len(files)} feature files are"
        console.print(f"\nNot measured: {wanting} missing: {', '.join(files)}")
        them = "it" if len(files) == 1 else "them"
        console.print(f"Put {them} into a folder as .safetensors, .npz or .plk, and give it with --banks DIR.")
    keys = dict.fromkeys(key for study in outcome.studies for key in _keys(study))
    lacking = [found for found in map(catalogue.files, keys) if isinstance(found, Missing)]
    for file in dict.fromkeys(file for missing in lacking for file in missing.gone):
        console.print(f"A banks.toml names {file}, which does not exist.", soft_wrap=True)
    about_files = set(map(str, lacking))
    for sentence in outcome.missing:
        if sentence not in about_files:
            console.print(sentence, soft_wrap=True)
    console.print()


def _printed(value: Value) -> dict[str, Any]:
    """Return a value as the paper prints it, and as fractions like all numbers of the object."""
    shares = (None if part is None else part / 100 for part in (value.mean, value.ci95))
    return {"text": value.text, **dict(zip(("mean", "ci95"), shares, strict=True))}


def answer(outcome: RunResult, page: Path) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    places = []
    for study in outcome.studies:
        for sheet in study.sheets:
            for row in sheet.rows:
                for column, entry in zip(sheet.columns, row.entries, strict=True):
                    number = _number(entry, outcome)
                    if number is None or entry.cell is None:
                        continue
                    stored = outcome.results[entry.cell]
                    where: dict[str, Any] = {
                        "study": study.name,
                        "sheet": sheet.label,
                        "group": row.group,
                        "row": row.label,
                    }
                    where |= {"details": list(row.details), "column_group": column.group, "column": column.label}
                    what = {"bank": str(stored.bank), **stored.to_dict(), "hyper": stored.hyper}
                    value = {"metric": entry.metric, "mean": number[0], "half_width": number[1]}
                    paper = None if entry.paper is None else _printed(entry.paper)
                    places.append({**where, **value, "paper": paper, "elsewhere": sheet.elsewhere, "result": what})
    claims = [
        {
            "study": study.name,
            "claim": one.claim.text,
            "sheet": one.sheet,
            "holds": _HELD[one.verdict],
            "verdict": _VERDICTS.get(one.verdict, one.verdict),
            "why": one.evidence,
        }
        for study, one in outcome.judged()
    ]
    told = {"places": places, "claims": claims, "broken": broken(outcome), "missing": outcome.missing}
    curves = [
        {"study": study.name, "sheet": sheet.label, **outcome.facts[sheet.measure]}
        for study, sheet in measured_curves(outcome)
        if sheet.measure is not None
    ]
    return {**told, **({"label_curves": curves} if curves else {}), "report": str(page.resolve())}
