"""A bank in parts: a folder of safetensors or Parquet files with one small index, for more rows than memory holds.

    birds/
      index.json                rows, width, class names, meta, and each part with its rows, size and SHA-256
      base.safetensors          means of the base classes, if any
      part-00000.safetensors    features [n_i, d] and labels [n_i]; -1 is unlabelled
      part-00001.safetensors

The folder may be on this machine or at any address of fsspec (`s3://`, `gs://`, `file://`). Opening a bank reads the
index, the headers and the labels; features are read row by row, on demand.
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign import limits, texts
from sinkshot.foreign.folders import Folder, folder_at, is_address
from sinkshot.foreign.tensors import TensorFile
from sinkshot.formats.content import BankContent
from sinkshot.formats.part_files import SUFFIXES, AnyPart, Part, damaged_is_said, open_part, verify, write_part

INDEX, BASE = "index.json", "base.safetensors"
KIND = "sinkshot bank in parts"
VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PART = re.compile(r"part-\d{5,}\.(safetensors|parquet|json)")  # .json: a note on a part of an unfinished bank
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OPEN = 64  # parts whose headers are kept
_DECODED = 2  # Parquet parts that are kept


@dataclass(frozen=True)
class Index:
    """The index of a bank in parts."""

    width: int
    store: str
    class_names: tuple[str, ...]
    meta: Mapping[str, str]
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)


class PartedFeatures:
    """Features [n, d] in parts: indexed as a float32 array, and read as they are asked for.

    Rows are indexed by a slice, an array of row numbers or a mask, and then perhaps columns: what comes back is an
    ordinary array. `numpy.asarray` reads all rows, within the limit of --max-memory.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, folder: Folder, index: Index) -> None:
        self.folder, self.index = folder, index
        self.shape = (index.rows, index.width)
        self.starts = np.cumsum([0, *(part.rows for part in index.parts)])
        self._opened: OrderedDict[int, AnyPart] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """The bytes that all rows would take in memory."""
        return 4 * self.size

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        rows, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        if isinstance(rows, int | np.integer):
            found = self._rows(np.array([_in_range(int(rows), len(self))]))[0]
            return found[rest] if rest else found
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        if numbers.dtype == np.bool_:
            if numbers.shape != (len(self),):
                raise IndexError(f"a mask of shape {numbers.shape} for {len(self)} rows")
            numbers = np.flatnonzero(numbers)
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(f"row {numbers.max()} of {len(self)}")
        unique, places = np.unique(numbers, return_inverse=True)
        found = self._rows(unique)
        rising = numbers.ndim == 1 and len(unique) == len(numbers) and bool((places == np.arange(len(places))).all())
        found = found if rising else found[places.reshape(numbers.shape)]
        return found[(slice(None), *rest)] if rest else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        stored = sum(part.size for part in self.index.parts)
        limits.admit(self.nbytes, stored, f"all rows of {self.folder.address}")
        return np.asarray(self[:], dtype=dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartedFeatures, (self.folder, self.index)

    def part(self, number: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read a part: its features and labels."""
        opened = self._part(number)
        return self._finite(opened.rows(np.arange(self.index.parts[number].rows)), number), opened.labels()

    def labels(self) -> NDArray[np.int64]:
        """Read the labels of all rows; -1 is unlabelled."""
        return np.concatenate([self._part(number).labels() for number in range(len(self.index.parts))])

    def verify(self) -> None:
        """Read every part and compare it with its digest."""
        for part in self.index.parts:
            verify(self.folder, part)

    def _rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read rows whose numbers rise."""
        found = np.empty((len(numbers), self.shape[1]), np.float32)
        ends = np.searchsorted(numbers, self.starts)
        for number in range(len(self.index.parts)):
            begin, end = ends[number], ends[number + 1]
            if begin < end:
                rows = self._part(number).rows(numbers[begin:end] - self.starts[number])
                found[begin:end] = self._finite(rows, number)
        return found

    def _part(self, number: int) -> AnyPart:
        with self._lock:
            if number in self._opened:
                self._opened.move_to_end(number)
                return self._opened[number]
        part = open_part(self.folder, self.index.parts[number], self.index.width)
        with self._lock:
            self._opened[number] = part
            most = _DECODED if self.index.parts[number].file.endswith(".parquet") else _OPEN
            while len(self._opened) > most:
                self._opened.popitem(last=False)
        return part

    def _finite(self, rows: NDArray[np.float32], number: int) -> NDArray[np.float32]:
        if not np.isfinite(rows).all():
            place = self.folder.path_of(self.index.parts[number].file)
            raise InputError(f"{place}: a feature is not a finite float32; remove or repair it.")
        return rows


def is_bank_in_parts(path: str | os.PathLike[str]) -> bool:
    """Whether there is the index of a bank in parts at a path or address."""
    return folder_at(path).exists(INDEX)


def open_parts(path: str | os.PathLike[str]) -> tuple[PartedFeatures, Index, dict[str, NDArray[np.float32]]]:
    """Open a bank in parts: features that are read as they are asked for, the index, and the base means."""
    folder = folder_at(path)
    if not folder.exists(INDEX):
        what = "address" if is_address(os.fsdecode(path)) else "folder"
        raise InputError(f"{os.fsdecode(path)}: this {what} has no {INDEX}, so it is not a bank in parts.")
    with folder.errors_name(INDEX):
        index = _parse(folder.content(INDEX, limits.JSON))
    base = {}
    if folder.exists(BASE):
        with folder.errors_name(BASE), damaged_is_said(), folder.opened(BASE) as file:
            found = TensorFile(file, "np", folder.size(BASE))
            base = {name.removeprefix("base."): found.get_tensor(name) for name in found.names}
    return PartedFeatures(folder, index), index, base


def read(path: str | os.PathLike[str]) -> BankContent:
    """Read what a bank needs, all but the features."""
    features, index, base = open_parts(path)
    return BankContent(features, features.labels(), index.class_names, index.meta, base)  # type: ignore[arg-type]


def write(
    bank: BankContent, path: str | os.PathLike[str], *, store: str, part_rows: int, suffix: str = ".safetensors"
) -> Index:
    """Write a bank in parts of `part_rows` rows; the index comes last, so a killed write leaves no bank."""
    folder = folder_at(path)
    must_be_free(folder)
    folder.remove(INDEX)  # from here on it is no bank until the new index is written
    parts = []
    for number, begin in enumerate(range(0, len(bank.labels), part_rows)):
        rows = slice(begin, min(begin + part_rows, len(bank.labels)))
        parts.append(write_part(folder, part_name(number, suffix), bank.features[rows], bank.labels[rows], store))
    names = tuple(bank.class_names or ())
    return write_index(folder, parts, width=int(bank.features.shape[1]), store=store, class_names=names,
                       meta=bank.meta, base=bank.base)  # fmt: skip


def write_index(
    folder: Folder,
    parts: Iterable[Part],
    *,
    width: int,
    store: str,
    class_names: Sequence[str],
    meta: Mapping[str, str],
    base: Mapping[str, NDArray[np.float32]],
) -> Index:
    """Turn existing parts into a bank: write the base means, then the index."""
    index = Index(width, store, tuple(class_names), dict(meta), tuple(parts))
    if base:
        from safetensors.numpy import save_file

        with folder.writing(BASE) as temporary:
            save_file({f"base.{prefix}": np.asarray(mean, np.float32) for prefix, mean in base.items()}, temporary)
    else:
        folder.remove(BASE)
    with folder.writing(INDEX) as temporary:
        temporary.write_text(_text(index), encoding="utf-8")
    listed = {part.file for part in index.parts}
    for name in folder.names():
        if _PART.fullmatch(name) and name not in listed:  # of an older bank
            folder.remove(name)
    return index


def part_name(number: int, suffix: str = ".safetensors") -> str:
    """Return the name of a part.

    >>> part_name(7)
    'part-00007.safetensors'
    """
    return f"part-{number:05d}{suffix}"


def must_be_free(folder: Folder) -> None:
    """Refuse a folder that holds anything but the parts of an unfinished or older bank."""
    names = (name for name in folder.names() if name not in (INDEX, BASE) and not name.startswith(".sinkshot-"))
    if others := [name for name in names if not _PART.fullmatch(name)]:
        raise InputError(f"{folder.address} holds other files ({others[0]!r}); give an empty or new folder.")


def _text(index: Index) -> str:
    parts = [{"file": p.file, "rows": p.rows, "bytes": p.size, "sha256": p.sha256} for p in index.parts]
    facts = {"kind": KIND, "version": VERSION, "rows": index.rows, "width": index.width, "store": index.store}
    return json.dumps({**facts, "class_names": index.class_names, "meta": dict(index.meta), "parts": parts}, indent=1)


def _parse(text: bytes) -> Index:
    """Read an index and check that it is consistent."""
    found = texts.json_object(text, "the index")
    if found.get("kind") != KIND:
        raise InputError("it is not the index of a bank in parts.")
    if not isinstance(found.get("version"), int) or found["version"] > VERSION:
        raise InputError(
            f"it has version {found.get('version')!r:.20}; this SinkShot reads up to {VERSION}: upgrade it."
        )
    names, meta, parts = found.get("class_names"), found.get("meta"), found.get("parts")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("its class_names are not a list of texts.")
    if not isinstance(meta, dict) or not all(isinstance(value, str) for value in meta.values()):
        raise InputError("its meta does not map texts to texts.")
    width = found.get("width")
    if type(width) is not int or not 0 < width < 1 << 31:
        raise InputError(f"its width is {width!r:.40}; a positive number is expected.")
    if not isinstance(parts, list) or not parts or len(parts) > limits.MEMBERS.value:
        raise InputError(f"it lists no parts, or more than {limits.MEMBERS.value:,}.")
    listed = tuple(_part(part) for part in parts)
    if len({part.file for part in listed}) < len(listed):
        raise InputError("it lists a part twice.")
    index = Index(width, str(found.get("store")), tuple(names), meta, listed)
    if found.get("rows") != index.rows:
        raise InputError(f"it says {found.get('rows')!r:.40} rows, and its parts have {index.rows:,}.")
    return index


def _part(found: Any) -> Part:
    if not isinstance(found, dict) or set(found) != {"file", "rows", "bytes", "sha256"}:
        raise InputError("it lists a part without file, rows, bytes and sha256.")
    file, rows, size, digest = found["file"], found["rows"], found["bytes"], found["sha256"]
    if not isinstance(file, str) or not _NAME.fullmatch(file) or not file.endswith(SUFFIXES):
        raise InputError(
            f"it lists a part called {file!r:.80}; a plain name ending in .safetensors or .parquet expected."
        )
    if type(rows) is not int or type(size) is not int or not 0 < rows < 1 << 40 or not 0 < size < 1 << 50:
        raise InputError(f"it says that {file} has {rows!r:.20} rows and {size!r:.20} bytes.")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError(f"the sha256 of {file} is not 64 hexadecimal digits.")
    return Part(file, rows, size, digest)


def _in_range(number: int, rows: int) -> int:
    number = number + rows if number < 0 else number
    if not 0 <= number < rows:
        raise IndexError(f"row {number} of {rows}")
    return number
