"""Safetensors files: a JSON header that is checked against the file, then tensors that are read, never memory-mapped.

Truncating a memory-mapped file ends the process that reads it (SIGBUS); here it raises an error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import DIMENSIONS, DIRECTORY, amount
from sinkshot.foreign.texts import json_object

_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?"}
_NUMPY |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}
_TORCH = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_TORCH |= {name: np.dtype(code).name for name, code in _NUMPY.items()}
_SIZES = {"BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, **{name: np.dtype(code).itemsize for name, code in _NUMPY.items()}}


class DamagedTensors(ValueError):
    """A file that is not a whole safetensors file."""


class TensorEntry(NamedTuple):
    """What the header says of a tensor."""

    kind: str
    shape: tuple[int, ...]
    begin: int  # in the file
    end: int


class TensorFile:
    """An open safetensors file, whose header fits it; a file elsewhere comes with its size."""

    def __init__(self, file: BinaryIO, framework: str, size: int | None = None) -> None:
        self._file, self._framework = file, framework
        self.metadata, self._entries = _header(file, size_of(file) if size is None else size)
        self.names = list(self._entries)

    def entry(self, name: str) -> TensorEntry:
        """Return what the header says of a tensor."""
        return self._entries[name]

    def get_tensor(self, name: str) -> Any:
        """Read a tensor: a NumPy array or a torch tensor."""
        entry = self._entries[name]
        if self._framework == "np":
            return self._array(entry, entry.begin, entry.shape)
        torch: Any = import_module("torch")  # only code that has imported it asks for its tensors
        flat = torch.from_numpy(self._bytes(entry.begin, entry.end - entry.begin))
        return flat.view(getattr(torch, _TORCH[entry.kind])).reshape(entry.shape)

    def rows(self, name: str, rows: slice) -> NDArray[Any]:
        """Read some rows of a tensor [n, ...] as an array of NumPy."""
        entry = self._entries[name]
        width = (entry.end - entry.begin) // entry.shape[0]
        shape = (rows.stop - rows.start, *entry.shape[1:])
        return self._array(entry, entry.begin + rows.start * width, shape)

    def _array(self, entry: TensorEntry, begin: int, shape: tuple[int, ...]) -> NDArray[Any]:
        dtype = numpy_type(entry)
        flat = self._bytes(begin, math.prod(shape) * dtype.itemsize).view(dtype)
        return flat.reshape(shape)

    def _bytes(self, begin: int, size: int) -> NDArray[np.uint8]:
        found = np.empty(size, np.uint8)
        self._file.seek(begin)
        if self._file.readinto(found.data) != size:  # type: ignore[attr-defined]
            raise DamagedTensors("it was cut short while it was read")
        return found


def numpy_type(entry: TensorEntry) -> np.dtype[Any]:
    """Return the type of a tensor in NumPy, which lacks some."""
    if entry.kind not in _NUMPY:
        raise InputError(f"it has a tensor of {entry.kind}, which NumPy lacks; store F32 or F16.")
    return np.dtype(_NUMPY[entry.kind])


@contextmanager
def tensors(path: str | os.PathLike[str], framework: str) -> Iterator[TensorFile]:
    """Open a safetensors file for NumPy (`np`) or torch (`pt`)."""
    with opened(path) as file:
        yield TensorFile(file, framework)


def _header(file: BinaryIO, size: int) -> tuple[dict[str, str], dict[str, TensorEntry]]:
    """Read the header, and check that its tensors fill the file without gaps."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise DamagedTensors("its header is longer than the file")
    if length > DIRECTORY.value:
        raise InputError(f"its header is longer than {amount(DIRECTORY.value)}.")
    try:
        written = json_object(file.read(length), "its header", DIRECTORY)
    except InputError as error:
        raise DamagedTensors(str(error).rstrip(".")) from error
    metadata = written.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise DamagedTensors("its metadata is not a mapping of texts")
    entries = {name: _entry(name, found, 8 + length) for name, found in written.items()}
    place = 8 + length
    for entry in sorted(entries.values(), key=lambda entry: entry[2:]):
        if entry.begin != place:
            raise DamagedTensors("its tensors overlap, or there are gaps between them")
        place = entry.end
    if place != size:
        raise DamagedTensors(f"its tensors end after {amount(place)}, and the file has {amount(size)}")
    return metadata, entries


def _entry(name: str, found: Any, start: int) -> TensorEntry:
    if not isinstance(found, dict) or set(found) != {"dtype", "shape", "data_offsets"}:
        raise DamagedTensors(f"its tensor {name!r:.60} is not described")
    kind, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(shape) > DIMENSIONS.value:
        raise DamagedTensors(f"its tensor {name!r:.60} has an impossible shape or place")
    if kind not in _SIZES:
        raise InputError(f"its tensor {name!r:.60} has the unknown type {kind!r:.20}; store F32 or F16.")
    if math.prod(shape) * _SIZES[kind] != offsets[1] - offsets[0]:
        raise DamagedTensors(f"its tensor {name!r:.60} has a shape that does not fit its place")
    return TensorEntry(kind, tuple(shape), start + offsets[0], start + offsets[1])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
