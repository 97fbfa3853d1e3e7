"""Cells of similar rows: k-means in two levels on a sample, so that finding a row's cell takes few comparisons.

Rows have unit length and cells are directions. A row goes to the nearest fine cell of the few coarse cells that are
nearest to it. Cells are numbered coarse cell by coarse cell, so that neighbouring numbers are near each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
ROWS_PER_CELL = 256
SAMPLE_PER_CELL = 16  # rows that k-means sees for each cell ...
MOST_SAMPLED = 80_000  # ... and in all
_ROUNDS = 8  # of k-means
_COARSE_SEARCHED = 4  # coarse cells in which a row looks for its own


@dataclass(frozen=True)
class Cells:
    """Directions of cells, and the coarse cells that they belong to."""

    coarse: Floats  # [G, d]
    fine: Floats  # [C, d], in the order of the coarse cells
    starts: NDArray[np.int64]  # [G + 1], first fine cell of each coarse one

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


def write_cells(path: Path, cells: Cells) -> None:
    """Write cells to a file, for all workers."""
    with path.open("wb") as file:
        np.savez(file, coarse=cells.coarse, fine=cells.fine, starts=cells.starts)


def read_cells(path: Path) -> Cells:
    """Read cells from a file; each process reads it once."""
    return _cells_at(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _cells_at(path: Path, _written: int) -> Cells:
    with np.load(path, allow_pickle=False) as found:
        return Cells(found["coarse"], found["fine"], found["starts"])


def cells_wanted(rows: int) -> int:
    """Return the number of cells for a pool."""
    return max(1, rows // ROWS_PER_CELL)


def sample_wanted(rows: int) -> int:
    """Return how many rows k-means should see."""
    return min(rows, MOST_SAMPLED, max(1_024, SAMPLE_PER_CELL * cells_wanted(rows)))


def find_cells(sample: Floats, count: int) -> Cells:
    """Divide a sample [n, d] of unit-length rows into about `count` cells; the same sample gives the same cells."""
    count = min(count, len(sample))
    coarse, of_coarse = _k_means(sample, max(1, round(count**0.5)))
    fine, starts = [], [0]
    for group in range(len(coarse)):
        members = sample[of_coarse == group]
        wanted = min(len(members), max(1, round(count * len(members) / len(sample))))
        fine.append(_k_means(members, wanted)[0])
        starts.append(starts[-1] + len(fine[-1]))
    return Cells(coarse, np.concatenate(fine), np.array(starts))


def _k_means(rows: Floats, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return directions of the cells that are not empty, and the cell of each row."""
    centres = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    for _ in range(_ROUNDS):
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
