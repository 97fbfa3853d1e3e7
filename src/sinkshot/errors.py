"""Errors and warnings about input, as full sentences, and checks of hyper-parameters."""

from __future__ import annotations

import difflib
import math
import sys
import unicodedata
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # control, format, surrogate, private use; separators of lines
_JOINERS = "\u200c\u200d"  # of the category Cf, but part of the spelling of Persian, of Indian scripts and of emoji
LONGEST = 4_000  # characters per line of a message


def is_printable(text: str) -> bool:
    """Whether text is safe to show on a terminal: letters, signs and spaces of any script, all on one line."""
    return text.isprintable() or all(map(_is_safe, text))


def _is_safe(character: str) -> bool:
    if unicodedata.category(character) in _UNSAFE:
        return character in _JOINERS
    return character not in "\ufffe\uffff"  # no characters at all: XML cannot hold them


def printable(text: str) -> str:
    """Return untrusted text in a form that is safe to show: on one line, with unsafe characters as escapes.

    >>> printable("a\\x1b[31m.png\\n")
    'a\\\\x1b[31m.png\\\\n'
    """
    if is_printable(text):
        return text
    return "".join(character if is_printable(character) else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Return untrusted text that may have several lines, each in a form that is safe to show."""
    return "\n".join(map(printable, text.split("\n")))


class InputError(ValueError):
    """Input that cannot be used. The message says what was given, what was expected and what to do.

    The message may contain names and text from files: control characters are escaped.

    Parameters
    ----------
    message : str
        The sentence.
    *faults : str
        Further faults, one per line.

    See Also
    --------
    DataWarning : Input that can be used but deserves a look.

    Examples
    --------
    >>> import sinkshot
    >>> try:
    ...     sinkshot.Recipe(way=1).draw(sinkshot.load("cifar-fs_wrn-28-10_novel").labels)
    ... except sinkshot.InputError as error:
    ...     print(error)
    way must be at least 2; 1 was given.
    """

    def __init__(self, message: str, *faults: str) -> None:
        super().__init__("\n  ".join(_cut(printable(str(line))) for line in (message, *faults)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(str(self).split("\n  "))


def shown(value: Any) -> str:
    """Return a value as messages show it, shortened if it is long."""
    try:
        return f"{value!r:.200}"
    except (ValueError, RecursionError):  # Python does not print integers of thousands of digits
        return f"a very long {type(value).__name__}"


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 300]} ... {line[-200:]}"


class DataWarning(UserWarning):
    """Input that can be used but deserves a look.

    See Also
    --------
    InputError : Input that cannot be used.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from sinkshot import PEME
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = PEME("E").fit_transform(np.array([[1.0, 1.0], [0.0, 0.0]]))
    >>> caught[0].category.__name__
    'DataWarning'
    """


def unknown_name(kind: str, given: str, known: Iterable[str], advice: str = "") -> InputError:
    """Return the error for an unknown name, with the nearest known ones and perhaps a sentence of advice."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given)[:100], names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"known: {', '.join(names)}."
    return InputError(" ".join(filter(None, [f"unknown {kind} {given!r:.200}; {hint}", advice])))


def whole(name: str, value: Any, least: int) -> int:
    """Return a hyper-parameter that must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; {shown(value)} was given.")
    return int(value)


def _finite(value: Any) -> bool:
    return bool(-sys.float_info.max <= value <= sys.float_info.max)  # isfinite fails for an integer of 400 digits


def number(name: str, value: Any, above: float = -math.inf) -> float:
    """Return a hyper-parameter that must be a finite number above `above`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not _finite(value) or value <= above:
        bound = "" if above == -math.inf else f" above {above:g}"
        raise InputError(f"{name} must be a number{bound}; {shown(value)} was given.")
    return float(value)
