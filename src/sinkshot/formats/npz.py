"""NumPy archives: `features` [n, d], `labels` [n] and, if there are any, `class_names` [C].

Labels are integers or strings; with `class_names` they are indexes into it. Nothing pickled is read. An archive of ours
has two things more, `base.<prefix>` and `sinkshot` (the JSON of the native format), with which a bank comes back as it
was; other readers may ignore them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.formats import source
from sinkshot.formats.native import header, narrow, read_header


def read(path: Path) -> FeatureBank:
    """Read a bank from an archive."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise InputError("it is no NumPy archive; write it with numpy.savez.")
    with np.load(path, allow_pickle=False) as archive:
        if missing := {"features", "labels"} - set(archive.files):
            raise InputError(f"it holds no array {sorted(missing)[0]!r}, only {', '.join(archive.files) or 'none'}.")
        arrays = {name: _member(archive, name) for name in archive.files if _ours(name)}
    base = {name.removeprefix("base."): mean for name, mean in arrays.items() if name.startswith("base.")}
    if "sinkshot" in arrays:
        return FeatureBank(arrays["features"], arrays["labels"], *read_header(str(arrays["sinkshot"])), base)
    names = arrays["class_names"].astype(str).tolist() if "class_names" in arrays else None
    return FeatureBank.from_arrays(arrays["features"], arrays["labels"], names, source(path), base)


def write(bank: FeatureBank, path: Path, store: str) -> None:
    """Write a bank as an archive that any NumPy reads."""
    if store == "uint8":
        raise InputError("an .npz keeps float32 or float16; for 8 bits write a .safetensors file.")
    arrays: dict[str, NDArray[Any]] = {f"base.{prefix}": mean for prefix, mean in bank.base.items()}
    arrays |= {"features": narrow(bank.features, store), "labels": bank.labels}
    arrays |= {"class_names": np.array(bank.class_names), "sinkshot": np.array(header(bank))}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _ours(name: str) -> bool:
    return name in ("features", "labels", "class_names", "sinkshot") or name.startswith("base.")


def _member(archive: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise InputError(
            f"its array {name!r} holds Python objects, which are not read; store plain numbers."
        ) from error
    if array.base is None:
        array.flags.writeable = False
    return array
