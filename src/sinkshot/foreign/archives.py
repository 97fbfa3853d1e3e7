"""Tar archives, plain or gzipped: read regular members by name, up to a limit of unpacked bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Collection
from typing import IO, Any

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import MEMBERS, VARIABLE, admit, allowed, amount


def is_tar(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is a tar archive, plain or gzipped; reads little more than its first block."""
    try:
        with opened(path) as file, _archive(file):
            return True
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return False


def members(path: str | os.PathLike[str], names: Collection[str]) -> dict[str, bytes]:
    """Return the content of regular members by their last name."""
    found: dict[str, bytes] = {}
    with opened(path) as file, _archive(file) as archive:
        for count, entry in enumerate(archive):
            if count >= MEMBERS.value:
                raise InputError(f"it has more than {MEMBERS.value:,} members.")
            name = entry.name.rpartition("/")[2]
            if name in names and entry.isreg() and not entry.issparse():
                admit(entry.size, size_of(file), f"its member {name!r}")
                opened_member = archive.extractfile(entry)
                found[name] = b"" if opened_member is None else opened_member.read()
            if len(found) == len(names):
                break
    return found


def _archive(file: IO[bytes]) -> tarfile.TarFile:
    size = os.fstat(file.fileno()).st_size
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    stream: Any = gzip.GzipFile(fileobj=file) if zipped else file
    return tarfile.open(fileobj=_Bounded(stream, allowed(size)), mode="r:")


class _Bounded(io.RawIOBase):
    """A stream that is read forwards, up to a number of bytes."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self.stream, self.most, self.place = stream, most, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise OSError("an archive can only be read from its beginning")
        self._must_stay(offset)
        self.place = self.stream.seek(offset)
        return self.place

    def read(self, size: int | None = -1) -> bytes:
        wanted = self.most - self.place + 1 if size is None or size < 0 else size
        self._must_stay(self.place + min(wanted, self.most - self.place + 1) - 1)
        found = self.stream.read(min(wanted, self.most - self.place + 1))
        self.place += len(found)
        return found

    def _must_stay(self, place: int) -> None:
        if place > self.most:
            raise InputError(
                f"it unpacks to more than {amount(self.most)}, which is too much for its size. If you trust it, "
                f"allow it with --max-memory (or {VARIABLE}) and an amount such as 8G."
            )
