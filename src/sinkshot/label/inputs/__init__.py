"""Recognise what is to be labelled: a folder of images, a file of embeddings or of texts, or a data frame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError
from sinkshot.formats import in_parts
from sinkshot.label import label_files
from sinkshot.label.inputs import embeddings, images, tables, texts
from sinkshot.label.items import Items

TABLES = (".csv", ".parquet", ".jsonl")
ARRAYS = (".npz", ".npy", ".safetensors")


def read(
    source: Any, *, labels: str | os.PathLike[str] | None = None, text: str | None = None, skip: Path | None = None
) -> Items:
    """Return the items of an input.

    Parameters
    ----------
    source : path or data frame
        A folder of images; `.npz`, `.npy`, `.safetensors`, `.parquet`, `.csv` with embeddings; `.csv`, `.jsonl`,
        `.parquet` with texts; `.txt`, one text per line; or a data frame of pandas or polars.
    labels : path, optional
        A label file.
    text : str, optional
        The column that holds texts.
    skip : Path, optional
        A folder of results inside a folder of images, which is skipped.
    """
    items = _recognised(source, text, skip)
    if not len(items):
        detail = f": {items.left_out[0].name}, {items.left_out[0].reason}" if items.left_out else ""
        raise InputError(f"there is nothing to label in {_shown(source)}{detail}.")
    return items if labels is None else label_files.put_onto(items, Path(labels))


def _recognised(source: Any, text: str | None, skip: Path | None) -> Items:
    if not isinstance(source, str | os.PathLike):
        return tables.from_frame(source, text)
    if in_parts(source):
        return embeddings.read_parts(source)
    path = Path(source)
    if path.is_dir():
        if text is not None:
            raise InputError(f"{path} is a folder of images; --text names a column of a file.")
        return images.read(path, skip)
    if not path.exists():
        raise InputError(f"there is no file or folder {path} (the working folder is {Path.cwd()}).")
    suffix = path.suffix.lower()
    if suffix == ".txt":
        return texts.read(path)
    if suffix in TABLES:
        return tables.read(path, text)
    if suffix in ARRAYS:
        return embeddings.read(path)
    raise InputError(
        f"{path} is not recognised; a folder of images, {', '.join((*ARRAYS, *TABLES))} or .txt is expected."
    )


def _shown(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"
