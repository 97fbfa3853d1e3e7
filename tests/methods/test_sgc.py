"""SGC: parity with the public code from a start at zero and from the starts it drew; torch's own layer elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import KINDS, as_probabilities, episodes, golden
from test_contract import make_task

from sinkshot import METHODS, Task
from sinkshot.methods import sgc
from sinkshot.methods.algebra import one_hot


def with_intercept(rows):
    return np.concatenate([rows, np.ones_like(rows[..., :1])], axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_from_zero_it_is_the_published_code(kind):
    # Adam makes full steps of slopes that are mere rounding, so the public code's own float32 differs from float64
    file = golden("sgc", kind)
    task, labels = episodes(kind, slice(40), dtype="float32")
    p = METHODS["sgc"](task).probabilities
    accuracy = (p.argmax(axis=-1) == labels).mean(axis=1)
    assert np.isclose(accuracy, file["accuracy_zero_init"], atol=1e-4).mean() >= 0.98
    np.testing.assert_allclose(p[:16], as_probabilities(file["query_scores_zero_init"], logits=True), atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "count"), [("float32", 16), ("float64", 4)])
def test_from_the_stored_start_it_is_the_published_code(kind, dtype, count):
    file = golden("sgc", kind)
    task, labels = episodes(kind, slice(count), dtype=dtype)
    x = with_intercept(sgc.propagate(task, 10, 0.5, 3))
    start = np.concatenate([file["init_weight16"], file["init_bias16"][..., None]], axis=-1)[:count].astype(dtype)
    supports = x[:, : task.supports]
    layer = sgc.train(start, supports, one_hot(task.labels, 5, x), steps=1000, lr=1e-3, decay=5e-6)
    logits = x[:, task.supports :] @ layer.swapaxes(1, 2)
    np.testing.assert_allclose(logits, file["query_scores"][:count], atol=2e-4)
    np.testing.assert_allclose((logits.argmax(-1) == labels).mean(1), file["accuracy"][:count], atol=1e-4)


def published(torch, support, labels, query, k, steps, start=None):
    """One episode as the public code is described, by scikit-learn's cosines and torch's layer and optimiser."""
    from sklearn.metrics.pairwise import cosine_distances

    rows = np.concatenate([support, query])
    n, way = len(rows), labels.max() + 1
    similar = 1 - cosine_distances(rows) - np.eye(n)
    marked = np.zeros((n, n), dtype=bool)
    np.put_along_axis(marked, np.argsort(similar, axis=1)[:, -k:], True, axis=1)
    similar = np.where(marked | marked.T, similar, 0.0)
    root = np.diag(similar.sum(axis=0) ** -0.5)
    power = np.linalg.matrix_power(0.5 * np.eye(n) + root @ similar @ root, 3)
    centred = [part - part.mean(axis=0) for part in (support, query)]
    x = torch.asarray(power @ np.concatenate([c / np.linalg.norm(c, axis=1, keepdims=True) for c in centred]))
    layer = torch.nn.Linear(rows.shape[1], way, dtype=torch.float64)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-3, weight_decay=5e-6)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(x[: len(support)]), torch.asarray(labels).long()).backward()
        optimiser.step()
    return torch.softmax(layer(x[len(support) :]), dim=1).detach().numpy()


@pytest.mark.parametrize(
    "size", [{"way": 10, "shots": (3,) * 10, "queries": 40}, {"shots": (1, 5, 2, 3), "queries": 20}], ids=str
)
@pytest.mark.parametrize("k", [10, 3])
def test_it_is_torchs_layer_on_averaged_features_for_other_ways_and_shots(size, k):
    torch = pytest.importorskip("torch")
    task = make_task(episodes=2, **size)
    rows = zip(task.support, task.labels, task.query, strict=True)
    expected = [published(torch, s, labels, q, k, 100) for s, labels, q in rows]
    np.testing.assert_allclose(METHODS["sgc"](task, k=k, steps=100).probabilities, expected, atol=1e-6)


def test_an_edge_is_kept_where_either_end_chose_it():
    angles = np.radians([0.0, 10.0, 25.0, 80.0])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=-1)[None]
    edges = sgc.graph(rows, 1)[0]
    kept = [(i, j) for i in range(4) for j in range(4) if edges[i, j] != 0]
    assert kept == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    np.testing.assert_allclose(edges[2, 3], np.cos(np.radians(55.0)))


def test_a_seed_starts_at_random_and_is_the_same_for_every_episode():
    task = make_task(episodes=2)
    twice = Task(*(np.concatenate([a[:1], a[:1]]) for a in (task.support, task.labels, task.query)), task.way)
    drawn = METHODS["sgc"](twice, seed=3).probabilities
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert 1e-3 < np.abs(drawn - METHODS["sgc"](twice, seed=4).probabilities).max() < 0.5
    assert 1e-3 < np.abs(drawn - METHODS["sgc"](twice).probabilities).max() < 0.5


def test_rows_without_a_direction_are_left_alone():
    task = make_task()
    task.query[:, 3], task.support[:, 1] = 0.0, 0.0
    p = METHODS["sgc"](task).probabilities
    assert np.isfinite(p).all()
