"""Cells of similar rows, in levels."""

from __future__ import annotations

import numpy as np

from sinkshot.kernels.cells import SMALL_CELLS, cells_wanted, find_cells, sample_of, sample_wanted


def unit(rows, width=24, seed=0):
    """Return rows of unit length around a few centres."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(12, width))[rng.integers(12, size=rows)] + 0.5 * rng.normal(size=(rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_a_row_goes_to_the_nearest_small_cell_of_its_cell():
    rows = unit(3_000)
    cells = find_cells(rows, 10, small=8)
    cell, small = cells.of(rows), cells.small_of(rows)
    assert len(cells.small_starts) == len(cells.fine) + 1
    assert 4 * len(cells.fine) <= len(cells.small) <= 12 * len(cells.fine)
    for row in range(0, 3_000, 97):
        first, last = cells.small_starts[cell[row] : cell[row] + 2]
        assert first <= small[row] < last
        assert small[row] == first + (cells.small[first:last] @ rows[row]).argmax()


def test_small_cells_hold_more_similar_rows_than_cells_do():
    rows = unit(3_000)
    cells = find_cells(rows, 10, small=8)
    to_cell = np.sum(rows * cells.fine[cells.of(rows)], axis=1).mean()
    to_small = np.sum(rows * cells.small[cells.small_of(rows)], axis=1).mean()
    assert to_small > to_cell + 0.02


def test_without_small_cells_they_are_the_cells():
    rows = unit(500)
    cells = find_cells(rows, 5)
    np.testing.assert_array_equal(cells.of(rows), cells.small_of(rows))


def test_a_cell_without_rows_of_the_sample_stays_whole():
    """Each cell has a small one, also where the larger sample has no row in it."""
    rows = np.concatenate([unit(4_000), np.eye(24, dtype=np.float32)[:1]])
    cells = find_cells(rows, 40, small=4)
    assert (np.diff(cells.small_starts) >= 1).all()


def test_k_means_sees_enough_rows_but_few_of_a_large_pool():
    for queries in (50_000, 5_000_000):
        seen = len(range(queries)[sample_of(queries, 40_000)])
        assert sample_wanted(40_000, SMALL_CELLS) <= seen < 2 * sample_wanted(40_000, SMALL_CELLS)
    assert sample_wanted(40_000) == 16 * cells_wanted(40_000)
