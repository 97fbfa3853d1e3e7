"""Compiled Sinkhorn gives the answers of the readable code, independent of the batch."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot.kernels.sinkhorn_numba import balance as compiled
from sinkshot.kernels.sinkhorn_numba import rebalance
from sinkshot.methods import _sinkhorn, protolp


def kernels(episodes=6, way=5, queries=30, dtype="float64", seed=0):
    x = np.random.default_rng(seed).gamma(1.0, 3.0, size=(episodes, way, queries))
    return np.exp(x.min(axis=1, keepdims=True) - x).astype(dtype)


def readable(monkeypatch, *arguments):
    monkeypatch.setattr(_sinkhorn, "PAYS_FROM", np.inf)
    return _sinkhorn.balance(*arguments)


@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize("shares", [[0.2] * 5, [0.5, 0.3, 0.1, 0.1, 0.0]], ids=str)
def test_answers_are_those_of_the_readable_code(monkeypatch, clamped, shares):
    kernel, fixed = kernels(), np.full((6, 5, 1), 2.0) if clamped else None
    target = 30 * np.asarray(shares)[None, :, None] + (2.0 if clamped else 0.0)
    expected = readable(monkeypatch, kernel, target, 1e-6, fixed)
    np.testing.assert_allclose(compiled(kernel, target, 1e-6, fixed, 1000), expected, atol=1e-10)


def test_classes_get_their_targets_and_rows_sum_to_one():
    target = 30 * np.array([0.4, 0.3, 0.1, 0.1, 0.1])[None, :, None]
    plan = compiled(kernels(), target, 1e-9, None, 1000)
    np.testing.assert_allclose(plan.sum(axis=-1, keepdims=True), np.broadcast_to(target, (6, 5, 1)))
    np.testing.assert_allclose(plan.sum(axis=-2), 1.0, atol=1e-6)


@pytest.mark.parametrize("ours", [compiled, lambda *given: _sinkhorn.balance(*given[:4])], ids=["compiled", "readable"])
def test_an_episode_stops_by_itself(ours):
    kernel, target = kernels(queries=12), np.full((1, 5, 1), 12 / 5)
    together = ours(kernel, target, 1e-3, None, 1000)
    apart = [ours(kernel[r : r + 1], target, 1e-3, None, 1000)[0] for r in range(6)]
    np.testing.assert_array_equal(together, apart)


def test_labels_are_balanced_again_as_the_readable_code_does(monkeypatch):
    rng = np.random.default_rng(1)
    labels = rng.dirichlet(np.full(5, 0.5), size=(6, 35)).swapaxes(1, 2)
    member = np.tile(np.eye(5), (6, 1, 1))  # one support each
    target = 1 + 30 * np.array([0.4, 0.3, 0.1, 0.1, 0.1])[None, :, None]
    monkeypatch.setattr(_sinkhorn, "PAYS_FROM", np.inf)
    expected = protolp.rebalanced(labels, member, target)
    np.testing.assert_allclose(rebalance(labels, member, target, 1e-2, 1000), expected, atol=1e-12)
    assert np.abs(expected - labels).max() > 0.1
    assert (expected[..., :5] == member).all()


def test_the_number_of_passes_is_bounded():
    plan = compiled(kernels(), np.full((1, 5, 1), 6.0), 0.0, None, 1)
    assert np.abs(plan.sum(axis=-2) - 1).max() > 1e-3


def test_float32_stays_float32():
    target = np.full((1, 5, 1), 6.0, np.float32)
    single, double = (compiled(kernels(dtype=t), target, 1e-6, None, 1000) for t in ("float32", "float64"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-4)
