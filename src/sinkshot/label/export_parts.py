"""Exports of images and texts that were labelled in parts: labels and confidences are read from the Parquet files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.folders import is_address
from sinkshot.label import exports
from sinkshot.label.answer_parts import ANSWERS, PartedRows, answer_name


@dataclass(frozen=True)
class LabelsOfParts:
    """What exports need of the answers."""

    classes: tuple[str, ...]
    labels: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: NDArray[Any]


def check_exports(names: tuple[str, ...], out: str | os.PathLike[str] | None, embeddings: bool) -> None:
    """Refuse exports that cannot be made, before work begins."""
    if names and embeddings:
        raise InputError(f"--export {names[0]} is for images and texts, and a bank holds embeddings; leave it out.")
    if names and (out is None or is_address(out)):
        raise InputError(f"--export {names[0]} writes into a folder of this machine; give --out a folder.")


def write_exports(names: tuple[str, ...], out: str | os.PathLike[str] | None, rows: PartedRows) -> list[str]:
    """Write the answers of all parts in each form; return a sentence about each."""
    if not names or rows.items is None or out is None:
        return []
    from pyarrow import parquet

    labels: list[str] = []
    sources: list[str] = []
    confidence = []
    for part in range(len(rows.features.index.parts)):
        path = Path(out) / ANSWERS / answer_name(part)
        table = parquet.read_table(path, columns=["label", "source", "confidence"])
        labels += table["label"].to_pylist()
        sources += table["source"].to_pylist()
        confidence.append(table["confidence"].to_numpy())
    found = LabelsOfParts(rows.classes, tuple(labels), tuple(sources), np.concatenate(confidence))
    return exports.write(names, Path(out), rows.items, found)
