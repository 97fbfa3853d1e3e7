"""Where the rows of a pool stand in the sorted parts of a bank.

Each part of the bank was sorted by small cell. All rows have an order: by small cell, then by part of the bank, then as
in it. Some places of that order are landmarks'. A pool has landmarks first, then the other rows, each in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.parted.array import read_rows

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class RowsTaken:
    """Rows of one sorted part: single ones, or a stretch without some."""

    begin: int
    end: int
    chosen: Numbers | None = None  # rows, rising; None: the stretch
    left_out: Numbers | None = None  # of the stretch, rising

    def read(self, path: Path, width: int, dtype: Any) -> NDArray[Any]:
        """Read them from a file of that part, [n, width]."""
        if self.chosen is not None:
            return np.asarray(np.memmap(path, dtype, "r").reshape(-1, width)[self.chosen])
        found = read_rows(path, width, self.begin, self.end, dtype)
        return found if self.left_out is None else np.delete(found, self.left_out - self.begin, axis=0)


@dataclass(frozen=True)
class SortedRows:
    """Sizes of small cells in each part of the bank, and the places of landmarks."""

    counts: NDArray[np.int32]  # [parts, S]
    landmarks: Numbers | None  # rising; None: all rows are

    @cached_property
    def sizes(self) -> Numbers:
        """Rows of each small cell, [S]."""
        return np.asarray(self.counts.sum(axis=0, dtype=np.int64))

    @cached_property
    def starts(self) -> Numbers:
        """Place of the first row of each small cell, and the number of all rows, [S + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def cell_starts(self, small_starts: Numbers) -> Numbers:
        """Return the first row in the pool of each cell among landmarks, then among other rows, [2 C + 1].

        `small_starts` [C + 1] is the first small cell of each.
        """
        marks = np.arange(self.starts[-1]) if self.landmarks is None else self.landmarks
        before = np.searchsorted(marks, self.starts[small_starts])  # landmarks before each cell
        return np.concatenate([before, len(marks) + (self.starts[small_starts] - before)[1:]])

    def taken(self, begin: int, end: int) -> dict[int, RowsTaken]:
        """Return where the rows `begin` to `end` of the pool stand, by part of the bank.

        They are either all landmarks or all other rows.
        """
        if self.landmarks is None:
            return self._stretch(begin, end, np.empty(0, np.int64))
        if end <= len(self.landmarks):
            return self._single(self.landmarks[begin:end])
        others = self.landmarks - np.arange(len(self.landmarks))  # other rows before each landmark
        first, last = (at + int(np.searchsorted(others, at, side="right")) for at in _less(len(others), begin, end))
        within = self.landmarks[slice(*np.searchsorted(self.landmarks, [first, last]))]
        return self._stretch(first, last, within)

    def _single(self, places: Numbers) -> dict[int, RowsTaken]:
        part, row = self._rows_at(places)
        return {int(one): RowsTaken(0, 0, chosen=np.sort(row[part == one])) for one in np.unique(part)}

    def _stretch(self, first: int, last: int, without: Numbers) -> dict[int, RowsTaken]:
        part, row = self._rows_at(without)
        begins, ends = self._cut(first), self._cut(last)
        found = {}
        for number in np.flatnonzero(ends > begins):
            out = np.sort(row[part == number])
            if len(out) < ends[number] - begins[number]:
                left_out = out if len(out) else None
                found[int(number)] = RowsTaken(int(begins[number]), int(ends[number]), left_out=left_out)
        return found

    @cached_property
    def _offsets(self) -> NDArray[np.int32]:
        """First row of each small cell in each sorted part, [parts, S]."""
        return np.asarray(np.cumsum(self.counts, axis=1, dtype=np.int32) - self.counts)

    @cached_property
    def _before(self) -> NDArray[np.int32]:
        """Rows of each small cell in earlier parts, [parts + 1, S]."""
        return np.concatenate([np.zeros_like(self.counts[:1]), np.cumsum(self.counts, axis=0, dtype=np.int32)])

    def _rows_at(self, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return the part and the row in it, sorted, of each place."""
        cell = np.searchsorted(self.starts, places, side="right") - 1
        rank = places - self.starts[cell]
        part = np.empty(len(places), np.int64)
        for at in range(0, len(places), 1_024):
            some = slice(at, at + 1_024)
            part[some] = (self._before[1:, cell[some]] <= rank[some]).sum(axis=0)
        return part, np.asarray(self._offsets[part, cell] + rank - self._before[part, cell], np.int64)

    def _cut(self, place: int) -> Numbers:
        """Return how many rows of each sorted part come before a place, [parts]."""
        cell = min(int(np.searchsorted(self.starts, place, side="right")) - 1, len(self.sizes) - 1)
        within = np.clip(place - self.starts[cell] - self._before[:-1, cell], 0, self.counts[:, cell])
        return np.asarray(self._offsets[:, cell] + within)


def _less(count: int, *places: int) -> tuple[int, ...]:
    return tuple(int(place) - count for place in places)
