"""What SinkShot says when it is given something it cannot use: sentences, not tracebacks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used. The message says what was given, what was expected and what to do."""


class DataWarning(UserWarning):
    """Input that can be used but that its owner should know about."""


def unknown_name(kind: str, given: str, known: Iterable[str]) -> InputError:
    """Return the error for a name nobody registered, with the nearest known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"known: {', '.join(names)}."
    return InputError(f"unknown {kind} {given!r}; {hint}")
