"""Label files: CSV with `file_name,label` or `id,label`, by hand or ours, put onto the items they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sinkshot.errors import InputError, printable_lines, unknown_name
from sinkshot.label.items import Items, LeftOut
from sinkshot.label.spreadsheet import plain_path, plain_text, read_rows

KEYS = ("file_name", "id")
SOURCES = ("given", "accepted", "predicted")
_TRUSTED = ("given", "accepted")
_MOST_TOLD = 20


@dataclass(frozen=True)
class Given:
    """A label in a file, and its line."""

    label: str
    line: int
    accepted: bool


def read(path: Path) -> dict[str, Given]:
    """Read the labels of a file by name; rows without a label, and predicted ones of ours, are skipped."""
    header, rows = read_rows(path)
    key = next((name for name in KEYS if name in header), None)
    if key is None or "label" not in header:
        hint = "; separate columns by commas" if len(header) == 1 and any(mark in header[0] for mark in ";\t") else ""
        raise InputError(
            f"{path} has the columns {', '.join(header)}; a label file has file_name,label (or id,label){hint}."
        )
    columns = {name: header.index(name) for name in (key, "label", "source") if name in header}
    found: dict[str, Given] = {}
    faults = []
    for line, row in rows:
        source = (row[columns["source"]].strip() if "source" in columns else "") or "given"
        if source not in SOURCES:
            raise InputError(f"{path}, line {line}: {unknown_name('source', source, SOURCES)}")
        label = plain_text(row[columns["label"]]).strip()
        if not label or source not in _TRUSTED:
            continue
        name = plain_path(row[columns[key]]) if key == "file_name" else plain_text(row[columns[key]])
        before = found.get(name)
        if before is not None and before.label != label:
            faults.append(f"lines {before.line} and {line}: {name} is {before.label!r} and {label!r}")
        found[name] = Given(label, line, source == "accepted")
    if faults:
        rest = [f"and {len(faults) - _MOST_TOLD:,} more"] if len(faults) > _MOST_TOLD else []
        raise InputError(f"{path} contradicts itself:", *faults[:_MOST_TOLD], *rest)
    return found


def put_onto(items: Items, path: Path) -> Items:
    """Return items with the labels of a file; one that contradicts a label they have is refused with its line."""
    given = read(path)
    numbers = {printable_lines(name): number for number, name in enumerate(items.names)}  # as our own files have them
    numbers |= {name: number for number, name in enumerate(items.names)}
    labels, accepted = list(items.labels), items.accepted.copy()
    missing, faults = [], []
    for name, label in given.items():
        number = numbers.get(name, numbers.get(printable_lines(name)))
        if number is None:
            missing.append(LeftOut(name, f"line {label.line} of {path.name} labels it, but there is no such item"))
            continue
        before = labels[number]
        if before is not None and printable_lines(before) != printable_lines(label.label):
            faults.append(f"line {label.line}: {name} is {label.label!r} here and {before!r} by its folder or column")
        labels[number], accepted[number] = label.label if before is None else before, label.accepted
    if faults:
        rest = [f"and {len(faults) - _MOST_TOLD:,} more"] if len(faults) > _MOST_TOLD else []
        raise InputError(f"{path} contradicts the input:", *faults[:_MOST_TOLD], *rest)
    if missing and len(missing) == len(given):
        example = next(iter(items.names), "none")
        raise InputError(
            f"none of the {len(given):,} names in {path} is an item; it names {missing[0].name!r}, items have names "
            f"such as {example!r}. Paths are relative to the folder that is labelled."
        )
    return replace(
        items,
        labels=tuple(labels),
        accepted=np.asarray(accepted),
        left_out=(*items.left_out, *missing),
    )
