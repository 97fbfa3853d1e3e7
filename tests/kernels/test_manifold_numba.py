"""The compiled adaptive manifold: the answers of the readable code, whatever the size and the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from sinkshot.kernels import block_lu, manifold_numba
from sinkshot.methods import _manifold, _tim
from sinkshot.methods.adaptive_manifold import _descend

SIZES = [  # way, supports, queries, d, k: one shot, where centroids start at supports; odd ones; all are neighbours
    (5, 5, 75, 64, 20),
    (5, 25, 30, 100, 10),
    (2, 3, 1, 8, 2),
    (7, 15, 9, 17, 5),
    (12, 36, 40, 40, 7),
    (3, 6, 5, 16, 50),
]


def problem(way, supports, queries, width, episodes=3):
    rng = np.random.default_rng(way)
    centres = rng.normal(size=(episodes, way, width))
    labels = np.stack([rng.permutation(np.arange(supports) % way) for _ in range(episodes)])
    classes = np.hstack([labels, rng.integers(0, way, size=(episodes, queries))])
    x = np.take_along_axis(centres, classes[..., None], axis=1) + rng.normal(size=(episodes, supports + queries, width))
    x = (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)
    member = (labels[:, None] == np.arange(way)[:, None]).astype(np.float32)
    return x, member, member / member.sum(axis=-1, keepdims=True) @ x[:, :supports]


def readable(x, member, start, k, spread, settings):
    doubled = (a.astype(np.float64) for a in (x, member, start))
    return _descend(_manifold.rows_of(*doubled, k, spread), settings)[..., member.shape[-1] :]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_answers_are_those_of_the_readable_code(size, alpha):
    *shape, k = size
    given = (*problem(*shape), k, 0.85)
    begin, soon, later = (readable(*given, steps(count, alpha)) for count in (1, 8, 60))
    assert np.abs(soon - begin).max() > 5e-3  # it has moved
    np.testing.assert_allclose(manifold_numba.probabilities(*given, steps(1, alpha)), begin, atol=2e-6)
    np.testing.assert_allclose(manifold_numba.probabilities(*given, steps(8, alpha)), soon, atol=1e-5)
    difference = np.abs(manifold_numba.probabilities(*given, steps(60, alpha)) - later)
    assert difference.max() < 0.03  # where two were almost equally near, rounding has chosen the neighbour
    assert difference.mean() < 2e-3


def steps(count, alpha):
    return _tim.decide((1.0, 3.0, 0.5), alpha, 15.0, count, 1e-3)


def test_neither_threads_nor_neighbours_change_a_bit():
    x, member, start = problem(5, 10, 20, 48, episodes=9)
    how = (6, 0.9, _tim.decide((1, 1, 1), 2.0, 15.0, 50, 1e-3))
    together = manifold_numba.probabilities(x, member, start, *how, threads=2)
    np.testing.assert_array_equal(together, manifold_numba.probabilities(x, member, start, *how, threads=1))
    np.testing.assert_array_equal(together[4:5], manifold_numba.probabilities(x[4:5], member[4:5], start[4:5], *how))


def test_an_episode_out_of_range_is_not_a_number_and_spoils_no_other():
    x, member, start = problem(4, 8, 13, 20, episodes=3)
    how = (5, 0.9, _tim.decide((1, 1, 1), 1.0, 15.0, 20, 1e-3))
    whole = manifold_numba.probabilities(x, member, start, *how, threads=1)
    spoiled, moved = x.copy(), start.copy()
    spoiled[1] *= 1e25
    moved[1] *= 1e25
    found = manifold_numba.probabilities(spoiled, member, moved, *how, threads=1)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])


def test_all_that_are_equally_near_are_neighbours():
    x, member, start = problem(3, 6, 9, 16)
    x[:, 8:], start[:, 1:] = x[:, 8:9], x[:, 8:9]
    how = (x, member, start, 4, 0.8, _tim.decide((1, 1, 1), 1.0, 15.0, 1, 1e-3))
    np.testing.assert_allclose(manifold_numba.probabilities(*how), readable(*how), atol=2e-6)


@pytest.mark.parametrize(("rows", "columns", "first"), [(8, 8, 0), (40, 8, 33), (40, 16, 3), (64, 8, 56)])
def test_elimination_solves_systems_whose_diagonal_dominates(rows, columns, first):
    rng = np.random.default_rng(rows)
    matrix = -rng.random((rows, rows)) * (rng.random((rows, rows)) < 0.3)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1) * 1.05)
    right = rng.normal(size=(rows, columns))
    right[:first] = 0
    other = rng.normal(size=(rows, columns))
    found, found_across = solved(*(a.astype(np.float32) for a in (matrix, right, other)), first)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), atol=2e-5)
    np.testing.assert_allclose(found_across, np.linalg.solve(matrix.T, other), atol=2e-5)


@njit
def solved(matrix, right, other, first):
    inverse, held = np.zeros((len(matrix), 8), np.float32), np.zeros((8, right.shape[1]), np.float32)
    block_lu.factor(matrix, np.eye(8).astype(np.float32), inverse)
    block_lu.solve(matrix, inverse, first, right, held)
    block_lu.solve_across(matrix, inverse, other, held)
    return right, other


def test_single_precision_takes_the_kernel_however_few_the_episodes_unless_strengths_may_turn_negative():
    x = np.zeros((8, 20, 16), np.float32)
    usual = _tim.decide((1, 1, 1), 1.0, 15.0, 1000, 1e-4)
    assert _manifold.compiled(x, 0.9, usual)
    assert not _manifold.compiled(x, 1.2, usual)
    assert not _manifold.compiled(x, 0.9, _tim.decide((1, 1, 1), 1.0, 15.0, 1000, 1e-2))
    assert not _manifold.compiled(x.astype(np.float64), 0.9, usual)
    assert _manifold.compiled(x[:1], 0.9, usual)
    assert not _manifold.compiled(np.zeros((8, 1001, 16), np.float32), 0.9, usual)
