"""Parse studies from TOML files: those of the paper, which are bundled, and your own.

    title = "Square roots on birds"

    [defaults]                      # settings of every cell; a sheet, a column and a row may each say otherwise
    data_set = "cub"
    backbone = "resnet18"
    query = 15

    [[sheets]]
    columns = [{ label = "1-shot", shot = 1 }, { label = "5-shot", shot = 5 }]
    rows = [
      { label = "as they are", method = "ncm", preprocess = "E" },
      { label = "square root", method = "ncm", preprocess = "PE", values = ["80.57 ± 0.20", "91.15 ± 0.10"] },
    ]

`values` are a paper's, as printed: "" where it has none, "-" where there is nothing to measure either. A row without a
method shows the paper's values alone. In a figure, `sweep` takes the place of columns: `sweep.set.lam = [4, 8, 16]`.
A row with `methods = "all"` ("inductive", "transductive", or a list of names) is one row for each method that no other
row of the sheet names, in a sheet of the protocol open-set also for those that are only another score of the unknown;
`most = 200` limits a slow one to 200 episodes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as File
from typing import Any, get_args

from sinkshot.errors import InputError, unknown_name
from sinkshot.methods import GROUPS, group
from sinkshot.studies import cell_settings, claims, measures
from sinkshot.studies.cell_settings import BANK, SETTINGS, LocatedSettings
from sinkshot.studies.study import Claim, Column, Entry, Measure, Row, Sheet, Study, StudyKind, Value
from sinkshot.studies.toml_positions import Path
from sinkshot.studies.toml_schema import (
    NAME,
    NAMES,
    NUMBER,
    SWITCH,
    TABLE,
    TABLES,
    TEXT,
    TEXTS,
    Document,
    ValueType,
    one_of,
)

_COLUMN = {"label": TEXT, "group": TEXT, "x": NUMBER} | SETTINGS
_METHODS = ValueType(
    "all, inductive, transductive, or a list of methods",
    lambda given: given in GROUPS or NAMES.fits(given),
)
_ROW = {"label": TEXT, "group": TEXT, "details": TEXTS, "values": TEXTS, "methods": _METHODS, "head": SWITCH} | SETTINGS
_SHEET = {"label": TEXT, "heads": NAMES, "axis": TEXT, "transfer": SWITCH, "columns": TABLES, "sweep": TABLE}
_SHEET |= {"rows": TABLES} | SETTINGS
_MEASURED = {"label": TEXT, "transfer": SWITCH, "options": TABLE, "paper": TABLE} | BANK
_STUDY = {"name": NAME, "title": NAME, "kind": one_of(get_args(StudyKind)), "where": TEXT, "about": TEXT}
_STUDY |= {"heads": NAMES, "defaults": TABLE, "columns": TABLES, "sheets": TABLES, "claims": TABLES}
_STUDY |= {"against": NAME, "floor": NAME}
_LABELS = ValueType("a text or a list of texts", lambda given: TEXT.fits(given) or NAMES.fits(given))
_CLAIM: dict[str, ValueType] = {"text": NAME, "rule": NAME, "row": NAME, "other": NAME, "detail": NAME}
_CLAIM |= dict.fromkeys(("rows", "columns", "groups", "without"), _LABELS)
_CLAIM |= dict.fromkeys(("low", "high", "late", "value", "times"), NUMBER)
FOLDERS = ("paper", "bench")
PAPER_ORDER = (
    *("table-1", "table-2", "table-3", "table-4", "table-5", "power", "gaussianity", "figure-distributions"),
    *("figure-projection", "figure-queries", "figure-epochs", "figure-lambda", "table-6", "table-7", "table-8"),
    "figure-backbones",
)
_VALUE = re.compile(r"(-?\d+(?:\.\d+)?)\s*%?(?:\s*(?:±|\+-|\+/-)\s*(\d+(?:\.\d+)?)\s*%?)?")


def names(folder: str = "paper") -> list[str]:
    """Return the names of the paper's studies in its order; or of another folder: "bench" has our own."""
    files = [file.name for file in (resources.files("sinkshot") / "studies" / folder).iterdir()]
    found = [name.removesuffix(".toml") for name in files if name.endswith(".toml")]
    return sorted(found, key=lambda name: (PAPER_ORDER.index(name) if name in PAPER_ORDER else 0, name))


def find(name_or_path: str | os.PathLike[str]) -> Study:
    """Read a bundled study by name, or any study by the path of its file."""
    text = os.fsdecode(name_or_path)
    for folder in FOLDERS:
        if text in names(folder):
            with resources.as_file(resources.files("sinkshot") / "studies" / folder / f"{text}.toml") as file:
                return read(file)
    if File(text).suffix == ".toml" or os.sep in text:
        return read(text)
    raise unknown_name("study", text, [name for folder in FOLDERS for name in names(folder)])


def read(path: str | os.PathLike[str]) -> Study:
    """Read a study from a file; an InputError gives the line of a mistake and how to fix it."""
    file = File(os.fsdecode(path))
    if not file.is_file():
        raise InputError(f"there is no file {file} (in {File.cwd()}); give the path of a study, a .toml file.")
    return _Reader(Document(file)).study()


def value(text: str) -> Value:
    """Read a number as papers print it: "82.07 ± 0.25", "77.80", also with percent signs.

    >>> value("82.07 ± 0.25").ci95
    0.25
    """
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{text!r} is not a value; write it as "82.07 ± 0.25", "77.80", or "" for none.')
    return Value(text.strip(), float(match[1]), None if match[2] is None else float(match[2]))


def _listed(given: Any) -> list[str]:
    return given if isinstance(given, list) else []


@dataclass(frozen=True)
class _Reader:
    document: Document

    def study(self) -> Study:
        content = self.document.content
        self.document.check(content, (), _STUDY, "a study")
        for key in ("title", "sheets"):
            if not content.get(key):
                raise self.document.error((key,), f"a study needs {'a title' if key == 'title' else '[[sheets]]'}.")
        kind: StudyKind = content.get("kind", "table")
        defaults = cell_settings.collect(
            self.document, content.get("defaults", {}), ("defaults",), SETTINGS, "[defaults]"
        )
        sheets = tuple(
            self.sheet(sheet, ("sheets", number), defaults, kind) for number, sheet in enumerate(content["sheets"])
        )
        said = tuple(self.claim(claim, ("claims", i), sheets) for i, claim in enumerate(content.get("claims", [])))
        name, where, about = (
            content.get("name", self.document.file.stem),
            content.get("where", ""),
            content.get("about"),
        )
        against, floor = (self.row_named(key, sheets) for key in ("against", "floor"))
        return Study(name, content["title"], kind, where, (about or "").strip(), sheets, said, against, floor)

    def row_named(self, key: str, sheets: tuple[Sheet, ...]) -> str:
        """Return the label of a row that every sheet must have, or an empty string."""
        label: str = self.document.content.get(key, "")
        for sheet in sheets if label else ():
            if label not in (labels := [row.label for row in sheet.rows]):
                raise self.document.unknown((key,), f"sheet {sheet.label!r} has no row {label!r}", label, labels)
        return label

    def sheet(self, table: dict[str, Any], path: Path, defaults: LocatedSettings, kind: StudyKind) -> Sheet:
        known = _MEASURED if kind in measures.OPTIONS else _SHEET
        what = f"a sheet of kind {kind}" if kind in measures.OPTIONS else "a sheet"
        here = defaults | cell_settings.collect(self.document, table, path, known, what)
        label, transfer = table.get("label", self.document.content["title"]), table.get("transfer", False)
        if kind in measures.OPTIONS:
            measure = self.measure(table, path, here, kind)
            return Sheet(label, measure=measure, paper=table.get("paper", {}), transfer=transfer)
        columns = self.columns(table, path)
        rows = tuple(
            self.row(one, (*path, "rows", number), here, columns)
            for number, row in enumerate(table.get("rows", []))
            for one in self.each(row, (*path, "rows", number), table["rows"], here)
        )
        if not rows:
            raise self.document.error((*path, "rows"), "a sheet needs [[sheets.rows]], each with a label and a method.")
        heads = tuple(table.get("heads", self.document.content.get("heads", ["Method"])))
        for number, row in enumerate(rows):
            if len(row.details) != len(heads) - 1:
                raise self.document.error(
                    (*path, "rows", number, "details"),
                    f"row {row.label!r} has {len(row.details)} details; with the heads {', '.join(heads)} a row needs "
                    f"{len(heads) - 1}.",
                )
        sheet = Sheet(label, tuple(column for column, _ in columns), rows, heads, table.get("axis", ""))
        homes = {(cell.bank.data_set, cell.bank.backbones, cell.bank.trained_on) for cell in sheet.cells()}
        if transfer and len(homes) != 1:
            raise self.document.error(
                (*path, "transfer"),
                f"transfer needs a sheet about one bank; this one is about {len(homes)}.",
            )
        return Sheet(label, sheet.columns, rows, heads, sheet.axis, transfer=transfer)

    def each(
        self, row: dict[str, Any], path: Path, rows: list[dict[str, Any]], here: LocatedSettings
    ) -> list[dict[str, Any]]:
        """Return the row or, with `methods`, one row per method that no other row of the sheet names."""
        wanted = row.get("methods")
        if wanted is None:
            return [row]
        self.document.check(row, path, _ROW, "a row")
        for key in ("method", "label", "values"):
            if key in row:
                raise self.document.error(
                    (*path, key), f"a row of several methods cannot have the key {key!r}; use a separate row."
                )
        if isinstance(wanted, list):
            chosen = wanted
        else:
            named = {name for r in rows for name in [r.get("method"), *_listed(r.get("methods"))]}
            protocol: str = row.get("protocol") or here.get("protocol", ("", path))[0]
            chosen = [m.name for m in group(wanted, protocol) if m.name not in named]
        shared = {key: value for key, value in row.items() if key != "methods"}
        return [shared | {"label": name, "method": name, "methods": [name]} for name in chosen]

    def columns(self, sheet: dict[str, Any], path: Path) -> list[tuple[Column, LocatedSettings]]:
        if "sweep" in sheet:
            if "columns" in sheet:
                raise self.document.error((*path, "columns"), "a sheet has columns or a sweep, not both.")
            return self.sweep(sheet["sweep"], (*path, "sweep"))
        own = "columns" in sheet
        tables = sheet["columns"] if own else self.document.content.get("columns", [{"label": "accuracy"}])
        columns = []
        for number, table in enumerate(tables):
            where = (*path, "columns", number) if own else ("columns", number)
            found = cell_settings.collect(self.document, table, where, _COLUMN, "a column")
            x = table.get("x")
            label = table.get("label", "" if x is None else f"{x:g}")
            columns.append((Column(label, table.get("group", ""), None if x is None else float(x)), found))
        return columns

    def sweep(self, table: dict[str, Any], path: Path) -> list[tuple[Column, LocatedSettings]]:
        """Return one column per value of the lists; x is the list named x, or the only list."""
        flat = {k: v for k, v in table.items() if k != "set"}
        given = table.get("set", {})
        if not isinstance(given, dict):
            raise self.document.error((*path, "set"), "set must be a table of lists, such as set.lam = [4, 8, 16].")
        lists = {(k,): v for k, v in flat.items()} | {("set", k): v for k, v in given.items()}
        for key, values in lists.items():
            if key[0] not in SETTINGS and key[0] != "x":
                raise self.document.unknown((*path, *key), f"a sweep has no key {key[0]!r}", key[0], ["x", *SETTINGS])
            if not isinstance(values, list) or not values:
                raise self.document.error(
                    (*path, *key), f"{key[-1]} must be a list in a sweep; {values!r:.60} was given."
                )
        if not lists:
            raise self.document.error(path, "a sweep needs a list, such as query = [5, 10, 15].")
        first = next(iter(lists))
        for key, values in lists.items():
            if len(values) != len(lists[first]):
                raise self.document.error(
                    (*path, *key),
                    f"{key[-1]} has {len(values)} values and {first[-1]} has {len(lists[first])}; they must match.",
                )
        axis = lists.get(("x",), lists[first] if len(lists) == 1 else None)
        if axis is None or not all(NUMBER.fits(x) for x in axis):
            where = (*path, "x") if ("x",) in lists else path
            raise self.document.error(where, "give x, a list of numbers: the position of each point on the axis.")
        columns = []
        for number, x in enumerate(axis):
            here: LocatedSettings = {}
            for key, values in lists.items():
                if key != ("x",):
                    one = {"set": {key[-1]: values[number]}} if key[0] == "set" else {key[0]: values[number]}
                    where = (*path, *key, number)
                    kept = cell_settings.collect(self.document, one, path, SETTINGS, "a sweep")
                    here |= {name: (v, where) for name, (v, _) in kept.items()}
            columns.append((Column(f"{x:g}", "", float(x)), here))
        return columns

    def row(
        self, table: dict[str, Any], path: Path, here: LocatedSettings, columns: list[tuple[Column, LocatedSettings]]
    ) -> Row:
        own = cell_settings.collect(self.document, table, path, _ROW, "a row")
        if not table.get("label"):
            raise self.document.error(path, "a row needs a label.")
        printed = table.get("values", [""] * len(columns))
        if len(printed) != len(columns):
            raise self.document.error(
                (*path, "values"),
                f"row {table['label']!r} has {len(printed)} values, but its sheet has {len(columns)} columns; "
                'write "" where the paper has none.',
            )
        entries = []
        for number, (text, (_, of_column)) in enumerate(zip(printed, columns, strict=True)):
            merged = here | of_column | own
            try:
                paper = None if text.strip() in ("", "-") else value(text)
            except InputError as error:
                raise self.document.error((*path, "values", number), str(error)) from error
            few = paper is not None and cell_settings.too_few_shots(merged)
            empty = text.strip() == "-" or few or ("methods" in table and cell_settings.lacking(merged))
            cell = None if empty else cell_settings.cell(self.document, merged, path)
            entries.append(Entry(cell, paper, merged["metric"][0] if "metric" in merged else "accuracy"))
        details, head = tuple(table.get("details", ())), table.get("head", False)
        return Row(table["label"], tuple(entries), table.get("group", ""), details, head)

    def measure(self, table: dict[str, Any], path: Path, here: LocatedSettings, kind: StudyKind) -> Measure:
        options = table.get("options", {})
        try:
            measures.settings(kind, options)
        except InputError as error:
            unknown = next((name for name in options if name not in measures.OPTIONS[kind]), None)
            named = unknown or next((name for name in options if str(error).startswith(name)), None)
            where = (*path, "options") if named is None else (*path, "options", named)
            raise self.document.error(where, str(error)) from error
        return Measure(cell_settings.bank(self.document, here, path), kind, tuple(sorted(options.items())))

    def claim(self, table: dict[str, Any], path: Path, sheets: tuple[Sheet, ...]) -> Claim:
        for key in ("text", "rule"):
            if not NAME.fits(table.get(key)):
                raise self.document.error((*path, key), f"a claim needs a {key}, {NAME.wanted}.")
        rule = table["rule"]
        if rule not in claims.RULES:
            raise self.document.unknown((*path, "rule"), f"there is no rule {rule!r}", rule, list(claims.RULES))
        known = {key: _CLAIM[key] for key in ("text", "rule", *claims.options(rule))}
        self.document.check(table, path, known, f"the rule {rule}")
        for key in claims.needed(rule):
            if key not in table:
                raise self.document.error(path, f"the rule {rule} needs {key!r}.")
        rows = [row for sheet in sheets for row in sheet.rows]
        places = [column for sheet in sheets for column in sheet.columns]
        labels = [row.label for row in rows]
        headed = [name for c in places for name in (c.group, c.label, f"{c.group} {c.label}") if name]
        there = dict.fromkeys(("row", "other", "rows", "without"), labels)
        there |= {"columns": headed, "groups": [r.group for r in rows]}
        there["detail"] = [detail for r in rows for detail in r.details]
        for key in there.keys() & table.keys():
            for name in [table[key]] if isinstance(table[key], str) else table[key]:
                if name not in there[key]:
                    what = f"no {key.removesuffix('s').replace('other', 'row')} is called {name!r}"
                    raise self.document.unknown((*path, key), what, name, list(dict.fromkeys(there[key])))
        given = {key: v for key, v in table.items() if key not in ("text", "rule")}
        return Claim(table["text"], rule, tuple(sorted((key, cell_settings.frozen(v)) for key, v in given.items())))
