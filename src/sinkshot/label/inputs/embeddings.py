"""Embeddings in array files: `features` [n, d], `labels` [n] where there are any (-1 or empty: none yet), `ids` [n]."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.arrays import archive, read_array
from sinkshot.foreign.tensors import tensors
from sinkshot.formats import errors_name
from sinkshot.formats.parts import open_parts
from sinkshot.label.inputs.columns import as_labels, as_names, checked_features
from sinkshot.label.items import Items

Arrays = dict[str, NDArray[Any]]


def read(path: Path) -> Items:
    """Read `.npz`, `.npy` (with `<stem>_labels.npy` beside it, if there is one) or `.safetensors`."""
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors}
    with errors_name(path):
        found, class_names = readers[path.suffix.lower()](path)
        if "features" not in found:
            raise InputError(f"it holds {', '.join(sorted(found)) or 'nothing'}; an array called features is expected.")
        features = checked_features(found["features"])
        return Items(
            kind="embeddings",
            names=as_names(found.get("ids"), len(features)),
            labels=as_labels(found.get("labels"), len(features), class_names),
            accepted=np.zeros(len(features), dtype=bool),
            features=features,
        )


def read_parts(path: str | os.PathLike[str]) -> Items:
    """Read a bank in parts; labels of -1 are those of unlabelled rows."""
    features, index, _ = open_parts(path)
    rows = np.asarray(features)
    return Items(
        kind="embeddings",
        names=as_names(None, len(rows)),
        labels=as_labels(features.labels(), len(rows), index.class_names),
        accepted=np.zeros(len(rows), dtype=bool),
        features=rows,
    )


def _npz(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    with archive(path) as arrays:
        found: Arrays = {"features": arrays.features()} if "features" in arrays.names else {}
        for name in ("labels", "ids", "class_names"):
            if name in arrays.names:
                found[name] = arrays.labels(name)
    return found, tuple(str(name) for name in found.get("class_names", ()))


def _npy(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    beside = path.with_name(f"{path.stem}_labels.npy")
    labels = {"labels": read_array(beside, beside.name)} if beside.exists() else {}
    return {"features": read_array(path, path.name), **labels}, ()


def _safetensors(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    from sinkshot.formats import native

    with tensors(path, "np") as file:
        if "labels" not in file.names:
            return {name: file.get_tensor(name) for name in {*file.names} & {"features", "ids"}}, ()
    bank = native.read(path)
    return {"features": bank.features, "labels": bank.labels}, tuple(bank.class_names or ())
