"""NumPy files: headers are checked against the file and against each other before memory is allocated."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import (
    ARRAY_HEADER,
    DIMENSIONS,
    DIRECTORY,
    LABELS,
    MEMBERS,
    MEMORY,
    WIDTH,
    Limit,
    admit,
    admit_rows,
    amount,
)

_BLOCK = 1 << 20
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"


class Header(NamedTuple):
    """The header of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    length: int  # bytes before its data

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) * self.dtype.itemsize


def header(file: IO[bytes], what: str) -> Header:
    """Read the header of an array, of plain numbers or strings."""
    begin = file.read(8)
    if len(begin) < 8 or begin[:6] != b"\x93NUMPY" or begin[6] not in (1, 2, 3):
        raise InputError(f"{what} is not an array in NumPy's format.")
    field = file.read(2 if begin[6] == 1 else 4)
    length = int.from_bytes(field, "little")
    if length > ARRAY_HEADER.value:
        raise InputError(f"{what} has a header of {length:,} bytes; at most {ARRAY_HEADER.value:,} are allowed.")
    text = BytesIO(field + file.read(length))
    parse = np.lib.format.read_array_header_1_0 if begin[6] == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = parse(text)
    except Exception as error:  # the header is a Python expression, so almost anything can be wrong with it
        raise InputError(f"{what} has a damaged header ({error!s:.160}).") from error
    if dtype.hasobject:
        raise InputError(f"{what} holds Python objects, which are not read; store plain numbers.")
    if dtype.kind not in "fiubSU" or dtype.itemsize == 0:
        raise InputError(f"{what} holds {dtype!s:.60}; plain numbers or strings are expected.")
    if len(shape) > DIMENSIONS.value or any(not 0 <= n < 1 << 63 for n in shape):
        raise InputError(f"{what} has a damaged header: its shape is invalid.")
    return Header(shape, dtype, fortran, 8 + len(field) + length)


def read_array(path: str | os.PathLike[str], what: str) -> NDArray[Any]:
    """Read the array of an `.npy` file, float16 as float32."""
    with opened(path) as file:
        found, size = header(file, what), size_of(file)
        if found.size > size - found.length:
            raise InputError(
                f"{what} declares {amount(found.size)}, but {amount(size - found.length)} follow; the file is "
                "truncated or damaged."
            )
        half = found.dtype == np.float16
        array = np.empty(found.shape, np.float32 if half else found.dtype, order="F" if found.fortran else "C")
        flat, entries = array.reshape(-1, order="A"), _BLOCK // found.dtype.itemsize or 1
        for at in range(0, flat.size, entries):
            part = np.empty(min(entries, flat.size - at), found.dtype) if half else flat[at : at + entries]
            if file.readinto(part.view(np.uint8).data) != part.nbytes:  # type: ignore[attr-defined]
                raise InputError(f"{what} was cut short while it was read.")
            if half:
                flat[at : at + entries] = part
    array.flags.writeable = False
    return array


class Archive:
    """The arrays of an open `.npz` file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size = file, size_of(file)
        self.zip = zip_archive(file)
        self.names = [name.removesuffix(".npy") for name in self.zip.namelist() if name.endswith(".npy")]

    def header(self, name: str) -> Header:
        """Read the header of an array, and check that the archive holds as many bytes as it declares."""
        with self._member(name) as file:
            return self._header(file, name)

    def array(self, name: str, least: Limit = MEMORY) -> NDArray[Any]:
        """Read an array, after checking that the file may use that much memory."""
        with self._member(name) as file:
            found = self._header(file, name)
            admit(found.size, self.size, f"its array {name!r:.60}", least)
            array = np.empty(found.shape, found.dtype, order="F" if found.fortran else "C")
            data = array.reshape(-1, order="A").view(np.uint8).data if array.size else memoryview(b"")
            at = 0
            while part := file.read(_BLOCK):
                data[at : at + len(part)] = part
                at += len(part)
        if at != found.size:
            raise InputError(f"its array {name!r:.60} ends after {amount(at)} of {amount(found.size)}; it is damaged.")
        return array

    def features(self) -> NDArray[Any]:
        """Read the array of features, [rows, columns], after checking that what follows it fits memory, too."""
        shape = self.header("features").shape
        if len(shape) == 2 and shape[1] > WIDTH.value:
            raise InputError(f"its rows have {shape[1]:,} features; at most {WIDTH.value:,} are allowed.")
        admit_rows(shape[0] if shape else 0, self.size, "its array 'features'")
        return self.array("features")

    def labels(self, name: str) -> NDArray[Any]:
        """Read an array of labels or names, which have a lower limit because they are processed as a whole."""
        return self.array(name, LABELS)

    def mapped(self, name: str) -> NDArray[Any]:
        """Memory-map an uncompressed array; read a compressed one."""
        entry = self._entry(name)
        with self._member(name) as file:
            found = self._header(file, name)
        if entry.compress_type != zipfile.ZIP_STORED or found.fortran or found.size == 0:
            return self.array(name)
        self.file.seek(entry.header_offset)
        local = self.file.read(30)  # the local header of a member repeats the lengths, which may differ
        names = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        start = entry.header_offset + 30 + names + found.length
        if start + found.size > self.size:
            raise InputError(f"its array {name!r:.60} ends beyond the end of the file; it is truncated or damaged.")
        return np.memmap(self.file, found.dtype, "r", start, found.shape)

    def _entry(self, name: str) -> zipfile.ZipInfo:
        try:
            return self.zip.getinfo(f"{name}.npy")
        except KeyError as error:
            raise InputError(f"it holds no array {name!r}.") from error

    @contextmanager
    def _member(self, name: str) -> Iterator[IO[bytes]]:
        with member(self.zip, self._entry(name)) as file:
            yield file

    def _header(self, file: IO[bytes], name: str) -> Header:
        found, entry = header(file, f"its array {name!r:.60}"), self._entry(name)
        if found.length + found.size != entry.file_size:
            raise InputError(
                f"its array {name!r:.60} declares {amount(found.size)}, and "
                f"{amount(max(0, entry.file_size - found.length))} follow; the file is truncated or damaged."
            )
        return found


@contextmanager
def archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """Open an `.npz` file; any fault raises an InputError."""
    with opened(path) as file, damage_told():
        yield Archive(file)


@contextmanager
def damage_told() -> Iterator[None]:
    """Turn what zipfile and zlib raise on a damaged archive into an InputError."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"the archive is truncated or damaged ({type(error).__name__}: {error}).") from error


def zip_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip archive whose directory is not too long."""
    _check_directory(file)
    found = zipfile.ZipFile(file)
    if (count := len(found.infolist())) > MEMBERS.value:
        raise InputError(f"it has {count:,} members; at most {MEMBERS.value:,} are allowed.")
    return found


@contextmanager
def member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """Open a member that is stored or deflated."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"its member {entry.filename!r:.60} has an unknown compression; use deflate or none.")
    if entry.flag_bits & 1:
        raise InputError(f"its member {entry.filename!r:.60} is encrypted.")
    with archive.open(entry) as file:
        yield file


def _check_directory(file: BinaryIO) -> None:
    """Refuse a long directory before zipfile makes objects of it."""
    size = size_of(file)
    file.seek(max(0, size - (1 << 16) - 128))
    tail = file.read()
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    lengths = [int.from_bytes(tail[at + 12 : at + 16], "little")] if at >= 0 else []
    lengths += [int.from_bytes(tail[at_64 + 40 : at_64 + 48], "little")] if at_64 >= 0 else []
    if any(DIRECTORY.value < length <= size for length in lengths):
        raise InputError(f"its directory is longer than {amount(DIRECTORY.value)}.")
    file.seek(0)
