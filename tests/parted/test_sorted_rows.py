"""Where the rows of a pool stand in the sorted parts of its bank."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkshot.kernels.landmarks import landmark_places
from sinkshot.parted.sorted_rows import RowsTaken, SortedRows


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(st.lists(st.integers(0, 6), min_size=0, max_size=30), min_size=1, max_size=5),
    cuts=st.lists(st.floats(0, 1), max_size=4),
    share=st.floats(0.05, 0.9),
)
def test_parts_of_the_pool_are_landmarks_then_others_in_one_order(
    cells: list[list[int]], cuts: list[float], share: float
) -> None:
    """Cut anywhere, the rows of the pool are those that a sort of all rows gives: by cell, then as in the bank."""
    parts = [np.sort(np.array(some, np.int64)) for some in cells]
    total = sum(len(some) for some in parts)
    if total < 2:
        return
    counts = np.array([np.bincount(some, minlength=7) for some in parts])
    every = [(int(cell), part, row) for part, some in enumerate(parts) for row, cell in enumerate(some)]
    every.sort()
    places = landmark_places(counts.sum(axis=0), max(1, int(share * total)))
    chosen = set(places.tolist())
    expected = [every[place] for place in sorted(chosen)]
    expected += [one for place, one in enumerate(every) if place not in chosen]
    rows = SortedRows(counts, places)
    bounds = sorted({0, len(places), total, *(int(cut * total) for cut in cuts)})
    found = []
    for begin, end in pairwise(bounds):
        own = [
            (int(parts[part][row]), part, int(row))
            for part, taken in rows.taken(begin, end).items()
            for row in _rows(taken)
        ]
        found += sorted(own)
    assert found == expected
    starts = rows.cell_starts(np.arange(8))
    assert starts[7] == len(places)
    assert starts[-1] == total
    for number, (cell, _, _) in enumerate(expected):
        kind = cell if number < len(places) else 7 + cell
        assert starts[kind] <= number < starts[kind + 1]


def _rows(taken: RowsTaken) -> np.ndarray:
    if taken.chosen is not None:
        return taken.chosen
    return np.setdiff1d(np.arange(taken.begin, taken.end), [] if taken.left_out is None else taken.left_out)


@pytest.mark.parametrize("width", [1, 5])
def test_rows_are_read_one_by_one_or_as_a_stretch(tmp_path: Path, width: int) -> None:
    """Single rows, and a stretch without some."""
    rows = np.arange(40 * width, dtype=np.float32).reshape(40, width)
    rows.tofile(tmp_path / "rows")
    single = RowsTaken(0, 0, chosen=np.array([3, 17, 39]))
    np.testing.assert_array_equal(single.read(tmp_path / "rows", width, np.float32), rows[[3, 17, 39]])
    stretch = RowsTaken(10, 20, left_out=np.array([11, 19]))
    expected = rows[[10, *range(12, 19)]]
    np.testing.assert_array_equal(stretch.read(tmp_path / "rows", width, np.float32), expected)
