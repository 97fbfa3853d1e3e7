"""SimpleShot and PT+NCM: parity with the public code, and the steps they consist of."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, base, check, episodes, novel, probabilities

from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["simpleshot-un", "simpleshot-l2n", "simpleshot-cl2n"])
def test_scores_and_accuracy_are_those_of_the_public_code(name, kind):
    check(name, kind, logits=True, tolerance=1e-6)


def test_single_precision_is_enough():
    check("simpleshot-un", "5w5s15q", logits=True, tolerance=1e-5, dtype="float32")


@pytest.mark.parametrize("size", [("balanced", 2, 1, 15), ("dirichlet", 3, 7, 10), ("balanced", 10, 2, 4)])
@pytest.mark.parametrize("name", ["simpleshot-un", "simpleshot-l2n", "simpleshot-cl2n", "pt-ncm"])
def test_other_sizes_follow_the_description(name, size):
    protocol, way, shot, query = size
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2)
    features, mean = novel().features.astype(np.float64), base().features.astype(np.float64).mean(axis=0)
    task = Task(features[drawn.support], drawn.support_labels, features[drawn.query], way, base())
    ours = METHODS[name](apply(task, METHODS[name].preprocess)).probabilities
    prepared = {
        "simpleshot-un": lambda x: x,
        "simpleshot-l2n": book.unit,
        "simpleshot-cl2n": lambda x: book.unit(x - mean),
        "pt-ncm": lambda x: book.unit((x + 1e-6) ** 0.5),
    }[name]
    for r in range(2):
        means = book.class_means(prepared(task.support[r]), task.labels[r])
        squares = book.square_distances(prepared(task.query[r]), means)
        expected = book.softmax(-squares if name == "pt-ncm" else -np.sqrt(squares))
        np.testing.assert_allclose(ours[r], expected, atol=1e-7)


def test_unknown_is_the_distance_to_the_nearest_mean():
    task, _ = episodes("5w5s15q", slice(0, 2))
    scores = METHODS["simpleshot-l2n"](apply(task, "E"))
    x = task.query / np.linalg.norm(task.query, axis=-1, keepdims=True)
    support = task.support / np.linalg.norm(task.support, axis=-1, keepdims=True)
    means = support.reshape(2, 5, 5, -1).mean(axis=1)  # sample-major: [R, shot, way, d]
    distances = np.linalg.norm(x[:, :, None] - means[:, None], axis=-1)
    np.testing.assert_allclose(scores.unknown, distances.min(axis=-1), atol=1e-6)


@pytest.mark.parametrize(("kind", "percent"), [("5w1s15q", 74.17), ("5w5s15q", 87.67), ("dir1", 74.64)])
def test_pt_ncm_has_the_measured_accuracy_of_square_root_and_unit_length(kind, percent):
    p, labels, _ = probabilities("pt-ncm", kind, 200)
    assert 100 * (p.argmax(axis=-1) == labels).mean() == pytest.approx(percent, abs=0.02)
