"""Columns of an input as what they mean: features, labels, names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.label.items import unlabelled


def checked_features(values: NDArray[Any]) -> NDArray[Any]:
    """Return features [n, d] as float32 or float64, all finite; an error names the first that is not."""
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise InputError(
            f"features have shape {values.shape} and type {values.dtype}; numbers [rows, columns] expected."
        )
    with np.errstate(over="ignore"):
        features = values.astype(np.float64 if values.dtype == np.float64 else np.float32, copy=False)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = np.unravel_index(finite.argmin(), features.shape)
        raise InputError(f"row {row}, column {column} (from 0) is {features[row, column]}; remove or repair that row.")
    return features


def as_labels(values: Any, count: int, class_names: Sequence[str] = ()) -> tuple[str | None, ...]:
    """Return labels as text, None where there is none; numbers become names where the classes have any."""
    if values is None:
        return unlabelled(count)
    if len(values) != count:
        raise InputError(f"there are {count:,} rows of features but {len(values):,} labels; give one label per row.")
    return tuple(_as_label(value, class_names) for value in values)


def _as_label(value: Any, class_names: Sequence[str]) -> str | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, list | tuple | dict | np.ndarray):
        raise InputError(f"a label is a {type(value).__name__}; a text or a number is expected.")
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        text = value.strip()
        return None if text in ("", "-1") else text
    if value != value or value == -1:  # NaN, or the number of no class
        return None
    try:
        number = int(value) if float(value).is_integer() else value
    except (TypeError, ValueError, OverflowError):  # a date, say
        return str(value)
    if class_names and isinstance(number, int):
        if not 0 <= number < len(class_names):
            raise InputError(f"a label is {number}, and there are {len(class_names)} class names.")
        return str(class_names[number])
    return str(number)


def as_names(values: Any, count: int) -> tuple[str, ...]:
    """Return ids as text, row numbers from 0 where there are none; two equal ones are refused."""
    if values is None:
        return tuple(str(number) for number in range(count))
    if len(values) != count:
        raise InputError(f"there are {count:,} rows but {len(values):,} ids; give one id per row.")
    names = tuple(str(value) for value in values)
    if len(set(names)) < count:
        seen: set[str] = set()
        double = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"the id {double!r} occurs twice; ids must be unique.")
    return names
