"""EASE and EASE+SIAMESE: parity with the public code, and the algorithm at other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, check, episodes, golden, novel

from sinkshot import METHODS, Task, draw
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.ease import ease
from sinkshot.preprocess import apply


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_accuracy_are_those_of_the_public_code_one_episode_at_a_time(kind):
    check("ease-siamese", kind, tolerance=1e-6, count=60)


def test_single_precision_features_change_nothing_that_matters():
    check("ease-siamese", "5w5s15q", tolerance=1e-4, dtype="float32", count=40)


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_alone_gives_the_nearest_prototypes_of_the_public_code(kind):
    found = golden("ease", kind)
    task, labels = episodes(kind, slice(0, 60))
    rows = rows_of(ease(apply(task, "PE")))
    nearest = rows.distances(rows.means()).argmin(axis=-2)
    np.testing.assert_array_equal(np.eye(5)[nearest[:16]], found["query_scores64"])
    assert np.isclose((nearest == labels).mean(axis=1), found["accuracy64"][:60], atol=1e-4).mean() >= 0.98


@pytest.mark.parametrize(("protocol", "way", "shot", "query"), [("balanced", 10, 3, 10), ("dirichlet", 4, 2, 8)])
def test_other_sizes_follow_the_algorithm(protocol, way, shot, query):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2)
    features = novel().features.astype(np.float64)
    task = apply(Task(features[drawn.support], drawn.support_labels, features[drawn.query], way), "PE")
    mapped, ours = ease(task), METHODS["ease-siamese"](task).probabilities
    for r in range(2):
        x = book.ease(np.vstack([task.support[r], task.query[r]]))
        both = np.vstack([mapped.support[r], mapped.query[r]])
        np.testing.assert_allclose(both @ both.T, x @ x.T, atol=1e-9)
        plan = book.siamese(x[: way * shot], task.labels[r], x[way * shot :], np.full(way, float(query)))
        np.testing.assert_allclose(ours[r], plan / plan.sum(axis=1, keepdims=True), atol=1e-9)


def test_more_rows_than_features_stay_in_the_span_of_the_features():
    rng = np.random.default_rng(0)
    task = Task(rng.random((1, 6, 8)), np.arange(6)[None] % 3, rng.random((1, 30, 8)), 3)
    task = apply(task, "PE")
    x = book.ease(np.vstack([task.support[0], task.query[0]]), dimensions=6)
    mapped = ease(task, dimensions=6)
    both = np.vstack([mapped.support[0], mapped.query[0]])
    np.testing.assert_allclose(both @ both.T, x @ x.T, atol=1e-9)
