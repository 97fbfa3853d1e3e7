"""TAFSSL: parity with the public code, by mean-shift propagation and, given its clusters, by Bayesian k-means."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, check, episodes, golden, novel

from sinkshot import METHODS, Task, draw
from sinkshot.methods.tafssl_bkm import bayesian, kmeans_labels
from sinkshot.methods.tafssl_msp import project
from sinkshot.preprocess import apply


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tafssl-pca-msp", "tafssl-ica-msp"])
def test_mean_shift_propagation_is_that_of_the_public_code(name, kind):
    check(name, kind, tolerance=1e-4)


def task_of(protocol, way, shot, query):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2)
    features = novel().features.astype(np.float64)
    return Task(features[drawn.support], drawn.support_labels, features[drawn.query], way)


SIZES = [("balanced", 2, 1, 15), ("dirichlet", 3, 7, 10), ("balanced", 10, 3, 10), ("dirichlet", 10, 2, 5)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("basis", ["pca", "ica"])
def test_mean_shift_propagation_follows_its_algorithm_at_other_sizes(basis, size):
    task = task_of(*size)
    ours = METHODS[f"tafssl-{basis}-msp"](task).probabilities
    for r in range(2):
        support, query = book.tafssl_project(task.support[r], task.labels[r], task.query[r], ica=basis == "ica")
        np.testing.assert_allclose(ours[r], book.mean_shift(support, task.labels[r], query), atol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_bayesian_k_means_follows_its_algorithm_at_other_sizes(size):
    task = task_of(*size)
    support, query = project(task, "pca", 10)
    clusters = kmeans_labels(np.concatenate([support, query], axis=1), 5, 10, 300, 0)
    ours = METHODS["tafssl-pca-bkm"](task).probabilities
    for r in range(2):
        rows = book.tafssl_project(task.support[r], task.labels[r], task.query[r])
        expected = book.bayesian_k_means(rows[0], task.labels[r], rows[1], clusters[r])
        np.testing.assert_allclose(ours[r], expected, atol=1e-9)


def clusters_of(file, kind, way=5):
    """The public k-means labels of an episode's rows, supports brought from class-major to our order."""
    labels = golden(file, kind)["kmeans_labels"]
    supports = labels.shape[1] - 75
    ours = np.arange(supports).reshape(way, -1).T.reshape(-1)
    return np.hstack([labels[:, :supports][:, ours], labels[:, supports:]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "kind", "chain"),
    [*[("tafssl-pca-bkm", kind, "") for kind in KINDS]]
    + [("tafssl-pca-bkm-sqrt", kind, "Ps") for kind in KINDS if kind != "dir1"],
)
def test_bayesian_k_means_is_that_of_the_public_code_given_its_clusters(file, kind, chain):
    task, labels = episodes(kind)
    task = apply(task, chain)
    support, query = project(task, "pca", 10)
    p = bayesian(task, support, query, clusters_of(file, kind), 5).probabilities
    np.testing.assert_allclose(p[:16], golden(file, kind)["query_scores"], atol=1e-4)
    accuracy = (p.argmax(axis=-1) == labels).mean(axis=1)
    assert np.isclose(accuracy, golden(file, kind)["accuracy"], atol=1e-4).mean() >= 0.98


def test_our_own_clusters_give_the_public_accuracy_on_average():
    task, labels = episodes("5w5s15q", dtype="float32")
    p = METHODS["tafssl-pca-bkm"](task).probabilities
    accuracy = (p.argmax(axis=-1) == labels).mean()
    assert accuracy == pytest.approx(golden("tafssl-pca-bkm", "5w5s15q")["accuracy"].mean(), abs=0.01)


def test_k_means_finds_clusters_that_lie_apart():
    random = np.random.default_rng(0)
    truth = np.tile(np.arange(4), (3, 15))
    x = 10 * np.eye(4)[truth] + random.normal(size=(3, 60, 4))
    labels = kmeans_labels(x, 4, 10, 100, 0)
    for r in range(3):
        assert len(set(zip(labels[r].tolist(), truth[r].tolist(), strict=True))) == 4
