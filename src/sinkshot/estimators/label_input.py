"""Read `y`: which rows have a label, which have none yet, and which are known to belong to no class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from sinkshot.errors import InputError

UNKNOWN = "unknown"  # the predicted label of a row of no class, if labels are strings
OUTSIDER = "_none"  # the label of a row that is known to belong to no class
_MISSING_TYPES = ("NAType", "NaTType")  # pandas' missing values, without importing pandas
_NOT_A_CLASS = (
    f"the label {UNKNOWN!r} is reserved for rows that belong to no class, so it cannot name a class. If a label is not "
    f"known yet, write None, NaN, '' or -1; if a row is known to belong to no class, write {OUTSIDER!r} or give "
    f"fit(X, y, none=mask); rename the class if {UNKNOWN!r} is its real name."
)


@dataclass(frozen=True)
class Labels:
    """The labels in `y`, parsed."""

    classes: NDArray[Any]  # [way], sorted
    codes: NDArray[np.int64]  # [n], the class of each labelled row, -1 elsewhere
    outsiders: NDArray[np.bool_]  # [n], rows known to belong to no class

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Rows that have a class."""
        return self.codes >= 0

    @property
    def pool(self) -> NDArray[np.bool_]:
        """Rows whose label is to be found."""
        return ~self.labelled & ~self.outsiders


def read_labels(X: Any, y: Any, none: Any = None) -> Labels:
    """Read the labels of the rows of X.

    Parameters
    ----------
    X : array of shape (n, d)
        Its length is compared with that of `y`.
    y : array-like of shape (n,)
        -1, None, NaN, pandas' NA, an empty string and the string "-1" mean "no label yet"; "_none" means "known to
        belong to no class".
    none : array of bool of shape (n,), optional
        Rows that are known to belong to no class; `y` must have no class for them.
    """
    values = _objects(y)
    check_consistent_length(X, values)
    outsiders = np.array([isinstance(value, str) and value == OUTSIDER for value in values], dtype=bool)
    missing = np.array([_is_missing(value) for value in values], dtype=bool) | outsiders
    outsiders |= _mask(none, missing)
    if missing.all():
        raise InputError("every row of y is unlabelled (-1, None, NaN or empty); label at least one row of each class.")
    labels = _of_one_type(values[~missing], whole_numbers=bool(missing.any()))
    check_classification_targets(labels)
    if labels.dtype.kind in "UO" and any(
        label.strip().lower() == UNKNOWN for label in labels if isinstance(label, str)
    ):
        raise InputError(_NOT_A_CLASS)
    classes, codes = np.unique(labels, return_inverse=True)
    every = np.full(len(values), -1, dtype=np.int64)
    every[~missing] = codes
    return Labels(classes, every, outsiders)


def _objects(y: Any) -> NDArray[Any]:
    """Return `y` as a flat array of objects; a list that mixes strings and NaN keeps its NaN."""
    if y is None:
        raise InputError("this classifier requires y to be passed, but the target y is None")
    if hasattr(y, "to_numpy"):  # pandas and polars
        y = y.to_numpy()
    if isinstance(y, list | tuple) and all(not np.iterable(value) or isinstance(value, str) for value in y):
        values = np.empty(len(y), dtype=object)
        values[:] = y
        return values
    return np.asarray(column_or_1d(np.asarray(y), warn=True), dtype=object)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, str):
        return value.strip() in ("", "-1")
    return bool(value != value) or bool(value == -1)


def _mask(none: Any, missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of known outsiders, or raise an error that says what is wrong with it."""
    if none is None:
        return np.zeros(len(missing), dtype=bool)
    mask = np.asarray(none)
    if mask.shape != missing.shape or mask.dtype != bool:
        raise InputError(
            f"none marks the rows that belong to no class: {len(missing)} booleans; given: {mask.dtype} {mask.shape}."
        )
    both = np.flatnonzero(mask & ~missing)
    if len(both):
        raise InputError(
            f"row {both[0]} (from 0) has a label and is marked in none as belonging to no class; drop one."
        )
    return mask


def _of_one_type(labels: NDArray[Any], whole_numbers: bool) -> NDArray[Any]:
    """Return labels as an array of their own type; with `whole_numbers`, floats that pandas made of integers too."""
    strings = [isinstance(label, str) for label in labels]
    if any(strings) and not all(strings):
        odd = labels[strings.index(not strings[0])]
        raise InputError(
            f"labels have mixed types, such as {labels[0]!r} and {odd!r}; make them all text or all numbers."
        )
    if all(strings):
        return labels
    typed = np.array(labels.tolist())
    if typed.dtype.kind == "f":
        if not np.isfinite(typed).all():
            raise InputError("Input y contains infinity or a value too large for dtype('float64').")
        if whole_numbers and (typed == np.round(typed)).all():
            return typed.astype(np.int64)
    return typed
