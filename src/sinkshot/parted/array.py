"""Arrays in parts: class values [R, way, N] of a pool whose rows live in files.

An array is a file, or an expression over others that is computed part by part when it is asked for. It follows the
array API as far as methods on `Rows` need it: elementwise functions and sums over classes give another such array;
sums, means and maxima over rows are one pass over all parts and give an ordinary NumPy array. The last axis is that
of the rows: either all of them, supports first, or the queries alone.
"""

from __future__ import annotations

import errno
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.parted.work_folder import RowLayout, WorkFolder, removed_with, room_is_said

Floats = NDArray[Any]
_PROBE = 3  # rows of the small arrays that shapes and types are found with


class Expression(ABC):
    """What gives the values [R, k, n] of a part."""

    def of_part(self, layout: RowLayout, part: int) -> Floats:
        """Compute the values of a part."""
        with np.errstate(all="ignore"):
            return self.block(layout, part, {})

    def block(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Compute the values of a part, as one of its expressions: `memo` keeps those that occur more than once."""
        if id(self) not in memo:
            memo[id(self)] = self.computed(layout, part, memo)
        return memo[id(self)]

    @abstractmethod
    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Compute the values of a part, once."""

    @abstractmethod
    def files(self) -> set[Stored]:
        """Return the files that it reads."""


@dataclass(eq=False)
class Stored(Expression):
    """Values in a file, float32: part after part, each class by class; those of supports may be unused.

    Where single rows are needed, a file has all values row by row.
    """

    path: Path
    width: int  # k
    by_row: bool = False

    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Read the values of a part."""
        begin, end = layout.starts[part : part + 2]
        found = read_rows(self.path, self.width, begin, end)
        return (found.T if self.by_row else found.reshape(self.width, end - begin))[None]

    def write(self, layout: RowLayout, part: int, values: Floats) -> None:
        """Write the values [k, n] of a part."""
        content = values.T if self.by_row else np.ascontiguousarray(values).reshape(-1, self.width)
        write_rows(self.path, content, layout.starts[part])

    def files(self) -> set[Stored]:
        """Return the file itself."""
        return {self}


@dataclass(eq=False)
class Applied(Expression):
    """A function of expressions and ordinary arrays."""

    function: Callable[..., Floats]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._computed = tuple(isinstance(argument, Expression) for argument in self.arguments)  # slow to ask

    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Apply the function to the values of a part."""
        known = zip(self.arguments, self._computed, strict=True)
        values = [argument.block(layout, part, memo) if computed else argument for argument, computed in known]
        return self.function(*values, **self.options)

    def files(self) -> set[Stored]:
        """Return the files of all arguments."""
        known = zip(self.arguments, self._computed, strict=True)
        return set().union(*(argument.files() for argument, computed in known if computed))


@dataclass(eq=False)
class Joined(Expression):
    """Values of the supports, given, and of the queries."""

    of_supports: Floats
    of_queries: Expression

    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Return the values of the supports, or compute those of a part of the queries."""
        return self.of_supports if part == 0 else self.of_queries.block(layout, part, memo)

    def files(self) -> set[Stored]:
        """Return the files of the queries' values."""
        return self.of_queries.files()


class PartedArray:
    """An array in parts.

    Parameters
    ----------
    work : WorkFolder
        Where files go, and the workers.
    layout : RowLayout
        How rows are divided.
    expression : Expression
        What gives the values of a part.
    probe : array of shape (R, k, 3)
        Any values of the same shape and type, but for the number of rows.
    of_queries : bool
        Whether the rows are the queries alone.
    """

    __array_ufunc__ = None  # NumPy leaves `array + parted` to us
    device = "cpu"

    def __init__(
        self, work: WorkFolder, layout: RowLayout, expression: Expression, probe: Floats, of_queries: bool
    ) -> None:
        self.work, self.layout, self.expression = work, layout, expression
        self.probe, self.of_queries = probe, of_queries

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, of which the last entry is the number of rows."""
        return (*self.probe.shape[:-1], self.layout.queries if self.of_queries else self.layout.rows)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.probe.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.probe.ndim

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from sinkshot.parted import namespace

        return namespace

    def parts(self) -> range:
        """Parts that the array has rows of."""
        return range(int(self.of_queries), len(self.layout.sizes) + 1)

    def kept(self) -> PartedArray:
        """Return the array as a file, computed once."""
        if isinstance(self.expression, Stored):
            return self
        return PartedArray(self.work, self.layout, self.stored(), _probe(self.probe.shape[-2]), self.of_queries)

    def stored(self, by_row: bool = False) -> Stored:
        """Return the array's file, computing it if there is none yet."""
        if isinstance(self.expression, Stored) and (self.expression.by_row == by_row or self.expression.width == 1):
            return self.expression
        target = new_stored(self.work, self.layout.rows, self.probe.shape[-2], by_row)
        groups = self.work.groups(self.layout, self.parts())
        jobs = [StoreJob(self.expression, self.layout, parts, target) for parts in groups]
        self.work.map(store, jobs, size=self.read_size())
        return target

    def read_size(self) -> int:
        """Return the bytes that are read to compute the array."""
        return 4 * self.layout.rows * sum(file.width for file in self.expression.files())

    def reduced(self, how: str, axes: tuple[int, ...]) -> Floats:
        """Return sums or maxima over axes that include the rows, with those axes kept."""
        jobs = [
            ReduceJob(self.expression, self.layout, parts, how, axes)
            for parts in self.work.groups(self.layout, self.parts())
        ]
        partial = [value for values in self.work.map(reduce, jobs, size=self.read_size()) for value in values]
        total = np.max(partial, axis=0) if how == "max" else np.sum(partial, axis=0, dtype=np.float64)
        return np.asarray(total, dtype=partial[0].dtype)

    def __getitem__(self, key: Any) -> Any:
        """Take slices of the classes, insert axes, and of the rows: all, the supports, the queries or the first."""
        keys = key if isinstance(key, tuple) else (key,)
        rows = keys[-1] if isinstance(keys[-1], slice) and len(keys) > 1 else slice(None)
        others = (*keys[:-1], slice(None)) if isinstance(keys[-1], slice) and len(keys) > 1 else keys
        array = self if others in ((...,), (..., slice(None))) else apply(operator.getitem, self, others)
        supports = 0 if self.of_queries else self.layout.supports
        if rows == slice(None) or rows == slice(0 if self.of_queries else None, None):
            return array
        if rows == slice(supports, None):
            return PartedArray(self.work, self.layout, array.expression, array.probe, True)
        if rows.start is None and rows.stop in (supports, 1):
            return array.expression.of_part(self.layout, int(self.of_queries))[..., : rows.stop]
        raise IndexError(f"rows {rows} of an array in parts")

    def __bool__(self) -> bool:
        raise TypeError("an array in parts has no truth value")

    __add__, __radd__ = (lambda a, b: apply(operator.add, a, b)), (lambda a, b: apply(operator.add, b, a))
    __sub__, __rsub__ = (lambda a, b: apply(operator.sub, a, b)), (lambda a, b: apply(operator.sub, b, a))
    __mul__, __rmul__ = (lambda a, b: apply(operator.mul, a, b)), (lambda a, b: apply(operator.mul, b, a))
    __truediv__ = lambda a, b: apply(operator.truediv, a, b)  # noqa: E731
    __rtruediv__ = lambda a, b: apply(operator.truediv, b, a)  # noqa: E731
    __pow__ = lambda a, b: apply(operator.pow, a, b)  # noqa: E731
    __neg__ = lambda a: apply(operator.neg, a)  # noqa: E731
    __gt__, __ge__ = (lambda a, b: apply(operator.gt, a, b)), (lambda a, b: apply(operator.ge, a, b))
    __lt__, __le__ = (lambda a, b: apply(operator.lt, a, b)), (lambda a, b: apply(operator.le, a, b))
    __eq__ = lambda a, b: apply(operator.eq, a, b)  # noqa: E731
    __and__ = lambda a, b: apply(operator.and_, a, b)  # noqa: E731
    __hash__ = None  # type: ignore[assignment]


def apply(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Apply an elementwise function, or one along the classes; to ordinary arrays at once."""
    parted = [a for a in arguments if isinstance(a, PartedArray)]
    if not parted:
        return function(*arguments, **options)
    if len({a.of_queries for a in parted}) > 1:
        raise ValueError("one array covers all rows and another only the queries")
    of = parted[0]
    with np.errstate(all="ignore"):
        probe = function(*(a.probe if isinstance(a, PartedArray) else a for a in arguments), **options)
    inner = tuple(a.expression if isinstance(a, PartedArray) else a for a in arguments)
    return PartedArray(of.work, of.layout, Applied(function, inner, options), probe, of.of_queries)


def new_array(work: WorkFolder, layout: RowLayout, width: int, of_queries: bool) -> PartedArray:
    """Make a file for values [1, width, N] and return it as an array; the file is deleted with the array."""
    return PartedArray(work, layout, new_stored(work, layout.rows, width), _probe(width), of_queries)


def _probe(width: int) -> Floats:
    return np.ones((1, width, _PROBE), np.float32)


def new_stored(work: WorkFolder, rows: int, width: int, by_row: bool = False) -> Stored:
    """Make a file for the values of this many rows; it is deleted when nothing refers to it."""
    stored = Stored(work.new_file(4 * width * rows), width, by_row)
    removed_with(stored, stored.path)
    return stored


@dataclass(frozen=True)
class PassJob:
    """Parts of an expression to be computed."""

    expression: Expression
    layout: RowLayout
    parts: tuple[int, ...]


@dataclass(frozen=True)
class StoreJob(PassJob):
    """Parts of an expression to be written to a file."""

    target: Stored


def store(job: StoreJob) -> None:
    """Compute parts and write them at their place."""
    for part in job.parts:
        job.target.write(job.layout, part, job.expression.of_part(job.layout, part)[0])


@dataclass(frozen=True)
class ReduceJob(PassJob):
    """Parts of an expression to be summed."""

    how: str
    axes: tuple[int, ...]


def reduce(job: ReduceJob) -> list[Floats]:
    """Return the sum or maximum of each part."""
    function: Any = {"sum": np.sum, "max": np.max}[job.how]
    return [
        np.asarray(function(job.expression.of_part(job.layout, part), axis=job.axes, keepdims=True))
        for part in job.parts
    ]


def read_rows(path: Path, width: int, begin: int, end: int, dtype: Any = np.float32) -> Floats:
    """Read rows [n, width] of a file of the run."""
    found = np.empty((end - begin, width), dtype)
    with room_is_said(path.parent), path.open("rb", buffering=0) as file:
        file.seek(begin * width * found.itemsize)
        read_into(file, found)
    return found


def read_into(file: FileIO, rows: Floats) -> None:
    """Fill rows with the next bytes of an open file, which may come in pieces."""
    left = rows.data.cast("B") if rows.size else memoryview(b"")
    while left:
        count = file.readinto(left)
        if not count:
            raise OSError(errno.EIO, f"{Path(str(file.name)).name} is truncated")
        left = left[count:]


def write_rows(path: Path, rows: Floats, begin: int, dtype: Any = np.float32) -> None:
    """Write rows [n, width] at their place in a file of the run; writing twice does no harm."""
    content = np.ascontiguousarray(rows, dtype=dtype)
    width = content.shape[1] if content.ndim > 1 else 1
    with room_is_said(path.parent), path.open("r+b") as file:
        file.seek(begin * width * content.itemsize)
        file.write(content.data if content.size else b"")
