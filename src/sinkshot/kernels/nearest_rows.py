"""Nearest rows by cosine in one large pool, exactly: every pair is compared once, in blocks of rows and in float32.

A block of products serves both its rows and its columns, so a pool of N rows costs N^2 d multiplications and additions,
half of what a search row by row takes. Threads share the blocks and keep lists of their own, which are joined at the
end. Of equally near rows the first is kept, so lists do not depend on which thread saw what.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.jit import cached

Floats = NDArray[np.floating[Any]]
Lists = tuple[NDArray[np.float32], NDArray[np.int32]]  # cosines, falling, and row numbers, both [N, k]

MOST_WORKERS = 16  # each holds lists of all rows
_NONE = -2.0  # below every cosine
_STRETCH = 64  # cosines compared at once


def nearest_rows(blocks: Sequence[Floats], count: int, pool: Executor, workers: int) -> Lists:
    """Return the `count` nearest other rows of every row, nearest first.

    Parameters
    ----------
    blocks : sequence of arrays of shape (n_i, d)
        The rows, one block after the other; a row of zeros is at right angles to all.
    count : int
        Fewer than there are rows.
    pool, workers
        Threads, and how many tasks to give them; BLAS should have a single thread in each.
    """
    starts = np.concatenate([[0], np.cumsum([len(block) for block in blocks])])
    pairs: SimpleQueue[tuple[int, int]] = SimpleQueue()
    for i in range(len(blocks)):
        for j in range(i, len(blocks)):
            pairs.put((i, j))

    def compare(_: int) -> Lists:
        lists = no_rows(int(starts[-1]), count)
        held, left = -1, np.empty((0, 0), dtype=np.float32)
        while True:
            try:
                i, j = pairs.get_nowait()
            except Empty:
                return lists
            if i != held:
                held, left = i, unit_rows(blocks[i])
            right = left if i == j else unit_rows(blocks[j])
            _keep(left @ right.T, int(starts[i]), int(starts[j]), *lists)

    found = list(pool.map(compare, range(max(1, min(workers, MOST_WORKERS)))))
    for others in found[1:]:
        _join(*others, *found[0])
    return found[0]


def unit_rows(rows: Floats) -> NDArray[np.float32]:
    """Return rows of unit length in float32; a row of zeros stays one."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1), dtype=np.float32)


def no_rows(rows: int, count: int) -> Lists:
    """Return empty lists of `count` rows for so many rows."""
    return np.full((rows, count), _NONE, dtype=np.float32), np.full((rows, count), rows, dtype=np.int32)


@cached
def _insert(value: float, number: int, values: Any, numbers: Any) -> None:
    """Put a row into a list of falling values; of equal values the lower number comes first."""
    at = len(values) - 1
    if value < values[at] or (value == values[at] and number >= numbers[at]):
        return
    while at > 0 and (value > values[at - 1] or (value == values[at - 1] and number < numbers[at - 1])):
        values[at], numbers[at] = values[at - 1], numbers[at - 1]
        at -= 1
    values[at], numbers[at] = value, number


def _keep_nearest(cosines: Any, first_row: int, first_column: int, values: Any, numbers: Any) -> None:
    """Enter a block of cosines into the lists of its rows and of its columns; where both are one, above the diagonal.

    Few cosines enter a list: a stretch of them is first compared with all its bounds at once, in vector registers.
    """
    rows, columns = cosines.shape
    last = values.shape[1] - 1
    least = values[first_column : first_column + columns, last].copy()
    for i in range(rows):
        row = first_row + i
        own = values[row, last]
        for start in range(i + 1 if first_row == first_column else 0, columns, _STRETCH):
            stop = min(start + _STRETCH, columns)
            some = 0
            for j in range(start, stop):
                some |= (cosines[i, j] >= own) | (cosines[i, j] >= least[j])
            if some == 0:
                continue
            for j in range(start, stop):
                column = first_column + j
                if cosines[i, j] >= own:
                    _insert(cosines[i, j], column, values[row], numbers[row])
                    own = values[row, last]
                if cosines[i, j] >= least[j]:
                    _insert(cosines[i, j], row, values[column], numbers[column])
                    least[j] = values[column, last]


def _keep_one_way(cosines: Any, rows: Any, first_row: int, first_column: int, values: Any, numbers: Any) -> None:
    """Enter cosines [m, c] to the rows numbered from `first_column` into the lists `rows` [m] of lists [n, k].

    The lists are those of rows numbered from `first_row`; no row enters its own.
    """
    last = values.shape[1] - 1
    for i in range(len(rows)):
        row = rows[i]
        own = values[row, last]
        for start in range(0, cosines.shape[1], _STRETCH):
            stop = min(start + _STRETCH, cosines.shape[1])
            some = 0
            for j in range(start, stop):
                some |= cosines[i, j] >= own
            if some == 0:
                continue
            for j in range(start, stop):
                if cosines[i, j] >= own and first_row + row != first_column + j:
                    _insert(cosines[i, j], first_column + j, values[row], numbers[row])
                    own = values[row, last]


def _join_lists(others: Any, other_numbers: Any, values: Any, numbers: Any) -> None:
    """Enter one thread's lists into another's."""
    for row in range(len(others)):
        for at in range(others.shape[1]):
            if others[row, at] > _NONE:
                _insert(others[row, at], other_numbers[row, at], values[row], numbers[row])


_keep = cached(_keep_nearest, nogil=True)
_join = cached(_join_lists, nogil=True)
keep_nearest = cached(_keep_one_way, nogil=True)
