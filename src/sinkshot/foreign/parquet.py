"""Parquet files, decoded by pyarrow in a process whose time and memory are bounded.

A page may say that it unpacks to anything, and a dictionary may repeat one long text a million times, so no declared
size bounds what decoding takes.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from sinkshot.errors import InputError
from sinkshot.foreign.child import Child
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import TABLE_SECONDS, admit, admit_rows, allowed

_SPEED = 20_000_000  # bytes of a file that take another second to decode, at most
_OBJECT = 64  # bytes of a short text or number as a Python object


def columns(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the columns of a file by name: numbers as arrays, texts as arrays of objects, lists as lists."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("it needs pyarrow: pip install 'sinkshot[parquet]'.")
    with opened(path) as file:
        size = size_of(file)
        if file.read(4) != b"PAR1":
            raise InputError("it is truncated, damaged or not a Parquet file (its first bytes are not PAR1).")
    table = _usable(_decoded(path, size))
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError("two of its columns have the same name.")
    admit_rows(table.num_rows, size, "a table")
    objects = sum(_objects(column) for column in table.columns)
    admit(table.nbytes + _OBJECT * objects, size, "the table")
    return {name: _column(table.column(name)) for name in table.column_names}


def _decoded(path: str | os.PathLike[str], size: int) -> Any:
    """Return the table, which another process has read."""
    import pyarrow

    child, most = Child("pyarrow.parquet"), allowed(size)
    try:
        seconds, room = TABLE_SECONDS.value + size / _SPEED, 3 * most
        question = {"do": "parquet", "path": os.fspath(path), "most": most}
        answer, stream = child.ask(question, None, seconds, room)
    finally:
        child.end()
    if "need" in answer:
        admit(answer["need"], size, "the table")
    if "error" in answer or not isinstance(stream, np.ndarray):
        raise InputError(f"it is truncated, damaged or not a Parquet file ({answer.get('error', ''):.160}).")
    return pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all()


def _usable(table: Any) -> Any:
    """Return the columns of numbers, texts, or lists of numbers; nothing can be done with others."""
    from pyarrow import types

    def usable(kind: Any) -> bool:
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return bool(types.is_integer(kind.value_type) or types.is_floating(kind.value_type))
        texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        return bool(types.is_primitive(kind) or types.is_dictionary(kind) or any(test(kind) for test in texts))

    return table.select([i for i, field in enumerate(table.schema) if usable(field.type)])


def _objects(column: Any) -> int:
    """Return how many Python objects a column becomes."""
    import pyarrow

    kind, count = column.type, len(column)
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return count + sum(len(chunk.values) for chunk in column.chunks)
    return 0 if pyarrow.types.is_primitive(kind) else count


def _column(column: Any) -> Any:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return column.to_pylist()
    if pyarrow.types.is_fixed_size_list(kind):
        if column.null_count:
            raise InputError("a column of lists has rows without one.")
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return list(flat.reshape(len(column), kind.list_size))
    return column.to_numpy()
