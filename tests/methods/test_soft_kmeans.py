"""Soft k-means: parity with the published code, balanced and Dirichlet; the plain formulas elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import KINDS, check
from scipy.special import softmax
from test_contract import make_task, probabilities

from sinkshot import METHODS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "chain"), [("soft-kmeans", "MnE"), ("soft-kmeans-peme", "PsEMnE")])
def test_scores_and_accuracy_are_those_of_the_published_code(name, chain, kind):
    # the published square root has no epsilon: it is our signed power
    check("soft-kmeans", kind, file=name, chain=chain, tolerance=1e-3)
    assert METHODS["soft-kmeans"].preprocess == "MnE"


def plain(support, labels, query, way):
    """One episode of raw features, step by step as the public code is described."""
    mean = np.concatenate([support, query]).mean(axis=0)
    support, query = ((x - mean) / np.linalg.norm(x - mean, axis=1, keepdims=True) for x in (support, query))
    member = np.eye(way)[labels]
    centres = member.T @ support / member.sum(axis=0)[:, None]
    for _ in range(30):
        p = softmax(-5 * ((query[:, None] - centres) ** 2).sum(axis=-1), axis=1)
        centres = (member.T @ support + p.T @ query) / (member.sum(axis=0) + p.sum(axis=0))[:, None]
    return p


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize(
    "size",
    [
        {"way": 2, "shots": (1, 1), "queries": 7},
        {"way": 3, "shots": (7, 7, 7), "queries": 1},
        {"way": 10, "shots": (3,) * 10, "queries": 41},
        {"way": 4, "shots": (1, 4, 2, 10), "queries": 12},
    ],
    ids=str,
)
def test_it_follows_the_formulas_for_other_ways_and_shots(size, dtype, tolerance):
    task = make_task(**size, dtype=dtype, spread=2.0)  # so vague that the number of steps counts
    rows = zip(task.support.astype("float64"), task.labels, task.query.astype("float64"), strict=True)
    expected = [plain(*one, task.way) for one in rows]
    np.testing.assert_allclose(probabilities("soft-kmeans", task), expected, atol=tolerance)
