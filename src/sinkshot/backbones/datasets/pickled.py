"""Read the field's pickles without running code, and check the types of their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.formats.plk import unpickle


def read(file: Path) -> Any:
    """Return the content of a pickle: plain dicts and lists with NumPy arrays."""
    if not file.exists():
        raise InputError(f"{file.name} is missing.")
    with opened(file) as found:
        return unpickle(found.read(size_of(found)))


def pixels(value: Any) -> NDArray[np.uint8]:
    """Return what must be an array of bytes."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8:
        kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(f"expected an array of uint8, found {kind}")
    return value


def flat(value: Any) -> list[int | str]:
    """Return what must be a list or array [n] of integers or texts, one for each image."""
    values = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(values, list) or not all(isinstance(entry, int | str | bytes) for entry in values):
        raise ValueError(f"expected a list of integers or strings, found {type(value).__name__}")
    return [entry.decode("latin1") if isinstance(entry, bytes) else entry for entry in values]
