"""The native format: one safetensors file; loading it never runs code.

Layout, tensors:

    features          [n, d]   float32, float16 or uint8
    features.scale    [d]      float32, with uint8 features only
    labels            [n]      int64, 0 .. C-1
    base.<prefix>     [d]      float32, the mean of the base rows after the chain <prefix>; `base.` for raw rows

and one metadata string `sinkshot`, a JSON object with `version`, `class_names` and `meta`. Features of 8 bits are
quantised after a square root, each column with its own scale: x = (q * scale)^2. Other safetensors files without that
metadata are read too, if they have `features` and `labels` of any integer type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.arrays import blocks
from sinkshot.errors import InputError
from sinkshot.foreign import texts
from sinkshot.foreign.tensors import TensorFile, numpy_type, tensors
from sinkshot.formats import BankContent, source

VERSION = 1


def read(path: Path) -> BankContent:
    """Read a bank, decoding features block by block into float32."""
    with tensors(path, "np") as file:
        names = set(file.names)
        if missing := {"features", "labels"} - names:
            held = ", ".join(sorted(names)[:20]) or "none"
            raise InputError(f"it holds no tensor {sorted(missing)[0]!r}, only {held}.")
        scale = file.get_tensor("features.scale") if "features.scale" in names else None
        features = _decode(file, scale)
        labels = file.get_tensor("labels")
        base = {name.removeprefix("base."): file.get_tensor(name) for name in names if name.startswith("base.")}
        text = file.metadata.get("sinkshot")
    if text is None:
        return BankContent(features, labels, None, source(path), base, numbered=False)
    return BankContent(features, labels, *read_header(text), base)


def write(bank: BankContent, path: Path, store: str) -> None:
    """Write a bank with features of the type `store`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, NDArray[Any]] = {"labels": bank.labels, **{f"base.{p}": mean for p, mean in bank.base.items()}}
    if store == "uint8":
        tensors["features"], tensors["features.scale"] = quantise(bank.features)
    else:
        tensors["features"] = narrow(bank.features, store)
    try:
        save_file(tensors, path, metadata={"sinkshot": header(bank)})
    except SafetensorError as error:
        raise OSError(str(error)) from error


def header(bank: BankContent) -> str:
    """Return everything but the arrays as one JSON string; several metadata strings would have a random order."""
    return header_of(tuple(bank.class_names or ()), bank.meta)


def header_of(class_names: Sequence[str], meta: Mapping[str, str]) -> str:
    """Return that JSON from its parts."""
    return json.dumps({"version": VERSION, "class_names": class_names, "meta": dict(meta)})


def read_header(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return class names and meta from the JSON that `header` made."""
    found = texts.json_object(text, "its header")
    if found["version"] > VERSION:
        raise InputError(f"it has format version {found['version']}, this SinkShot reads up to {VERSION}; upgrade it.")
    return tuple(found["class_names"]), found["meta"]


def narrow(features: NDArray[np.float32], store: str) -> NDArray[Any]:
    """Return features as float32 or float16, and refuse what float16 cannot hold."""
    if store == "float32":
        return features
    narrowed = np.empty(features.shape, np.float16)
    for rows in blocks(*features.shape):
        with np.errstate(over="ignore", under="ignore"):
            narrowed[rows] = features[rows]
        if not (finite := np.isfinite(narrowed[rows])).all():
            row, column = np.argwhere(~finite)[0]
            value = features[rows][row, column]
            raise InputError(f"{value} at row {rows.start + row}, column {column} is beyond float16; store float32.")
    return narrowed


def quantise(features: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the square roots of features as bytes, and the scale of each column."""
    lowest = features.min(axis=1)
    if (lowest < 0).any():
        row = int((lowest < 0).argmax())
        raise InputError(f"row {row} has the negative entry {lowest[row]}, which uint8 cannot hold; store float16.")
    scale = (np.sqrt(features.max(axis=0), dtype=np.float64) / 255).astype(np.float32)
    inverse = np.divide(1.0, scale, out=np.zeros(len(scale)), where=scale > 0)  # a column of zeros stays zero
    quantised = np.empty(features.shape, np.uint8)
    for rows in blocks(*features.shape):
        quantised[rows] = np.minimum(np.rint(np.sqrt(features[rows]) * inverse), 255)
    return quantised, scale


def _decode(file: TensorFile, scale: NDArray[np.float32] | None) -> NDArray[Any]:
    entry = file.entry("features")
    shape = entry.shape
    if len(shape) != 2 or 0 in shape or (scale is not None and scale.shape != (shape[1],)):
        raise InputError(
            f"its features have shape {list(shape)}; expected [rows, columns], neither of them 0, and a matching scale."
        )
    kind = numpy_type(entry)
    features = np.empty(shape, np.float32 if kind in (np.uint8, np.float16) else kind)
    for rows in blocks(*shape):
        features[rows] = file.rows("features", rows)
        if scale is not None:
            features[rows] = dequantise(features[rows], scale)
    features.flags.writeable = False
    return features


def dequantise(quantised: NDArray[Any], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features that bytes stand for."""
    with np.errstate(over="ignore"):  # rounding may raise the largest float32 above its range
        return np.minimum(np.square(quantised * scale), np.finfo(np.float32).max)
