"""The plain methods against straightforward references: NCM, k-means, logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from test_contract import make_task

from sinkshot import METHODS, InputError, Task
from sinkshot.methods.kmeans import kmeans
from sinkshot.methods.logreg import logreg
from sinkshot.methods.ncm import ncm
from sinkshot.preprocess import apply


def test_ncm_labels_as_scikit_learns_nearest_centroid():
    task = make_task(shots=(3, 1, 2, 4), queries=50)
    ours = ncm(task)
    for r in range(3):
        theirs = NearestCentroid().fit(task.support[r], task.labels[r])
        np.testing.assert_array_equal(ours.probabilities[r].argmax(-1), theirs.predict(task.query[r]))
        nearest = ((task.query[r][:, None] - theirs.centroids_) ** 2).sum(-1).min(-1)
        np.testing.assert_allclose(ours.unknown[r], nearest, rtol=1e-9)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("C", [0.3, 1.0, 5.0])
def test_logreg_gives_the_probabilities_of_scikit_learns(scale, C):
    task = make_task(shots=(3, 1, 2, 4), queries=30)
    task = Task(task.support * scale, task.labels, task.query * scale, task.way)
    ours = logreg(task, C=C).probabilities
    for r in range(3):
        theirs = LogisticRegression(C=C, tol=1e-10, max_iter=100_000).fit(task.support[r], task.labels[r])
        np.testing.assert_allclose(ours[r], theirs.predict_proba(task.query[r]), atol=2e-3)


def test_logreg_refuses_a_weight_of_zero():
    with pytest.raises(InputError, match="C must be a number above 0"):
        logreg(make_task(), C=0)


def test_logreg_bears_an_offset_in_float32():
    task = make_task(queries=40, dtype="float32")
    far = Task(task.support + 1000, task.labels, task.query + 1000, task.way)
    np.testing.assert_allclose(logreg(far).probabilities, logreg(task).probabilities, atol=2e-3)


def looped_kmeans(support, labels, query, way, share=None):
    """Hard k-means, one episode; with `share`, the queries of a class weigh as many as this together."""
    means = np.stack([support[labels == k].mean(axis=0) for k in range(way)])
    shots = np.bincount(labels, minlength=way)[:, None]
    centres = means
    for _ in range(500):
        nearest = ((query[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)
        centres = np.stack(
            [
                (shots[k] * means[k] + weight * query[nearest == k].mean(axis=0)) / (shots[k] + weight)
                if (nearest == k).any()
                else means[k]
                for k in range(way)
                for weight in [(nearest == k).sum() if share is None else share]
            ]
        )
    return ((query[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)


@pytest.mark.parametrize("shots", [(1, 1, 1, 1), (2, 5, 1, 3)])
@pytest.mark.parametrize(("name", "share"), [("kmeans", None), ("kmeans-balanced", 10)])
def test_kmeans_is_the_plain_loop(name, share, shots):
    task = apply(make_task(episodes=8, shots=shots, queries=40, spread=1.0), "PEMnE")
    ours = METHODS[name](task).probabilities.argmax(-1)
    for r in range(8):
        np.testing.assert_array_equal(ours[r], looped_kmeans(task.support[r], task.labels[r], task.query[r], 4, share))


def test_an_empty_cluster_keeps_the_mean_of_its_supports():
    task = make_task(queries=12)
    same = Task(task.support, task.labels, np.repeat(task.support[:, :1], 12, axis=1), task.way)
    p = kmeans(same).probabilities
    assert np.isfinite(p).all()
    assert (p.argmax(-1) == 0).all()
