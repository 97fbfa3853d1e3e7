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
create table if not exists features (encoder text, item blob, vector blob, primary key (encoder, item)) without rowid;
create table if not exists files (path blob primary key, size integer, modified integer, item blob) without rowid;
"""
_AT_ONCE = 500  # items per query
Digest = bytes


class FeatureCache:
    """An open cache. Features of one encoder; digests of files are kept with their size and time of change."""

    def __init__(self, file: Path, encoder: str, width: int) -> None:
        self.file, self.encoder, self.width = file, encoder, width
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

    def of_file(self, path: Path) -> Digest:
        """Return the digest of a file's content, read again only if its size or modification time has changed."""
        facts, key = path.stat(), os.fsencode(os.path.abspath(path))
        with self._told():
            row = self._database.execute("select size, modified, item from files where path = ?", (key,)).fetchone()
        if row is not None and row[:2] == (facts.st_size, facts.st_mtime_ns) and _is_digest(row[2]):
            return bytes(row[2])
        with opened(path) as file:
            digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
        known = (key, facts.st_size, facts.st_mtime_ns, digest)
        with self._told():
            self._database.execute("insert or replace into files values (?, ?, ?, ?)", known)
        return digest

    def known(self, items: Sequence[Digest]) -> dict[Digest, NDArray[np.float32]]:
        """Return the cached features, by digest."""
        found: dict[Digest, NDArray[np.float32]] = {}
        for at in range(0, len(items), _AT_ONCE):
            part = items[at : at + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"select item, vector from features where encoder = ? and item in ({marks})"
            with self._told():
                rows = self._database.execute(query, (self.encoder, *part)).fetchall()
            found |= {item: np.frombuffer(vector, np.float32) for item, vector in rows if self._is_vector(vector)}
        return found

    def keep(self, items: Iterable[Digest], features: NDArray[np.float32]) -> None:
        """Add features; they are on the disk when this returns."""
        rows = [(self.encoder, item, row.tobytes()) for item, row in zip(items, features, strict=True)]
        with self._told():
            self._database.executemany("insert or replace into features values (?, ?, ?)", rows)
            self._database.commit()

    def _is_vector(self, value: object) -> bool:
        """Whether a stored value is a vector of this encoder; anything else is computed again."""
        if not isinstance(value, bytes) or len(value) != 4 * self.width:
            return False
        return bool(np.isfinite(np.frombuffer(value, np.float32)).all())

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            with self._told():
                self._database.commit()
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _is_digest(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == hashlib.sha256().digest_size


def of_text(text: str) -> Digest:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
