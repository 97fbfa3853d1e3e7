"""What SinkShot says when it is given something it cannot use: sentences, not tracebacks."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class InputError(ValueError):
    """Input that cannot be used. The message says what was given, what was expected and what to do."""


class DataWarning(UserWarning):
    """Input that can be used but that its owner should know about."""


def unknown_name(kind: str, given: str, known: Iterable[str]) -> InputError:
    """Return the error for a name nobody registered, with the nearest known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"known: {', '.join(names)}."
    return InputError(f"unknown {kind} {given!r}; {hint}")


def whole(name: str, value: Any, least: int) -> int:
    """Return a hyper-parameter that must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; {value!r} was given.")
    return int(value)


def number(name: str, value: Any, above: float = -math.inf) -> float:
    """Return a hyper-parameter that must be a finite number above `above`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= above:
        bound = "" if above == -math.inf else f" above {above:g}"
        raise InputError(f"{name} must be a number{bound}; {value!r} was given.")
    return float(value)
