"""SQLite files: regular ones, without anything that makes SQLite compute or touch other files when they are opened."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sinkshot.errors import InputError
from sinkshot.foreign.files import is_regular, opened
from sinkshot.foreign.limits import CELL

_NAMES_ANOTHER = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"  # the end of a journal that names a further file
_CODE = "SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'create virtual%' LIMIT 1"


def connect(path: Path, *, query: str | None = None, timeout: float = 5.0) -> sqlite3.Connection:
    """Open a database, a new one if there is none; with a query, read it under SQLite's URI options."""
    if os.path.lexists(path) and not is_regular(path):
        raise InputError(f"{path} is not a regular file; give another place.")
    _must_name_no_other(path.with_name(f"{path.name}-journal"))
    place = path if query is None else f"{path.resolve().as_uri()}?{query}"
    database = sqlite3.connect(place, timeout=timeout, uri=query is not None)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL.value)
        database.execute("PRAGMA trusted_schema = OFF")
        if (found := database.execute(_CODE).fetchone()) is not None:
            raise InputError(f"{path} is a database with a view or trigger ({found[0]!r:.60}), which is not used.")
    except BaseException:
        database.close()
        raise
    return database


def _must_name_no_other(journal: Path) -> None:
    """Refuse a journal that names a further file, which SQLite would delete; ours name none."""
    try:
        with opened(journal) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
            if file.read() == _NAMES_ANOTHER:
                raise InputError(f"{journal} names another file; it was not made by SinkShot. Remove it.")
    except FileNotFoundError:  # usual: a journal is there only while somebody writes
        if journal.is_symlink():
            raise InputError(f"{journal} is a link to a file that does not exist. Remove it.") from None
