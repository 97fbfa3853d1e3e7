"""Folders on this machine or at an address of fsspec (`s3://bucket/folder`), read by ranges and written file by file.

Ranges are read, never memory-mapped: truncating a mapped file ends the process that reads it (SIGBUS); here it raises
an error. A file appears under its name completely or not at all: locally by a rename, in an object store by one upload.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.foreign.files import opened
from sinkshot.foreign.limits import Limit, amount

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address such as `s3://bucket/folder`.

    >>> is_address("s3://bucket/birds"), is_address("birds"), is_address("C:/birds")
    (True, False, False)
    """
    return isinstance(path, str) and _REMOTE.match(path) is not None


class Folder(ABC):
    """Files by name in one place."""

    address: str
    gap: int  # bytes between two ranges that are rather read than asked around

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the files in it, sorted; none if there is no such folder."""

    @abstractmethod
    def opened(self, name: str) -> BinaryIO:
        """Open a file for reading."""

    @abstractmethod
    def ranges(self, name: str, begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """Read the bytes between each beginning and end; fewer only where the file ends."""

    @abstractmethod
    def writing(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Yield a local temporary file that gets the name once it is complete."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def path_of(self, name: str) -> str:
        """Return the address of a file in it, for messages."""
        return f"{self.address.rstrip('/')}/{name}"

    def content(self, name: str, limit: Limit) -> bytes:
        """Return all bytes of a file that is not longer than the limit."""
        with self.errors_name(name):
            if (size := self.size(name)) > limit.value:
                raise InputError(f"it has {amount(size)}, more than the {amount(limit.value)} of {limit.bounds}.")
            with self.opened(name) as file:
                return file.read(size)

    @contextlib.contextmanager
    def errors_name(self, name: str) -> Iterator[None]:
        """Turn an error about a file into an InputError that begins with its address."""
        try:
            yield
        except InputError as error:
            place = self.path_of(name)
            raise error if str(error).startswith(place) else InputError(f"{place}: {error}") from error
        except FileNotFoundError as error:
            raise InputError(f"{self.path_of(name)} does not exist.") from error
        except OSError as error:
            raise InputError(f"{self.path_of(name)} cannot be used: {error.strerror or error}.") from error


class LocalFolder(Folder):
    """A folder of this machine."""

    gap = 1 << 12

    def __init__(self, path: Path) -> None:
        self.path, self.address = path, str(path)

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.path / name).is_file()

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return (self.path / name).stat().st_size

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self.path) if entry.is_file())
        return []

    def opened(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return opened(self.path / name)

    def ranges(self, name: str, begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """Read the bytes between each beginning and end."""
        with self.opened(name) as file:
            return [_read_at(file, begin, end - begin) for begin, end in zip(begins, ends, strict=True)]

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a local temporary file that gets the name once it is complete."""
        with self.errors_name(name):
            self.path.mkdir(parents=True, exist_ok=True)
            with replacing(self.path / name) as temporary:
                yield temporary

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)


class RemoteFolder(Folder):
    """A folder at an address of fsspec."""

    gap = 1 << 20  # a request takes about as long as reading this many bytes

    def __init__(self, address: str) -> None:
        self.address = address
        self.files, self.path = _file_system(address)

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        with _sentences(self.path_of(name)):
            try:
                return bool(self.files.info(self._place(name))["type"] == "file")
            except FileNotFoundError:
                return False

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with _sentences(self.path_of(name)):
            return int(self.files.size(self._place(name)))

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted."""
        with _sentences(self.address):
            self.files.invalidate_cache(self.path)
            with contextlib.suppress(FileNotFoundError):
                found = self.files.ls(self.path, detail=True)
                return sorted(entry["name"].rsplit("/", 1)[-1] for entry in found if entry["type"] == "file")
            return []

    def opened(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        with _sentences(self.path_of(name)):
            found: BinaryIO = self.files.open(self._place(name), "rb")
            return found

    def ranges(self, name: str, begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """Read the bytes between each beginning and end."""
        place = self._place(name)
        with _sentences(self.path_of(name)):
            return list(self.files.cat_ranges([place] * len(begins), list(begins), list(ends), on_error="raise"))

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a local temporary file that gets the name once it is complete."""
        with TemporaryDirectory(prefix="sinkshot-") as local:
            temporary = Path(local) / "file"
            yield temporary
            with _sentences(self.path_of(name)):
                self.files.makedirs(self.path, exist_ok=True)
                self.files.put_file(str(temporary), self._place(name))
                self.files.invalidate_cache(self.path)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _sentences(self.path_of(name)), contextlib.suppress(FileNotFoundError):
            self.files.rm_file(self._place(name))
            self.files.invalidate_cache(self.path)

    def below(self) -> list[tuple[str, str]]:
        """Return all files at or below it, sorted: names relative to it, and what changes when their content does."""
        with _sentences(self.address):
            self.files.invalidate_cache(self.path)
            found = self.files.find(self.path, detail=True)
        start = len(self.path.rstrip("/")) + 1
        marks = ("ETag", "etag", "md5Hash", "LastModified", "mtime", "size")
        return sorted(
            (place[start:], " ".join(str(facts[mark]) for mark in marks if mark in facts))
            for place, facts in found.items()
        )

    def _place(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


def folder_at(path: str | os.PathLike[str]) -> Folder:
    """Return the folder at a path or an address; `file://` is this machine."""
    text = os.fsdecode(path)
    if text.lower().startswith("file://"):
        from urllib.parse import unquote, urlsplit

        return LocalFolder(Path(unquote(urlsplit(text).path)))
    return RemoteFolder(text) if is_address(text) else LocalFolder(Path(text))


def free_space(folder: Folder) -> int | None:
    """Return the free bytes where a folder is or will be; None where that is not known."""
    if not isinstance(folder, LocalFolder):
        return None
    there = next((parent for parent in (folder.path, *folder.path.absolute().parents) if parent.is_dir()), None)
    return None if there is None else shutil.disk_usage(there).free


def _read_at(file: BinaryIO, begin: int, size: int) -> bytes:
    if hasattr(os, "pread") and size < 1 << 30:  # one call reads no more than 2 GiB
        return os.pread(file.fileno(), size, begin)
    file.seek(begin)
    return file.read(size)


def _file_system(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise InputError(f"{address} is a remote folder, which needs fsspec: pip install 'sinkshot[dask]'.") from None
    try:
        files, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # a file system that is not installed, or not known
        raise InputError(f"{address} cannot be opened: {str(error).rstrip('.')}.") from None
    return files, path


@contextlib.contextmanager
def _sentences(place: str) -> Iterator[None]:
    """Turn what a file system raises into an InputError; the libraries below fsspec have errors of their own."""
    try:
        yield
    except (InputError, MemoryError, KeyboardInterrupt):
        raise
    except FileNotFoundError as error:
        raise InputError(f"{place} does not exist.") from error
    except Exception as error:
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(f"{place} cannot be used: {reason}.") from error
