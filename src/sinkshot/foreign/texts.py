"""Text files: TOML, the JSON of our own files, and lists of names, each checked before it is parsed."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from sinkshot.errors import InputError, printable
from sinkshot.foreign.files import content
from sinkshot.foreign.limits import COLUMNS, DEPTH, INTEGER, JSON, LINES, LIST, Limit, admit_rows

_TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}.=,\n]', re.S
)
_TOO_DEEP = f"more than {DEPTH.value} levels of brackets or keys within each other"


def text(path: str | os.PathLike[str], limit: Limit, encoding: str = "utf-8") -> str:
    """Return the text of a regular file that is not longer than the limit."""
    try:
        return content(path, limit).decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a list of names."""
    found = text(path, LIST, "utf-8-sig")
    if (count := found.count("\n")) > LINES.value:
        raise InputError(f"{path} has {count:,} lines; at most {LINES.value:,} are allowed.")
    return split(found)


def split(written: str) -> list[str]:
    """Return the lines of a text. Only line ends divide it, no form feed or separator within a line."""
    found = written.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return found if found[-1] else found[:-1]


def rows(path: str | os.PathLike[str]) -> str:
    """Return the text of a table, one row per line, after checking that the file may use memory for them."""
    found = text(path, LIST, "utf-8-sig")
    count = max(found.count("\n"), found.count("\r"))
    admit_rows(count, len(found), f"{path}: a table")
    return found


def must_be_narrow(columns: int, source: object) -> None:
    """Refuse a table of too many columns."""
    if columns > COLUMNS.value:
        raise InputError(f"{source} has {columns:,} columns; at most {COLUMNS.value:,} are allowed.")


def toml(written: str) -> dict[str, Any]:
    """Parse TOML; syntax errors are tomllib's, exceeded limits raise an InputError."""
    _must_be_shallow(written)
    try:
        table = tomllib.loads(written)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as error:
        raise InputError(f"it has {_TOO_DEEP}.") from error
    except ValueError as error:  # Python reads no integer of thousands of digits, and no month of 13
        raise InputError(f"it has a number or date that cannot be read ({error}).") from error
    for key, value, depth in _levels(table):
        if depth > DEPTH.value:
            raise InputError(f"it has {_TOO_DEEP}.")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise InputError(f"the value of {key!r:.60} is an integer of more than {INTEGER.value} bits.")
        if isinstance(value, str) and printable(plain := re.sub("[\t\n\r]", "", value)) != plain:
            raise InputError(f"the text of {key!r:.60} has control characters; write plain text.")
        if printable(key) != key:
            raise InputError(f"the key {key!r:.60} has control characters; write plain text.")
    return table


def json_value(written: str | bytes, what: str = "it", limit: Limit = JSON) -> Any:
    """Parse JSON; any fault raises an InputError."""
    if len(written) > limit.value:
        raise InputError(f"{what} has a JSON text of {len(written):,} bytes; at most {limit.value:,} are allowed.")
    try:
        found = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is damaged: it is not valid JSON ({error}).") from error
    if _brackets(written) > DEPTH.value and any(depth > DEPTH.value for *_, depth in _levels({what: found})):
        raise InputError(f"{what} has {_TOO_DEEP}.")
    return found


def _brackets(written: str | bytes) -> int:
    if isinstance(written, bytes):
        return written.count(b"[") + written.count(b"{")
    return written.count("[") + written.count("{")


def json_object(written: str | bytes, what: str = "it", limit: Limit = JSON) -> dict[str, Any]:
    """Parse a JSON object of our own files."""
    found = json_value(written, what, limit)
    if not isinstance(found, dict):
        raise InputError(f"{what} is damaged: it holds a JSON {type(found).__name__}, but an object is expected.")
    return found


def _must_be_shallow(written: str) -> None:
    """Count the nesting of brackets and of dotted keys, outside strings and comments."""
    depth = dots = 0
    for match in _TOKENS.finditer(written):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth = max(0, depth - 1)
        dots = dots + 1 if token == "." else dots if token[0] in "\"'" else 0
        if max(depth, dots) > DEPTH.value:
            raise InputError(f"it has {_TOO_DEEP}.")


def _levels(table: dict[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """Yield every key with its value and its level, and every element of an array with the key of the array."""
    waiting: list[tuple[str, Any, int]] = [(key, value, 1) for key, value in table.items()]
    while waiting:
        key, value, depth = waiting.pop()
        yield key, value, depth
        if isinstance(value, dict):
            waiting += [(name, inside, depth + 1) for name, inside in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inside, depth + 1) for inside in value]
