"""NumPy archives: `features` [n, d], `labels` [n] and, if there are any, `class_names` [C].

Labels are integers or strings; with `class_names` they are indexes into it. Pickled arrays are refused. Our own
archives also hold `base.<prefix>` and `sinkshot` (the JSON of the native format), so that a bank is restored
completely; other readers may ignore them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.arrays import archive
from sinkshot.foreign.files import opened
from sinkshot.formats import BankContent, source
from sinkshot.formats.native import header, narrow, read_header


def read(path: Path) -> BankContent:
    """Read a bank from an archive, after checking that its headers are consistent."""
    with opened(path) as file:
        if file.read(4) != b"PK\x03\x04":
            raise InputError("it is not a NumPy archive; write it with numpy.savez.")
    with archive(path) as arrays:
        if missing := {"features", "labels"} - set(arrays.names):
            held = ", ".join(f"{name:.60}" for name in arrays.names[:20]) or "none"
            raise InputError(f"it holds no array {sorted(missing)[0]!r}, only {held}.")
        rows, labels = arrays.header("features").shape, arrays.header("labels").shape
        if len(rows) == 2 and len(labels) == 1 and rows[0] != labels[0]:
            raise InputError(f"there are {rows[0]} rows of features but {labels[0]} labels; give one label per row.")
        found: dict[str, NDArray[Any]] = {}
        for name in filter(_ours, arrays.names):
            found[name] = arrays.features() if name == "features" else arrays.labels(name)
            found[name].flags.writeable = False
    base = {name.removeprefix("base."): mean for name, mean in found.items() if name.startswith("base.")}
    if "sinkshot" in found:
        return BankContent(found["features"], found["labels"], *read_header(str(found["sinkshot"])), base)
    names = found["class_names"].astype(str).tolist() if "class_names" in found else None
    return BankContent(found["features"], found["labels"], names, source(path), base, numbered=False)


def write(bank: BankContent, path: Path, store: str) -> None:
    """Write a bank as an archive that NumPy can read."""
    if store == "uint8":
        raise InputError("an .npz file holds float32 or float16; for 8 bits write a .safetensors file.")
    arrays: dict[str, NDArray[Any]] = {f"base.{prefix}": mean for prefix, mean in bank.base.items()}
    arrays |= {"features": narrow(bank.features, store), "labels": bank.labels}
    arrays |= {"class_names": np.array(tuple(bank.class_names or ())), "sinkshot": np.array(header(bank))}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _ours(name: str) -> bool:
    return name in ("features", "labels", "class_names", "sinkshot") or name.startswith("base.")
