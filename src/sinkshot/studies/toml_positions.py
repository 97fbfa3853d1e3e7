"""Find the line of each key of a TOML text, so that errors can point at it.

`tomllib` does not report positions. `lines` scans a text that `tomllib` has already accepted, so it needs to recognise
only keys, strings, brackets and comments.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable

Path = tuple[str | int, ...]
"""Keys and, in arrays, numbers from 0: ("sheets", 0, "rows", 3, "values")."""

_SPACE = re.compile(r"[ \t]*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*'""")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_PLAIN = re.compile(r"[^,\]}#\n]+")  # numbers, booleans, dates


def lines(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every key and of every element of an array in a valid TOML text."""
    return _Walk(text).found


def nearest(found: dict[Path, int], path: Path) -> int:
    """Return the line of a path or, where it has none, of the closest thing around it."""
    while path and path not in found:
        path = path[:-1]
    return found.get(path, 1)


class _Walk:
    """One pass over a text; `at` is where it stands."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.found: dict[Path, int] = {}
        self.tables: dict[Path, int] = {}  # how many tables each [[array]] has so far
        here: Path = ()
        while self.pass_over(_SPACE_AND_LINES) < len(text):
            if text[self.at] == "[":
                here = self.header()
            else:
                self.pair(here)

    def pass_over(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def mark(self, path: Path) -> None:
        self.found.setdefault(path, bisect_left(self.breaks, self.at) + 1)

    def keys(self) -> list[str]:
        """Read a dotted key."""
        parts = []
        while True:
            start = self.pass_over(_SPACE)
            parts.append(_unquote(self.text[start : self.pass_over(_KEY)]))
            if self.text[self.pass_over(_SPACE)] != ".":
                return parts
            self.at += 1

    def header(self) -> Path:
        """Read `[a.b]` or `[[a.b]]` and return the path of the table it opens."""
        start, array = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        keys = self.keys()
        stop, self.at = self.at + (2 if array else 1), start
        path: Path = ()
        for depth, key in enumerate(keys, start=1):
            path = (*path, key)
            self.mark(path)
            if array and depth == len(keys):
                self.tables[path] = self.tables.get(path, 0) + 1
            if path in self.tables:
                path = (*path, self.tables[path] - 1)
        self.mark(path)
        self.at = stop
        return path

    def pair(self, here: Path) -> None:
        """Read `key = value`."""
        start, keys = self.at, self.keys()
        stop, self.at = self.at, start
        for depth in range(1, len(keys) + 1):
            self.mark((*here, *keys[:depth]))
        self.at = stop + 1
        self.pass_over(_SPACE)
        self.value((*here, *keys))

    def value(self, path: Path) -> None:
        opening = self.text[self.at]
        if opening == "[":
            self.several(lambda number: self.element((*path, number)), "]")
        elif opening == "{":
            self.several(lambda _: self.pair(path), "}")
        elif opening in "\"'":
            self.pass_over(_STRING)
        else:
            self.pass_over(_PLAIN)

    def element(self, path: Path) -> None:
        self.mark(path)
        self.value(path)

    def several(self, item: Callable[[int], None], closing: str) -> None:
        """Read what stands between brackets, item by item."""
        self.at += 1
        number = 0
        while self.text[self.pass_over(_SPACE_AND_LINES)] != closing:
            item(number)
            number += 1
            if self.text[self.pass_over(_SPACE_AND_LINES)] == ",":
                self.at += 1
        self.at += 1


def _unquote(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 0"))) if key[0] in "\"'" else key
