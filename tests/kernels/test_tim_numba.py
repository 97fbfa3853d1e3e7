"""The compiled Adam: the same weights as the readable code, whatever the size and the number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot.kernels import tim_numba
from sinkshot.methods import _tim
from sinkshot.methods import sgc as readable_sgc
from sinkshot.methods._adam import adam as readable

SIZES = [(5, 5, 75, 640), (5, 25, 75, 64), (2, 3, 1, 8), (7, 15, 9, 17), (12, 36, 40, 100)]  # way, supports, queries, d


def problem(way, supports, queries, width, episodes=3):
    rng = np.random.default_rng(way)
    x = np.abs(rng.normal(size=(episodes, supports + queries, width)) + 2 * rng.normal(size=(episodes, 1, width)))
    x = (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)
    labels = np.stack([rng.permutation(np.arange(supports) % way) for _ in range(episodes)])
    member = (labels[:, None] == np.arange(way)[:, None]).astype(np.float32)
    return x, member, member / member.sum(axis=-1, keepdims=True) @ x[:, :supports]


def close(compiled, expected):
    """Equal up to rounding; Adam amplifies rounding where a gradient passes through zero."""
    difference = np.abs(compiled - expected)
    assert difference.max() < 5e-4
    assert difference.mean() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 2.0, 7.0, 0.7])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_weights_of_tim_are_those_of_the_readable_code(size, alpha):
    x, member, start = problem(*size)
    settings = _tim.decide((0.5, 1.0, 0.7), alpha, 15.0, 60, 1e-3)
    compiled = tim_numba.tim(x, member, start, settings)
    x, member, start = (a.astype(np.float64) for a in (x, member, start))
    expected = readable(start, lambda w: _tim.gradient(w, x, member, settings), steps=60, lr=1e-3)
    assert np.abs(expected - start).max() > 0.01  # it has moved
    close(compiled, expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_weights_of_a_linear_layer_are_those_of_the_readable_code(size):
    x, member, start = problem(*size)
    x = x[:, : size[1]]
    compiled = tim_numba.linear(x, member, start, decay=1e-3, least=0.0, lr=1e-2, steps=60)
    doubled = (a.astype(np.float64) for a in (start, x, member))
    close(compiled, readable_sgc.train(*doubled, 60, 1e-2, 1e-3))


def test_neither_threads_nor_neighbours_change_a_bit():
    x, member, start = problem(5, 10, 20, 48, episodes=9)
    settings = _tim.decide((1, 1, 1), 2.0, 15.0, 50, 1e-3)
    together = tim_numba.tim(x, member, start, settings, threads=2)
    np.testing.assert_array_equal(together, tim_numba.tim(x, member, start, settings, threads=1))
    np.testing.assert_array_equal(together[4:5], tim_numba.tim(x[4:5], member[4:5], start[4:5], settings))


def test_many_episodes_of_single_precision_take_the_kernel_and_others_do_not():
    x = np.zeros((8, 20, 16), np.float32)
    assert _tim.fused(x, 1000)
    assert not _tim.fused(x.astype(np.float64), 1000)
    assert not _tim.fused(x[:3], 1000)
    assert not _tim.fused(np.broadcast_to(x[:, :1, :1], (8, 100_000, 640)), 1000)
    torch = pytest.importorskip("torch")
    assert not _tim.fused(torch.asarray(x), 1000)
