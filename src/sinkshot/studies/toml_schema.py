"""Check TOML files that users write: an error gives the line and the nearest known name."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from sinkshot.errors import InputError, shown
from sinkshot.foreign import limits, texts
from sinkshot.studies.toml_positions import Path, lines, nearest


@dataclass(frozen=True)
class ValueType:
    """What values a key accepts, in words and as a test."""

    wanted: str
    fits: Callable[[Any], bool]


def one_of(names: Collection[str]) -> ValueType:
    """One of a few names."""
    return ValueType(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def integer(least: int) -> ValueType:
    """A whole number of at least `least`."""
    return ValueType(f"a whole number of at least {least}", lambda value: type(value) is int and value >= least)


def real(wanted: str, fits: Callable[[float], bool]) -> ValueType:
    """A number of some range."""
    return ValueType(f"a number {wanted}", lambda value: _number(value) and fits(value))


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


TEXT = ValueType("a string", lambda value: isinstance(value, str))
NAME = ValueType("a non-empty string", lambda value: isinstance(value, str) and value.strip() != "")
TEXTS = ValueType('a list of strings, such as ["one", "two"]', _texts)
NAMES = ValueType('a list of names, such as ["one", "two"]', lambda value: _texts(value) and bool(value) and all(value))
NUMBER = ValueType("a number", _number)
SWITCH = ValueType("true or false", lambda value: isinstance(value, bool))
TABLE = ValueType("a table, such as { lam = 8.5 }", lambda value: isinstance(value, dict))
TABLES = ValueType(
    "a list of tables", lambda value: isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
)
ANYTHING = ValueType("a value", lambda value: True)


class Document:
    """The content of a TOML file, and the line of each key."""

    def __init__(self, file: File) -> None:
        self.file = file
        try:
            text = texts.text(file, limits.TOML)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}.") from error
        try:
            self.content = texts.toml(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{file}{_place(str(error), text)}") from error
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        self.lines = lines(text)

    def error(self, path: Path, sentence: str) -> InputError:
        """Return an error that begins with the file and the line of a key."""
        return InputError(f"{self.file}, line {nearest(self.lines, path)}: {sentence}")

    def check(self, table: Mapping[str, Any], path: Path, kinds: Mapping[str, ValueType], what: str) -> None:
        """Refuse a key that `what` does not have, and a value that its key cannot take."""
        for key, value in table.items():
            if key not in kinds:
                raise self.unknown((*path, key), f"{what} has no key {key!r}", key, kinds)
            kind = kinds[key]
            if not kind.fits(value):
                raise self.error((*path, key), f"{key} must be {kind.wanted}; {_shown(value)} was given.")

    def unknown(self, path: Path, sentence: str, given: str, known: Collection[str], advice: str = "") -> InputError:
        """Return the error for a name that is not among the known ones, with the nearest of them and perhaps advice."""
        near = difflib.get_close_matches(given[:100], known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else f"known: {', '.join(known)}."
        return self.error(path, " ".join(filter(None, [f"{sentence}; {hint}", advice])))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value)[:60]


def _place(message: str, text: str) -> str:
    """Turn tomllib's message into ours: its line first."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if match is None:
        return f" is not valid TOML: {message}."
    line = match[2] or str(text.count("\n") + 1)
    column = f", column {match[3]}" if match[3] else ", the end of the file"
    return f", line {line}: not valid TOML{column}: {match[1]}."
