"""LaplacianShot and BD-CSPN: parity with the public code, and the algorithms at other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, base, check, novel

from sinkshot import METHODS, Recipe, Task, draw, evaluate
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.bd_cspn import rectified
from sinkshot.preprocess import apply

SIZES = [("balanced", 10, 3, 10), ("dirichlet", 5, 5, 15), ("balanced", 3, 2, 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "logits"), [("laplacianshot", False), ("bd-cspn", True)])
def test_scores_and_accuracy_are_those_of_the_public_code(name, logits, kind):
    check(name, kind, logits=logits, tolerance=1e-6)


@pytest.mark.parametrize(("name", "logits"), [("laplacianshot", False), ("bd-cspn", True)])
def test_single_precision_is_enough(name, logits):
    check(name, "dir1", logits=logits, tolerance=1e-4, dtype="float32")


def task_of(protocol, way, shot, query):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2)
    features = novel().features.astype(np.float64)
    return apply(Task(features[drawn.support], drawn.support_labels, features[drawn.query], way, base()), "MbE")


@pytest.mark.parametrize("size", SIZES)
def test_bd_cspn_follows_its_algorithm_at_other_sizes(size):
    task = task_of(*size)
    ours = METHODS["bd-cspn"](task).probabilities
    for r in range(2):
        np.testing.assert_allclose(ours[r], book.bd_cspn(task.support[r], task.labels[r], task.query[r]), atol=1e-9)


@pytest.mark.parametrize("rectify", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_laplacianshot_follows_its_algorithm_at_other_sizes(size, rectify):
    task, few = task_of(*size), size[2] < 5
    lam = (0.7 if few else 0.3) if rectify else (1.0 if few else 0.7)
    ours = METHODS["laplacianshot"](task, rectify=rectify).probabilities
    for r in range(2):
        expected = book.laplacianshot(task.support[r], task.labels[r], task.query[r], lam, rectify)
        np.testing.assert_allclose(ours[r], expected, atol=1e-9)


def test_a_class_that_nothing_chooses_keeps_its_mean():
    support = np.array([[1, 0], [1, 0.05], [0, 1], [0.05, 1], [1, 0.1], [0.1, 1]])
    labels = np.array([0, 0, 1, 1, 2, 2])  # the supports of class 2 choose the others; its mean lies between
    query = np.array([[1, 0.02], [0.02, 1]])
    prototypes, _ = rectified(rows_of(Task(support[None], labels[None], query[None], 3)), 10.0)
    points = prototypes[0] @ np.vstack([support, query])
    np.testing.assert_allclose(points[2], [0.55, 0.55])
    assert points[0] @ [1, 0] > 0.9 > points[0] @ [0, 1] + 0.5
    p = METHODS["laplacianshot"](Task(support[None], labels[None], query[None], 3)).probabilities
    assert p[0].argmax(axis=-1).tolist() == [0, 1]


def test_under_dirichlet_prototypes_are_not_rectified_unless_asked_for(bundled):
    recipe = Recipe("dirichlet", episodes=40)
    own, plain, asked = (
        evaluate(bundled, recipe, method="laplacianshot", **given)
        for given in ({}, {"rectify": False}, {"rectify": True})
    )
    assert own.hyper["rectify"] is False
    np.testing.assert_array_equal(own.per_episode, plain.per_episode)
    assert (own.per_episode != asked.per_episode).any()
    assert evaluate(bundled, Recipe(episodes=40), method="laplacianshot").hyper["rectify"] is True
