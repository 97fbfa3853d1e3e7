"""A NumPy array of features [n, d], with its labels in a file beside it.

For `<stem>.npy` labels come from the file that is named, else from `<stem>_labels.npy`; class names, if there are any,
from `<stem>_class_names.npy`. A stem that ends in `_f16` may drop it: `novel_f16.npy` goes with `novel_labels.npy`. A
labels file is an `.npy` of integers or strings [n], or a text file (`.txt`, `.csv`) with one label a line.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.formats import must_be_readable, source


def read(path: Path, labels: Path | None = None) -> FeatureBank:
    """Read features from `path` and labels from `labels`, or from beside it."""
    features = _array(path, "features")
    labels_file = labels or _beside(path, "labels")
    if labels_file is None:
        raise InputError(f"it has no labels: there is no {path.stem}_labels.npy beside it; name a labels file.")
    names_file = _beside(path, "class_names")
    names = None if names_file is None else _array(names_file, "class names").astype(str).tolist()
    return FeatureBank.from_arrays(features, _labels(labels_file), names, source(path))


def _beside(path: Path, what: str) -> Path | None:
    candidates = [path.with_name(f"{stem}_{what}.npy") for stem in (path.stem, path.stem.removesuffix("_f16"))]
    return next((file for file in candidates if file.exists()), None)


def _labels(file: Path) -> NDArray[Any]:
    must_be_readable(file)
    if file.suffix.lower() == ".npy":
        return _array(file, "labels")
    if file.suffix.lower() not in (".txt", ".csv"):
        raise InputError(f"labels come from an .npy, .txt or .csv file, not from {file}.")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the labels file {file} is no UTF-8 text ({error}); save it as UTF-8.") from error
    lines = text.rstrip().split("\n")
    rows = list(csv.reader(lines)) if file.suffix.lower() == ".csv" else [[line] for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != 1 or not row[0].strip():
            raise InputError(
                f"line {number} of the labels file {file} holds {len(row)} values; write one label a line."
            )
    values = [row[0].strip() for row in rows]
    numbers = all(len(v) < 19 and v.removeprefix("-").isdecimal() and str(int(v)) == v for v in values)
    return np.array([int(value) for value in values] if numbers else values)


def _array(file: Path, what: str) -> NDArray[Any]:
    must_be_readable(file)
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:
        raise InputError(f"{file} could not be read as the array of {what} ({str(error).rstrip('.')}).") from error
    return array
