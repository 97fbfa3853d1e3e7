"""The option `--set KEY=VALUE` that several subcommands have."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from sinkshot.errors import InputError
from sinkshot.foreign import texts

_WORDS = {"none": None, "true": True, "false": False}


def parse_settings(settings: Iterable[str], example: str) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each `KEY=VALUE`; `example` is what the error suggests.

    >>> list(parse_settings(["epochs=40", "prior=auto"], example="epochs=40"))
    [('epochs', 40), ('prior', 'auto')]
    """
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set takes KEY=VALUE, such as {example}; {setting!r} was given.")
        yield key.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Read a number, `none`, `true` or `false`, a list of these, or else the text itself.

    A list has commas, or is written as in TOML.

    >>> parse_value("40"), parse_value("0.5,0.5"), parse_value("[1, 5]"), parse_value("auto"), parse_value("false")
    (40, [0.5, 0.5], [1, 5], 'auto', False)
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text[:1] in ("[", "{", '"', "'"):
        try:
            return texts.toml(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            return text
    if "," in text:
        return [parse_value(part) for part in text.split(",")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
