"""Packs: encoded images of a split in an `.npz`, easily copied and read without unpacking.

A pack holds `blob` (all encoded images, one after another), `offsets` [n + 1] into it, `label` [n] and `class_names`. A
folder of packs has files that begin with the name of their split: `train-1of2.npz`, `train-2of2.npz`, `val.npz`,
`test.npz`. Nothing pickled is read, and the images stay in the file, which is mapped into memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import FOLDER_NAMES, SPLITS, DataSet, guess, no_split
from sinkshot.backbones.datasets.sources import Blob, joined
from sinkshot.errors import InputError
from sinkshot.foreign.arrays import archive
from sinkshot.foreign.files import is_regular

MEMBERS = {"blob", "offsets", "label", "class_names"}


def is_pack(path: Path) -> bool:
    """Whether a path is a pack, or a folder with packs of splits in it."""
    if path.is_dir():
        return any(_is_whole_pack(file) for file in path.glob("*.npz"))
    if path.suffix.lower() != ".npz" or not is_regular(path):
        return False
    try:
        with archive(path) as arrays:
            return set(arrays.names) >= MEMBERS
    except InputError as error:
        raise InputError(f"{path} is a damaged pack ({error}); copy it again.") from error


def _is_whole_pack(path: Path) -> bool:
    """Whether a file is a pack; a damaged archive is none, so that its folder may still be something else."""
    try:
        return is_pack(path)
    except InputError:
        return False


def read_packs(path: Path, split: str, data_set: DataSet | None) -> Images:
    """Read one pack, or those of a split in a folder."""
    files = [path] if path.is_file() else [file for file in _files(path, split) if is_pack(file)]
    if not files:
        called = ", ".join(f"{FOLDER_NAMES[part][0]}*.npz" for part in SPLITS if split in (part, "all"))
        raise InputError(f"{path} has no pack of the {split} images ({called}).")
    if path.is_file():
        split = _split_of(path, split)
    packs = [_read(file) for file in files]
    names = list(dict.fromkeys(name for _, _, found in packs for name in found))
    number = {name: i for i, name in enumerate(names)}
    labels = np.concatenate([np.array([number[name] for name in found])[label] for _, label, found in packs])
    data_set = data_set or guess(names)
    meta = {"data_set": data_set.title} if data_set else {}
    return Images(
        joined([blob for blob, _, _ in packs]),
        labels.astype(np.int64),
        tuple(names),
        meta={**meta, "split": split, "layout": "pack"},
        expected=data_set.expected(split, names) if data_set else {},
        faults=tuple(data_set.missing(split, names)) if data_set else (),
    )


def mapped(path: Path, name: str) -> NDArray[Any]:
    """Return an array of an `.npz` without reading it, where the archive does not compress it."""
    with archive(path) as arrays:
        return arrays.mapped(name)


def _files(folder: Path, split: str) -> list[Path]:
    parts = SPLITS if split == "all" else (split,)
    words = tuple(word for part in parts for word in FOLDER_NAMES[part])
    return sorted(file for file in folder.glob("*.npz") if file.name.startswith(words))


def _split_of(file: Path, split: str) -> str:
    """Return the split that a single pack holds; its name may tell it."""
    told = next((part for part in SPLITS if file.name.startswith(FOLDER_NAMES[part])), None)
    if split != "all" and told not in (None, split):
        raise InputError(f"{file} is named as the pack of the {told} images, but the {split} ones were asked for.")
    if split != "all" and told is None:
        raise no_split(split, f"the pack {file}")
    return told or split


def _read(file: Path) -> tuple[Blob, NDArray[np.int64], list[str]]:
    try:
        with archive(file) as arrays:
            blob, names = arrays.mapped("blob"), [str(name) for name in arrays.labels("class_names").ravel()]
            offsets, label = (_integers(arrays.labels(name)) for name in ("offsets", "label"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is a damaged pack ({error}); copy it again.") from error
    whole = blob.ndim == offsets.ndim == label.ndim == 1 and blob.dtype == np.uint8 and len(offsets) == len(label) + 1
    if not whole or len(label) == 0 or offsets[0] != 0 or offsets[-1] != len(blob) or (np.diff(offsets) <= 0).any():
        raise InputError(f"{file} is a damaged pack: offsets, labels and images do not fit together; copy it again.")
    if (label < 0).any() or (label >= len(names)).any():
        raise InputError(f"{file} is a damaged pack: it has labels outside of its {len(names)} class names.")
    return Blob(blob, offsets, file.name), label, names


def _integers(values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        raise InputError(f"expected integers, found {values.dtype}")
    return values.astype(np.int64)
