"""Cells of similar rows: k-means in levels on a sample, so that finding a row's cell takes few comparisons.

Rows have unit length and cells are directions. A row goes to the nearest cell of the few coarse cells that are nearest
to it. Cells are numbered coarse cell by coarse cell, so that neighbouring numbers are near each other. Small cells
divide a cell further: from them landmarks are drawn (`sinkshot.kernels.landmarks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
ROWS_PER_CELL = 256
SAMPLE_PER_CELL = 16  # rows that k-means sees for each cell ...
MOST_SAMPLED = 80_000  # ... and in all
SMALL_CELLS = 48  # in a cell, about: each has some five landmarks
SAMPLE_PER_SMALL_CELL = 4  # rows that k-means sees for each of them
_ROUNDS = 8  # of k-means ...
_ROUNDS_OF_SMALL = 3  # ... and for small cells, from which samples are drawn and nothing more
_COARSE_SEARCHED = 4  # coarse cells in which a row looks for its own


@dataclass(frozen=True)
class Cells:
    """Directions of cells, the coarse cells that they belong to, and small cells in them."""

    coarse: Floats  # [G, d]
    fine: Floats  # [C, d], in the order of the coarse cells
    starts: NDArray[np.int64]  # [G + 1], first cell of each coarse one
    small: Floats  # [S, d], in the order of the cells
    small_starts: NDArray[np.int64]  # [C + 1], first small cell of each cell

    def of(self, rows: Floats) -> NDArray[np.int32]:
        """Return the cell of each row [n, d]."""
        searched = min(_COARSE_SEARCHED, len(self.coarse))
        near = np.argpartition(-(rows @ self.coarse.T), searched - 1, axis=1)[:, :searched]
        best = np.full(len(rows), -np.inf, dtype=np.float32)
        found = np.zeros(len(rows), dtype=np.int32)
        for group in np.unique(near):
            members = np.flatnonzero((near == group).any(axis=1))
            begin, end = self.starts[group : group + 2]
            cosines = rows[members] @ self.fine[begin:end].T
            at = cosines.argmax(axis=1)
            value = cosines[np.arange(len(at)), at]
            better = value > best[members]
            best[members[better]] = value[better]
            found[members[better]] = (begin + at[better]).astype(np.int32)
        return found

    def small_of(self, rows: Floats) -> NDArray[np.int32]:
        """Return the small cell of each row [n, d]: the nearest of those in its cell."""
        cell = self.of(rows)
        if len(self.small) == len(self.fine):
            return cell
        order = np.argsort(cell, kind="stable")
        sorted_rows, bounds = rows[order], np.searchsorted(cell[order], np.arange(len(self.fine) + 1))
        found = np.empty(len(rows), dtype=np.int32)
        for number, (begin, end) in enumerate(pairwise(bounds)):
            if end > begin:
                first, last = self.small_starts[number : number + 2]
                found[order[begin:end]] = first + (sorted_rows[begin:end] @ self.small[first:last].T).argmax(axis=1)
        return found

    def nearest(self, count: int) -> NDArray[np.int32]:
        """Return the cells nearest to each, itself first, [C, count]."""
        count = min(count, len(self.fine))
        found = np.empty((len(self.fine), count), dtype=np.int32)
        for begin in range(0, len(self.fine), 1_024):
            cosines = self.fine[begin : begin + 1_024] @ self.fine.T
            cosines[np.arange(len(cosines)), np.arange(begin, begin + len(cosines))] = np.inf
            chosen = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(cosines, chosen, axis=1), axis=1, kind="stable")
            found[begin : begin + 1_024] = np.take_along_axis(chosen, order, axis=1)
        return found


def cells_wanted(rows: int) -> int:
    """Return the number of cells for a pool."""
    return max(1, rows // ROWS_PER_CELL)


def sample_wanted(rows: int, small: int = 1) -> int:
    """Return how many rows k-means should see, where each cell is to be divided into so many small ones."""
    each = max(SAMPLE_PER_CELL, SAMPLE_PER_SMALL_CELL * small)
    return min(rows, MOST_SAMPLED, max(1_024, each * cells_wanted(rows)))


def sample_of(queries: int, landmarks: int) -> slice:
    """Return which queries k-means sees before landmarks are drawn, the same in memory and in parts."""
    return slice(None, None, max(1, queries // sample_wanted(landmarks, SMALL_CELLS)))


def find_cells(sample: Floats, count: int, small: int = 1) -> Cells:
    """Divide a sample [n, d] of unit-length rows into about `count` cells; the same sample gives the same cells.

    Each is divided again into about `small` cells, by their share of the sample, if that is more than one.
    """
    count = min(count, len(sample))
    some = sample[:: max(1, len(sample) // max(1_024, SAMPLE_PER_CELL * count))]  # enough for these
    coarse, of_coarse = _k_means(some, max(1, round(count**0.5)), _ROUNDS)
    fine, starts = _divided(some, of_coarse, coarse, count, _ROUNDS)
    cells = Cells(coarse, fine, starts, fine, np.arange(len(fine) + 1))
    if small == 1:
        return cells
    blocks = (sample[at : at + 1_024] for at in range(0, len(sample), 1_024))  # so that copies stay small
    of = np.concatenate([cells.of(block) for block in blocks])
    return Cells(coarse, fine, starts, *_divided(sample, of, fine, small * len(fine), _ROUNDS_OF_SMALL))


def _divided(
    sample: Floats, of: NDArray[np.integer[Any]], groups: Floats, count: int, rounds: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Divide each group of a sample by its share of `count` cells; return their directions, and the first of each.

    A group that no row of the sample is in stays as it is.
    """
    found, starts = [], [0]
    for number, direction in enumerate(groups):
        members = sample[of == number]
        wanted = min(len(members), max(1, round(count * len(members) / len(sample))))
        found.append(_k_means(members, wanted, rounds)[0] if len(members) else direction[None])
        starts.append(starts[-1] + len(found[-1]))
    return np.concatenate(found), np.array(starts)


def _k_means(rows: Floats, count: int, rounds: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return directions of the cells that are not empty, and the cell of each row."""
    centres = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    for _ in range(rounds):
        of = _nearest(rows, centres)
        used, of = np.unique(of, return_inverse=True)
        order = np.argsort(of, kind="stable")
        sums = np.add.reduceat(rows[order], np.searchsorted(of[order], np.arange(len(used))), axis=0)
        length = np.sqrt(np.sum(sums * sums, axis=1, keepdims=True))
        centres = np.asarray(sums / np.where(length > 0, length, 1), dtype=rows.dtype)
    of = _nearest(rows, centres)
    used, of = np.unique(of, return_inverse=True)
    return centres[used], of


def _nearest(rows: Floats, centres: Floats) -> NDArray[np.int64]:
    blocks = (rows[at : at + 4_096] @ centres.T for at in range(0, len(rows), 4_096))
    return np.concatenate([block.argmax(axis=1) for block in blocks])
