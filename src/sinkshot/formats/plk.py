"""The field's pickled features (`output.plk`), read without letting the pickle run anything.

Layout: a dict (often a defaultdict) from class, an integer or a string, to a list of vectors [d] or an array [m, d]. Or
a list `[mean, head mean, features, head features, ...]`: the mean [d] of the raw base rows, something of the network's
head, and the dict in third place; then the mean becomes `base[""]` and what belongs to the head is left.

A pickle is a program: it names functions and has them called. Here every name it may use stands for a function of this
file that can only make arrays, numbers, strings and dicts, and any other name is refused before it means anything.
NumPy's own functions are not lent either, since a forged dtype can make them read memory that is not theirs.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.formats import BankContent, source


def read(path: Path) -> BankContent:
    """Read a bank from a pickle; classes keep the order of the dict, and those without rows are left out."""
    with path.open("rb") as file:
        content = _plain(_unpickled(file))
    mean = None
    if isinstance(content, list | tuple) and len(content) >= 4 and isinstance(content[2], dict):
        mean, content = _plain(content[0]), content[2]
    if not isinstance(content, dict):
        raise InputError(f"it holds a {type(content).__name__}; expected a dict from class to list of vectors.")
    found = {_name(key): _rows(value, f"class {key!r}") for key, value in content.items()}
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


def unpickle(file: IO[bytes]) -> Any:
    """Return what a pickle of others holds, in plain dicts and lists with NumPy arrays; nothing of it is run."""
    return _plain_throughout(_unpickled(file), {})


def _unpickled(file: IO[bytes]) -> Any:
    return _Unpickler(file, encoding="latin1").load()  # latin1: strings of Python 2 are bytes


def _plain_throughout(value: Any, done: dict[int, Any]) -> Any:
    """Go through containers, each once, however often the pickle refers to it."""
    value = _plain(value)
    if isinstance(value, dict) and id(value) not in done:
        done[id(value)] = {}
        done[id(value)].update((key, _plain_throughout(entry, done)) for key, entry in value.items())
    if isinstance(value, list | tuple) and id(value) not in done:
        done[id(value)] = []
        done[id(value)].extend(_plain_throughout(entry, done) for entry in value)
    return done.get(id(value), value)


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        return key.decode("latin1")
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InputError(f"it has the class {key!r}; a class must be an integer or a string.")


def _rows(value: Any, where: str) -> NDArray[Any]:
    value = _plain(value)
    if isinstance(value, np.ndarray):
        if value.ndim != 2 and value.shape != (0,):
            raise InputError(
                f"{where} is an array of shape {value.shape}; expected a list of vectors or [rows, columns]."
            )
        return value
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} is a {type(value).__name__}; expected a list of vectors.")
    vectors = [_vector(vector, f"{where}, row {row}") for row, vector in enumerate(value)]
    for row, vector in enumerate(vectors):
        if len(vector) != len(vectors[0]):
            raise InputError(
                f"{where}, row {row} has {len(vector)} entries, its row 0 {len(vectors[0])}; all must be equal."
            )
    return np.stack(vectors) if vectors else np.empty((0, 0))


def _vector(value: Any, where: str) -> NDArray[Any]:
    value = _plain(value)
    if isinstance(value, list | tuple) and all(isinstance(entry, int | float) for entry in value):
        value = np.array(value, np.float64)
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "fiub":
        shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
        raise InputError(f"{where} is a {type(value).__name__}{shape}; expected a vector of numbers.")
    return value


def _plain(value: Any) -> Any:
    return value.content if isinstance(value, _Array) else value


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        lent = _LENT.get((module.replace("numpy._core.", "numpy.core.").replace("__builtin__", "builtins"), name))
        if lent is None:
            raise InputError(
                f"it asks for {module}.{name}, which is refused: a pickle may hold arrays, numbers, strings, lists and "
                "dicts. Nothing of it was run. If you trust it, load it yourself and save its features as .npz."
            )
        return lent

    def persistent_load(self, pid: Any) -> NoReturn:
        raise InputError(f"it refers to an object outside of itself ({pid!r:.60}), which is refused.")


class _Lent:
    """A function lent to a pickle, which can call it and do nothing else with it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise InputError("it tries to change a function that it may only call, which is refused.")


class _Dtype:
    """A dtype of plain numbers, strings or objects; no fields, no sub-arrays."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"f(2|4|8|16)|[iu][1248]|b1|O[48]?|[SU]\d{1,5}", code):
            raise InputError(f"it has an array of {code!r}; expected numbers.")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, *inner = state[:5]
        if inner != [None, None, None] or order not in ("<", ">", "=", "|"):
            raise InputError("it has an array with fields or sub-arrays; expected numbers.")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """An array on its way in: `content` is a NumPy array, or a list where the array is one of objects."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: NDArray[Any] | list[Any] = []

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        shape, dtype, fortran, data = state[-4:]
        self.content = _content(data, dtype, shape, "F" if fortran else "C")


def _content(data: Any, kind: Any, shape: Any, order: Any) -> NDArray[Any] | list[Any]:
    if not isinstance(kind, _Dtype) or not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
        raise InputError("it has an array without dtype or shape; it may be damaged.")
    if kind.dtype.kind == "O":
        if not isinstance(data, list) or shape != (len(data),):
            raise InputError(f"it has an array of objects of shape {shape}; expected a list of vectors.")
        return data
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray) or len(raw) != math.prod(shape) * kind.dtype.itemsize:
        raise InputError(f"it has an array of shape {shape} whose data have another size; it may be damaged.")
    return np.frombuffer(raw, kind.dtype).reshape(shape, order=order)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(data: Any, kind: Any, shape: Any, order: str, axes: Any = None) -> _Array:
    array = _Array()
    array.content = _content(data, kind, shape, "C" if order == "K" else order)
    if order == "K" and axes is not None and isinstance(array.content, np.ndarray):
        array.content = array.content.transpose(axes)
    return array


def _scalar(kind: _Dtype, data: Any) -> Any:
    return np.asarray(_content(data, kind, (), "C")).item()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise InputError(f"it encodes text as {encoding!r}; only latin1 is expected in a pickle.")
    return text.encode("latin1")


def _dict(*_: Any) -> dict[Any, Any]:
    return {}


def _ordered_dict(pairs: Any = ()) -> dict[Any, Any]:
    return dict(pairs)


def _no_bytes() -> bytes:
    return b""


def _default(*_: Any) -> NoReturn:
    raise InputError("it calls the maker of a default value, which pickled features never do.")


_LENT = {
    ("numpy", "ndarray"): _Lent(_reconstruct),
    ("numpy", "dtype"): _Lent(_Dtype),
    ("numpy.core.multiarray", "_reconstruct"): _Lent(_reconstruct),
    ("numpy.core.multiarray", "scalar"): _Lent(_scalar),
    ("numpy.core.numeric", "_frombuffer"): _Lent(_frombuffer),
    ("_codecs", "encode"): _Lent(_encode),
    ("collections", "defaultdict"): _Lent(_dict),
    ("collections", "OrderedDict"): _Lent(_ordered_dict),
    ("builtins", "bytes"): _Lent(_no_bytes),
    **{("builtins", kind): _Lent(_default) for kind in ("list", "dict", "tuple", "int", "float")},
}
