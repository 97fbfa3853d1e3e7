"""Tables: CSV, JSON lines, Parquet and data frames, with a column of texts or columns of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError, unknown_name
from sinkshot.foreign import texts
from sinkshot.foreign.limits import admit
from sinkshot.formats import errors_name
from sinkshot.label.inputs.columns import as_labels, as_names, checked_features
from sinkshot.label.items import Items, LeftOut
from sinkshot.label.spreadsheet import plain_text, read_rows

Table = dict[str, Any]  # columns of one length by name
_CELL = 32  # bytes of a cell: in a list, in a column, and as a number
_LABEL, _NAMES = "label", ("id", "file_name")


def read(path: Path, text: str | None) -> Items:
    """Read a file of texts, with the name of their column, or of embeddings."""
    readers = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
    table = readers[path.suffix.lower()](path)
    return from_table(table, text, str(path))


def from_frame(frame: Any, text: str | None) -> Items:
    """Read a data frame of pandas or polars."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise InputError(
            f"a {type(frame).__name__} cannot be labelled; give a path or a data frame of pandas or polars."
        )
    table = {str(name): _values(frame[name]) for name in frame.columns}
    return from_table(table, text, "the data frame")


def _values(column: Any) -> Any:
    return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)


def from_table(table: Table, text: str | None, source: str) -> Items:
    """Return the items of a table."""
    count = len(next(iter(table.values()), ()))
    if not count:
        raise InputError(f"{source} has no rows.")
    key = next((name for name in _NAMES if name in table), None)
    names = as_names(None if key is None else table[key], count)
    labels = as_labels(table.get(_LABEL), count)
    if text is not None:
        return _of_texts(table, text, names, labels, source)
    features = _features(table, source)
    accepted = np.zeros(count, dtype=bool)
    return Items("embeddings", names, labels, accepted, features=checked_features(features), column=key or "id")


def _of_texts(table: Table, text: str, names: tuple[str, ...], labels: tuple[str | None, ...], source: str) -> Items:
    if text not in table:
        raise InputError(f"{source}: {unknown_name('column', text, table)}")
    values = ["" if value is None or _is_nan(value) else str(value).strip() for value in table[text]]
    items = Items("texts", names, labels, np.zeros(len(names), dtype=bool), texts=tuple(values))
    kept = np.array([bool(value) for value in values])
    return items.only(kept, [LeftOut(names[i], "its text is empty") for i in np.flatnonzero(~kept)])


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _features(table: Table, source: str) -> NDArray[Any]:
    """One column of lists of numbers, or all columns of numbers but label and id."""
    lists = [name for name, values in table.items() if name not in (_LABEL, *_NAMES) and _holds_lists(values)]
    if len(lists) == 1:
        return _stacked(table[lists[0]], f"{source}: lists in the column {lists[0]:.60}")
    if lists:
        raise InputError(f"{source} has several columns of lists ({', '.join(lists[:5])}); keep the one with features.")
    numbers = [name for name, values in table.items() if name not in (_LABEL, *_NAMES) and _holds_numbers(values)]
    if not numbers:
        words = [
            name
            for name, values in table.items()
            if name not in (_LABEL, *_NAMES) and isinstance(next(iter(values)), str)
        ]
        if len(table) == 1 and any(mark in next(iter(table)) for mark in ";\t"):
            raise InputError(f"{source} has one column, {next(iter(table)):.60}; separate columns by commas.")
        hint = f" If it holds texts, name their column: --text {', '.join(words)}." if words else ""
        raise InputError(f"{source} has no column of numbers, or of lists of numbers.{hint}")
    columns = np.column_stack([np.asarray(table[name], dtype=np.float64) for name in numbers])
    with np.errstate(over="ignore"):
        return columns.astype(np.float32)


def _stacked(rows: Any, what: str) -> NDArray[Any]:
    """Lists of numbers, all of one length, as an array."""
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else None for row in rows}
    if None in widths:
        raise InputError(f"{what} are missing in some rows; remove these rows.")
    if len(widths) > 1:
        raise InputError(f"{what} have {len(widths)} different lengths.")
    try:
        with np.errstate(over="ignore"):
            return np.stack([np.asarray(row, dtype=np.float32) for row in rows])
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} do not hold only numbers ({error!s:.80}).") from None


def _holds_lists(values: Any) -> bool:
    first = values[0]
    return isinstance(first, list | tuple | np.ndarray)


def _holds_numbers(values: Any) -> bool:
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return True
    if array.dtype.kind not in "UO":
        return False
    try:
        array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _csv(path: Path) -> Table:
    header, rows = read_rows(path)
    if len(set(header)) < len(header):
        raise InputError(f"{path}: two columns have the same name.")
    cells: list[list[str]] = [[plain_text(cell) for cell in row] for _, row in rows]
    return {name: np.array([row[i] for row in cells], dtype=object) for i, name in enumerate(header)}


def _json_lines(path: Path) -> Table:
    rows = list(_objects(path))
    names = list(dict.fromkeys(name for row in rows for name in row))
    texts.must_be_narrow(len(names), path)
    need = _CELL * len(rows) * len(names)  # a key of a single row is a column for all rows
    admit(need, path.stat().st_size, f"{path}: a table of {len(rows):,} rows and {len(names):,} columns")
    return {name: np.array([row.get(name) for row in rows] + [None], dtype=object)[:-1] for name in names}


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(texts.split(texts.rows(path)), start=1):
        if not line.strip():
            continue
        found = texts.json_value(line, f"{path}, line {number}")
        if not isinstance(found, dict):
            raise InputError(f"{path}, line {number} is not a JSON object; one object per line is expected.")
        yield found


def _parquet(path: Path) -> Table:
    from sinkshot.foreign.parquet import columns

    with errors_name(path):
        return columns(path)
