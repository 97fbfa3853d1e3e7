"""The field's pickled features (`output.plk`), read without running code from the pickle.

Layout: a dict (often a defaultdict) from class, an integer or a string, to a list of vectors [d] or an array [m, d]. Or
a list `[mean, head mean, features, head features, ...]`: the mean [d] of the raw base rows, data of the network's head,
and the dict in third place; then the mean becomes `base[""]` and the data of the head is ignored.

A pickle is a program: it names functions and calls them. Here every allowed name stands for a function of this file
that can only make arrays, numbers, strings and dicts, and any other name is refused without being looked up. NumPy's
own functions are not used either, since a forged dtype can make them read beyond their memory.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import DIMENSIONS, admit
from sinkshot.foreign.pickles import Lent, Stateful, checked, fill, kind, loads
from sinkshot.formats import BankContent, source


def read(path: Path) -> BankContent:
    """Read a bank from a pickle; classes keep the order of the dict, and classes without rows are dropped."""
    with opened(path) as file:
        size = size_of(file)
        content = unpickle(file.read(size))
    mean = None
    if isinstance(content, list) and len(content) >= 4 and isinstance(content[2], dict):
        mean, content = content[0], content[2]
    if not isinstance(content, dict):
        raise InputError(f"it holds a {type(content).__name__}; expected a dict from class to list of vectors.")
    _must_be_as_large_as_told(content, size)
    found = {_name(key): _rows(value, f"class {key!r:.60}") for key, value in content.items()}
    if len(found) < len(content):
        raise InputError("two of its classes have the same name, once as a number and once as a string; rename one.")
    classes = {name: rows for name, rows in found.items() if len(rows)}
    if not classes:
        raise InputError("it holds no vectors; expected a dict from class to list of vectors.")
    widths = {rows.shape[1]: name for name, rows in reversed(classes.items())}
    if len(widths) > 1:
        (a, first), (b, second) = list(widths.items())[:2]
        raise InputError(f"class {first!r} has vectors of {a} entries and class {second!r} of {b}; all must be equal.")
    features = np.concatenate(list(classes.values()))
    features.flags.writeable = False
    labels = np.repeat(np.arange(len(classes)), [len(rows) for rows in classes.values()])
    base = {"": mean} if isinstance(mean, np.ndarray) and mean.shape == features.shape[1:] else {}
    return BankContent(features, labels, tuple(classes), source(path), base)


def unpickle(data: bytes) -> Any:
    """Return the content of a pickle as plain dicts, lists and NumPy arrays, without running code."""
    return checked(loads(data, FUNCTIONS)[0], plain)


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        return key.decode("latin1")
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InputError(f"it has the class {key!r}; a class must be an integer or a string.")


def _must_be_as_large_as_told(content: dict[Any, Any], size: int) -> None:
    """Refuse a pickle that refers to the same rows so often that they are far larger than the file."""
    rows = [row for value in content.values() if isinstance(value, list) for row in value[: size + 1]][: size + 1]
    if len(rows) > size or sum(len(value) for value in content.values() if isinstance(value, list)) > size:
        raise InputError(f"it refers to the same rows again and again: more than {size:,} in a file of as many bytes.")
    lists = [value for value in (*content.values(), *rows) if isinstance(value, list | np.ndarray)]
    admit(8 * sum(value.size if isinstance(value, np.ndarray) else len(value) for value in lists), size, "its features")


def _rows(value: Any, where: str) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        if value.ndim != 2 and value.shape != (0,):
            raise InputError(
                f"{where} is an array of shape {value.shape}; expected a list of vectors or [rows, columns]."
            )
        return value
    if not isinstance(value, list):
        raise InputError(f"{where} is a {type(value).__name__}; expected a list of vectors.")
    vectors = [_vector(vector, f"{where}, row {row}") for row, vector in enumerate(value)]
    for row, vector in enumerate(vectors):
        if len(vector) != len(vectors[0]):
            raise InputError(
                f"{where}, row {row} has {len(vector)} entries, its row 0 {len(vectors[0])}; all must be equal."
            )
    return np.stack(vectors) if vectors else np.empty((0, 0))


def _vector(value: Any, where: str) -> NDArray[Any]:
    if isinstance(value, list) and all(isinstance(entry, int | float) for entry in value):
        value = np.array(value, np.float64)
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "fiub":
        shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
        raise InputError(f"{where} is a {type(value).__name__}{shape}; expected a vector of numbers.")
    return value


def plain(value: Any) -> Any:
    """Return an array where a pickle has made one."""
    return value.content if isinstance(value, _Array) else value


class _Dtype(Stateful):
    """A dtype of plain numbers, strings or objects; no fields, no sub-arrays."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"f(2|4|8|16)|[iu][1248]|b1|O[48]?|[SU]\d{1,5}", code):
            raise InputError(f"it has an array of {kind(code)}; expected numbers.")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        _, order, *inner = _several(state)[:5]
        if any(entry is not None for entry in inner) or len(inner) != 3 or order not in ("<", ">", "=", "|"):
            raise InputError("it has an array with fields or sub-arrays; expected numbers.")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(Stateful):
    """An array under construction: `content` is a NumPy array, or a list for an array of objects."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: NDArray[Any] | list[Any] = []

    def __setstate__(self, state: Any) -> None:
        shape, dtype, fortran, data = _several(state)[-4:]
        self.content = _content(data, dtype, shape, "F" if fortran else "C")


def _several(state: Any) -> tuple[Any, ...]:
    if not isinstance(state, tuple) or len(state) < 4:
        raise InputError("it has an array without dtype or shape; it may be damaged.")
    return state


def _content(data: Any, form: Any, shape: Any, order: Any) -> NDArray[Any] | list[Any]:
    if not isinstance(form, _Dtype) or not isinstance(shape, tuple) or len(shape) > DIMENSIONS.value:
        raise InputError("it has an array without dtype or shape; it may be damaged.")
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise InputError("it has an array without dtype or shape; it may be damaged.")
    if form.dtype.kind == "O":
        if not isinstance(data, list) or shape != (len(data),):
            raise InputError(f"it has an array of objects of shape {shape}; expected a list of vectors.")
        return data
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray) or len(raw) != math.prod(shape) * form.dtype.itemsize:
        raise InputError(f"it has an array of shape {shape} whose data have a different size; it may be damaged.")
    if order not in ("C", "F") or form.dtype.itemsize == 0:
        raise InputError("it has an array that is empty or in an unknown order; it may be damaged.")
    return np.frombuffer(raw, form.dtype).reshape(shape, order=order)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(data: Any, form: Any, shape: Any, order: Any, axes: Any = None) -> _Array:
    array = _Array()
    array.content = _content(data, form, shape, "C" if order == "K" else order)
    if order == "K" and axes is not None and isinstance(array.content, np.ndarray):
        array.content = array.content.transpose(axes)
    return array


def _scalar(form: Any, data: Any) -> Any:
    found = _content(data, form, (), "C")
    if not isinstance(found, np.ndarray):
        raise InputError("it has a number that is an object; it may be damaged.")
    return found.item()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise InputError(f"it encodes text as {kind(encoding)}; only latin1 is expected in a pickle.")
    if not isinstance(text, str):
        raise InputError(f"it encodes {kind(text)}, where a text is expected.")
    return text.encode("latin1")


def _dict(*_: Any) -> dict[Any, Any]:
    return {}


def _ordered_dict(pairs: Any = ()) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise InputError("it has a dict whose items are not pairs; it may be damaged.")
    fill(found, pairs)
    return found


def _no_bytes() -> bytes:
    return b""


def _default(*_: Any) -> NoReturn:
    raise InputError("it calls the default factory of a dict, which pickled features never do.")


FUNCTIONS = {
    ("numpy", "ndarray"): Lent(_reconstruct),
    ("numpy", "dtype"): Lent(_Dtype),
    ("numpy.core.multiarray", "_reconstruct"): Lent(_reconstruct),
    ("numpy.core.multiarray", "scalar"): Lent(_scalar),
    ("numpy.core.numeric", "_frombuffer"): Lent(_frombuffer),
    ("_codecs", "encode"): Lent(_encode),
    ("collections", "defaultdict"): Lent(_dict),
    ("collections", "OrderedDict"): Lent(_ordered_dict),
    ("builtins", "bytes"): Lent(_no_bytes),
    **{("builtins", kind): Lent(_default) for kind in ("list", "dict", "tuple", "int", "float")},
}
