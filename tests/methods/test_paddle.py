"""PADDLE: parity with the public code, and the plain formulas for other ways, shots and lambdas."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import KINDS, check
from test_contract import make_task

from sinkshot import METHODS, Task


def plain(support, labels, query, way, lam=None, steps=100):
    """One episode in feature space, step by step as the public code is described, its offset included."""
    low = query.min(axis=0)
    span = query.max(axis=0) - low
    span[span == 0] = 1
    s, x = support / span - low, query / span - low
    w, v = np.stack([s[labels == k].mean(axis=0) for k in range(way)]), np.zeros(way)
    lam = len(query) if lam is None else lam
    for _ in range(steps):
        logits = -((x[:, None] - w) ** 2).sum(-1) / 2 + lam / len(query) * v
        u = np.exp(logits - logits.max(axis=1, keepdims=True))
        u /= u.sum(axis=1, keepdims=True)
        v = np.log(u.mean(axis=0) + 1e-6) + 1
        totals = np.stack([s[labels == k].sum(axis=0) for k in range(way)]) + u.T @ x
        w = totals / (np.bincount(labels, minlength=way) + u.sum(axis=0))[:, None]
    return u


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scores_and_accuracy_are_those_of_the_published_code(kind, dtype):
    check("paddle", kind, dtype=dtype, tolerance=1e-4)


@pytest.mark.parametrize(
    "size",
    [{}, {"way": 10, "shots": (3,) * 10, "queries": 100}, {"shots": (1, 5, 2, 3), "queries": 6}, {"queries": 1}],
    ids=str,
)
@pytest.mark.parametrize("lam", [None, 0.0, 75.0])
def test_it_follows_the_formulas_for_other_ways_and_shots(size, lam):
    task = make_task(**size)
    expected = [plain(*one, task.way, lam) for one in zip(task.support, task.labels, task.query, strict=True)]
    ours = METHODS["paddle"](task, lam="auto" if lam is None else lam).probabilities
    np.testing.assert_allclose(ours, expected, atol=1e-8)


def test_a_feature_counts_by_its_range_over_the_queries_alone():
    task = make_task()
    wide = np.where(np.arange(16) < 8, 50.0, 1.0)
    scaled = Task(task.support * wide, task.labels, task.query * wide, task.way)
    same, ours = (METHODS["paddle"](t).probabilities for t in (scaled, task))
    np.testing.assert_allclose(same, ours, atol=1e-9)
