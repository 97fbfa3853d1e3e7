"""A cache of features in one SQLite file, keyed by the content of each item and of the encoder.

A second run only classifies; only changed or added items are encoded; a killed run resumes after its last batch.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign import databases
from sinkshot.foreign.files import opened

NAME = "features.sqlite"
_SCHEMA = """
create table if not exists features (encoder text, item blob, vector blob, primary key (encoder, item));
create table if not exists files (path blob primary key, size integer, modified integer, item blob) without rowid;
"""
"""Features stand in the order of writing, so that new ones go to few pages. In older caches they stand in the order of
digests (`without rowid`); the same statements read and write both."""
_AT_ONCE = 500  # items per query
_SMALL = 1 << 20  # bytes up to which a file is read at once
Digest = bytes


class FeatureCache:
    """An open cache. Features of one encoder; digests of files are kept with their size and time of change."""

    def __init__(self, file: Path, encoder: str, width: int) -> None:
        self.file, self.encoder, self.width = file, encoder, width
        self._read: list[tuple[bytes, int, int, Digest]] = []  # rows of files, not written yet
        self._new: list[tuple[str, Digest, bytes]] = []  # rows of features, not written yet
        with self._told():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = databases.connect(file, timeout=60)
            self._database.executescript(_SCHEMA)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn errors of SQLite (a damaged file, a locked one) into an InputError."""
        try:
            yield
        except InputError:
            raise
        except (OSError, sqlite3.Error, ValueError) as error:  # a damaged name or text is not UTF-8
            raise InputError(
                f"features cannot be cached in {self.file} ({getattr(error, 'strerror', None) or error}); choose "
                "another folder with --cache, or remove that file."
            ) from None

    def unchanged(self, paths: Sequence[Path]) -> list[Digest | None]:
        """Return the digests of files that are kept with their size and modification time; None for other files."""
        keys = [_key(path) for path in paths]
        kept: dict[bytes, tuple[tuple[int, int], Digest]] = {}
        for at in range(0, len(keys), _AT_ONCE):
            part = keys[at : at + _AT_ONCE]
            query = f"select path, size, modified, item from files where path in ({_marks(part)})"
            with self._told():
                rows = self._database.execute(query, part).fetchall()
            kept |= {path: ((size, modified), item) for path, size, modified, item in rows if _is_digest(item)}
        digests: list[Digest | None] = [None] * len(keys)
        for i, key in enumerate(keys):
            if key in kept and kept[key][0] == _facts(paths[i]):
                digests[i] = kept[key][1]
        return digests

    def of_file(self, path: Path) -> tuple[Digest, bytes | None]:
        """Read a file and return the digest of its content, which `write` keeps, and the content of a small file."""
        content = None
        with opened(path) as file:
            facts = os.fstat(file.fileno())
            if facts.st_size <= _SMALL:
                content = file.read(facts.st_size)
                digest = hashlib.sha256(content).digest()
            else:
                digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
        self._read.append((_key(path), facts.st_size, facts.st_mtime_ns, digest))
        if len(self._read) >= _AT_ONCE:
            self.write()
        return digest, content

    def known(self, items: Sequence[Digest]) -> dict[Digest, NDArray[np.float32]]:
        """Return the cached features, by digest."""
        found: dict[Digest, NDArray[np.float32]] = {}
        for at in range(0, len(items), _AT_ONCE):
            part = items[at : at + _AT_ONCE]
            query = f"select item, vector from features where encoder = ? and item in ({_marks(part)})"
            with self._told():
                rows = self._database.execute(query, (self.encoder, *part)).fetchall()
            found |= {item: np.frombuffer(vector, np.float32) for item, vector in rows if self._is_vector(vector)}
        return found

    def add(self, items: Iterable[Digest], features: NDArray[np.float32]) -> None:
        """Add features. They are written by `write`; until then `known` does not find them."""
        self._new += [(self.encoder, item, row.tobytes()) for item, row in zip(items, features, strict=True)]

    def write(self) -> None:
        """Write what is new; it is on the disk when this returns.

        All at once, because other processes wait while a transaction is open.
        """
        (new, self._new), (read, self._read) = (self._new, []), (self._read, [])
        with self._told():
            self._database.executemany("insert or replace into features values (?, ?, ?)", new)
            self._database.executemany("insert or replace into files values (?, ?, ?, ?)", read)
            self._database.commit()

    def _is_vector(self, value: object) -> bool:
        """Whether a stored value is a vector of this encoder; anything else is computed again."""
        if not isinstance(value, bytes) or len(value) != 4 * self.width:
            return False
        return bool(np.isfinite(np.frombuffer(value, np.float32)).all())

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            self.write()
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _key(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))


def _facts(path: Path) -> tuple[int, int] | None:
    """Size and modification time of a file; None if it cannot be seen."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_size, facts.st_mtime_ns


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _is_digest(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == hashlib.sha256().digest_size


def of_text(text: str) -> Digest:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
