"""BAVARDAGE: parity with the public code, also on features after a square root; the plain formulas elsewhere."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from published_code import KINDS, base, check, novel
from scipy.special import digamma, softmax

from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("file", "chain"), [("bavardage", "MbE"), ("bavardage-sqrt", "PsMbE")])
def test_scores_and_accuracy_are_those_of_the_public_code(file, chain, kind):
    check("bavardage", kind, file=file, chain=chain, tolerance=2e-4)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@cache
def plain_precision():
    """Inverse of the base classes' scatter, and their mean, as the public code is described."""
    features, labels = base().features.astype("float64"), base().labels
    mean = features.mean(axis=0)
    rows = unit(features - mean)
    centred = [rows[labels == c] - rows[labels == c].mean(axis=0) for c in range(labels.max() + 1)]
    scatters = [own.T @ own for own in centred]
    norms = [np.linalg.norm(scatter) for scatter in scatters]
    within = np.mean([s / norm for s, norm in zip(scatters, norms, strict=True)], axis=0) * np.mean(norms)
    return mean, np.linalg.inv(within + 1e-6 * np.eye(len(mean)))


def squared(x, centres):
    return ((x[:, None] - centres) ** 2).sum(axis=-1)


def plain(support, labels, query, way, mean, precision, *, balanced):
    """One episode of raw features, step by step as the public code is described."""
    x, member, supports = unit(np.concatenate([support, query]) - mean), np.eye(way)[labels], len(labels)
    u = np.linalg.svd(x.T, full_matrices=False)[0]
    rows = x @ u
    values, v = np.linalg.eigh(np.linalg.inv(u.T @ precision @ u))
    stretched = rows @ v * np.minimum(values**-0.5, 5)
    centres = member.T @ rows[:supports] / member.sum(axis=0)[:, None]
    for _ in range(5):
        r = np.concatenate([member, softmax(-10 * squared(rows, centres), axis=1)[supports:]])
        centres = r.T @ rows / r.sum(axis=0)[:, None]
    for _ in range(5):
        size = 10 + r.sum(axis=0)
        centres = r.T @ stretched / size[:, None]
        basis = np.linalg.qr((centres[1:] - centres[0]).T)[0]
        log_r = -2 * squared(stretched @ basis, centres @ basis) - (way - 1) / (2 * size)
        if not balanced:
            concentration = 2 + r.sum(axis=0) - member.sum(axis=0)
            log_r += digamma(concentration) - digamma(concentration.sum())
        r = np.concatenate([member, softmax(log_r, axis=1)[supports:]])
    return r[supports:]


@pytest.mark.parametrize(
    ("protocol", "way", "shot", "query"), [("balanced", 2, 1, 8), ("balanced", 10, 3, 4), ("dirichlet", 3, 7, 6)]
)
def test_it_follows_the_formulas_for_other_ways_and_shots(protocol, way, shot, query):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2, seed=1)
    support, queries = (novel().features[rows].astype("float64") for rows in (drawn.support, drawn.query))
    rows = zip(support, drawn.support_labels, queries, strict=True)
    expected = [plain(*one, way, *plain_precision(), balanced=protocol == "balanced") for one in rows]
    hyper = METHODS["bavardage"].imbalanced if protocol == "dirichlet" else {}
    for dtype, tolerance in [("float64", 1e-5), ("float32", 1e-4)]:
        task = Task(support.astype(dtype), drawn.support_labels, queries.astype(dtype), way, base())
        ours = METHODS["bavardage"](apply(task, "MbE"), **hyper).probabilities
        np.testing.assert_allclose(ours, expected, atol=tolerance)
