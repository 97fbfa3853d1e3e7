"""Files of `torch.save`, read without torch's own reader: tensors and plain containers, and nothing is run.

Two layouts: a zip archive with `data.pkl` and one member for each storage (since torch 1.6), and before that several
pickles one after another, followed by the storages.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sinkshot.errors import InputError
from sinkshot.foreign.arrays import damage_told, member, zip_archive
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import DIMENSIONS, admit
from sinkshot.foreign.pickles import Lent, Stateful, checked, kind, loads
from sinkshot.formats.plk import FUNCTIONS, plain

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class _Kind(Lent):
    """The type of a storage's numbers."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(_never)
        self.dtype = dtype


class _Storage:
    """Numbers in a row; `data` comes when they are read."""

    __slots__ = ("count", "data", "dtype", "key")

    def __init__(self, key: str, dtype: torch.dtype, count: int) -> None:
        self.key, self.dtype, self.count = key, dtype, count
        self.data: Tensor | None = None


class _Tensor(Stateful):
    """A view of a storage."""

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride
        numbers = [offset, *_whole_numbers(size), *_whole_numbers(stride)]
        if not isinstance(storage, _Storage) or len(self.size) != len(self.stride):
            raise InputError("it has a tensor without storage or shape; it may be damaged.")
        if not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            raise InputError("it has a tensor with an invalid shape; it may be damaged.")
        last = offset + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        if math.prod(self.size) and last >= storage.count:
            raise InputError("it has a tensor that reaches beyond its storage; it may be damaged.")

    def __setstate__(self, state: Any) -> None:
        """Attributes of a tensor are left out."""

    def content(self) -> Tensor:
        data = self.storage.data
        if data is None:
            raise InputError("it has a tensor whose numbers are missing; it may be truncated.")
        return data.as_strided(self.size, self.stride, self.offset)


def read(path: Path) -> Any:
    """Return what a file holds, in plain dicts and lists with tensors (and NumPy arrays)."""
    with opened(path) as file, damage_told():
        size = size_of(file)
        content, tensors = _zipped(file, size) if file.read(4) == b"PK\x03\x04" else _in_a_row(file, size)
        for found in tensors:
            admit(math.prod(found.size) * found.storage.dtype.itemsize, size, "one of its tensors")
        return checked(content, _translated)


def _zipped(file: BinaryIO, size: int) -> tuple[Any, list[_Tensor]]:
    archive = zip_archive(file)
    entry = next((e for e in archive.infolist() if e.filename.endswith("/data.pkl")), None)
    if entry is None:
        raise InputError("it is a zip archive without data.pkl.")
    root = entry.filename.removesuffix("data.pkl")
    order = f"{root}byteorder"
    if order in archive.namelist() and _member(archive, archive.getinfo(order), size) != sys.byteorder.encode():
        raise InputError("its byte order differs from this machine's.")
    storages: dict[str, _Storage] = {}
    lending = _Lending(storages)
    content, _ = loads(bytes(_member(archive, entry, size)), lending.functions, lending.storage)
    total = 0
    for storage in storages.values():
        place = archive.getinfo(f"{root}data/{storage.key}")
        if place.file_size != storage.count * storage.dtype.itemsize:
            raise InputError("it has a storage whose length is not as declared; it may be damaged.")
        total += place.file_size
        admit(total, size, "its tensors")
        storage.data = _numbers(_member(archive, place, size), storage.dtype)
    return content, lending.tensors


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> bytearray:
    admit(entry.file_size, size, f"its member {entry.filename!r:.60}")
    with member(archive, entry) as opened_member:
        return bytearray(opened_member.read())


def _in_a_row(file: BinaryIO, size: int) -> tuple[Any, list[_Tensor]]:
    file.seek(0)
    data, at, storages = file.read(size), 0, dict[str, _Storage]()
    for expected in (_MAGIC, _PROTOCOL):
        found, at = loads(data, {}, start=at)
        if found != expected:
            raise InputError("it does not begin as such files do.")
    _, at = loads(data, {}, start=at)  # sizes of integers on the machine that wrote it
    lending = _Lending(storages)
    content, at = loads(data, lending.functions, lending.storage, at)
    keys, at = loads(data, {}, start=at)
    for key in checked(keys) if isinstance(keys, list) else []:
        storage = storages.get(str(key))
        count = int.from_bytes(data[at : at + 8], "little")
        if storage is None or storage.count != count:
            raise InputError("it has a storage whose length is not as declared; it may be damaged.")
        end = at + 8 + count * storage.dtype.itemsize
        if end > len(data):
            raise InputError("it ends early; it is truncated.")
        storage.data = _numbers(bytearray(data[at + 8 : end]), storage.dtype)
        at = end
    return content, lending.tensors


def _numbers(data: bytearray, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)


class _Lending:
    """The functions that a checkpoint may call, and what it has made with them."""

    def __init__(self, storages: dict[str, _Storage]) -> None:
        self.storages = storages
        self.tensors: list[_Tensor] = []
        tensor, same = Lent(self.tensor), Lent(lambda value, *_: value)
        self.functions: Mapping[tuple[str, str], Lent] = {
            **FUNCTIONS,
            **_KINDS,
            ("torch._utils", "_rebuild_tensor"): tensor,
            ("torch._utils", "_rebuild_tensor_v2"): tensor,
            ("torch._utils", "_rebuild_parameter"): same,
            ("torch._utils", "_rebuild_sparse_tensor"): Lent(lambda *_: None),  # there, but no weights
            ("torch.serialization", "_get_layout"): Lent(lambda *_: None),
            ("torch", "Size"): same,
            ("torch", "device"): same,
        }

    def tensor(self, *arguments: Any) -> _Tensor:
        self.tensors.append(_Tensor(*arguments))
        return self.tensors[-1]

    def storage(self, pid: Any) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], _Kind):
            raise InputError(f"it refers to {kind(pid)}, expected a storage.")
        form, key, count = pid[1], str(pid[2]) if isinstance(pid[2], str | int) else "", pid[4]
        if not key or type(count) is not int or not 0 <= count < 1 << 48 or any(view is not None for view in pid[5:]):
            raise InputError("it has a storage without name or length, or a view of one; it may be damaged.")
        found = self.storages.setdefault(key, _Storage(key, form.dtype, count))
        if (found.dtype, found.count) != (form.dtype, count):
            raise InputError("it has two storages with the same name; it may be damaged.")
        return found


def _translated(value: Any) -> Any:
    return value.content() if isinstance(value, _Tensor) else plain(value)


def _whole_numbers(values: Any) -> Sequence[Any]:
    if not isinstance(values, list | tuple) or len(values) > DIMENSIONS.value:
        raise InputError("it has a tensor with an invalid shape; it may be damaged.")
    return values


def _never(*_: Any) -> Any:
    raise InputError("it calls the type of a number, which checkpoints never do.")


_STORAGES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_KINDS: dict[tuple[str, str], Lent] = {
    (module, f"{name}Storage"): _Kind(dtype)
    for name, dtype in _STORAGES.items()
    for module in ("torch", "torch.cuda", "torch.storage")
}
