"""A NumPy array of features [n, d], with its labels in a file beside it.

For `<stem>.npy`, labels come from the given file, else from `<stem>_labels.npy`, and optional class names from
`<stem>_class_names.npy`. The ending `_f16` of a stem may be dropped: `novel_f16.npy` goes with `novel_labels.npy`. A
labels file is an `.npy` of integers or strings [n], or a text file (`.txt`, `.csv`) with one label per line.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign import texts
from sinkshot.foreign.arrays import read_array
from sinkshot.foreign.limits import LABELS, LIST, admit
from sinkshot.formats import BankContent, must_be_readable, source


def read(path: Path, labels: Path | None = None) -> BankContent:
    """Read features from `path` and labels from `labels`, or from the file beside it."""
    features = _array(path, "features")
    labels_file = labels or _beside(path, "labels")
    if labels_file is None:
        raise InputError(f"it has no labels: there is no {path.stem}_labels.npy beside it; give a labels file.")
    names_file = _beside(path, "class_names")
    names = None if names_file is None else _texts_or_numbers(names_file, "class names").astype(str).tolist()
    return BankContent(features, _labels(labels_file, len(features)), names, source(path), {}, numbered=False)


def _beside(path: Path, what: str) -> Path | None:
    candidates = [path.with_name(f"{stem}_{what}.npy") for stem in (path.stem, path.stem.removesuffix("_f16"))]
    return next((file for file in candidates if file.exists()), None)


def _labels(file: Path, rows: int) -> NDArray[Any]:
    must_be_readable(file)
    if file.suffix.lower() == ".npy":
        return _texts_or_numbers(file, "labels")
    if file.suffix.lower() not in (".txt", ".csv"):
        raise InputError(f"labels come from an .npy, .txt or .csv file, not from {file}.")
    try:
        text = texts.text(file, LIST, "utf-8-sig")
    except InputError as error:
        raise InputError(f"the labels file cannot be used: {error}") from error
    if (count := text.count("\n")) > 2 * rows + 1_000:
        raise InputError(f"the labels file {file} has {count:,} lines for {rows:,} rows; write one label per line.")
    lines = text.rstrip().split("\n")
    table = list(csv.reader(lines)) if file.suffix.lower() == ".csv" else [[line] for line in lines]
    for number, row in enumerate(table, start=1):
        if len(row) != 1 or not row[0].strip():
            raise InputError(
                f"line {number} of the labels file {file} holds {len(row)} values; write one label per line."
            )
    values = [row[0].strip() for row in table]
    numbers = all(len(v) < 19 and v.removeprefix("-").isdecimal() and str(int(v)) == v for v in values)
    return np.array([int(value) for value in values] if numbers else values)


def _array(file: Path, what: str) -> NDArray[Any]:
    must_be_readable(file)
    try:
        return read_array(file, f"the array of {what}")
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(f"{file} could not be read as the array of {what} ({str(error).rstrip('.')}).") from error


def _texts_or_numbers(file: Path, what: str) -> NDArray[Any]:
    array = _array(file, what)
    admit(array.nbytes, file.stat().st_size, f"the array of {what} in {file}", LABELS)
    return array
