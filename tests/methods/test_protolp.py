"""protoLP: parity with the public code, and the algorithm at other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, check, novel

from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_accuracy_are_those_of_the_public_code_one_episode_at_a_time(kind):
    check("protolp", kind, tolerance=1e-6)


def test_single_precision_features_change_nothing_that_matters():
    check("protolp", "5w1s15q", tolerance=1e-4, dtype="float32", count=20)


@pytest.mark.parametrize(("protocol", "way", "shot", "query"), [("balanced", 10, 3, 10), ("dirichlet", 4, 2, 8)])
@pytest.mark.parametrize("prior", ["balanced", "uneven"])
def test_other_sizes_and_priors_follow_the_algorithm(protocol, way, shot, query, prior):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=2)
    features = novel().features.astype(np.float64)
    task = apply(Task(features[drawn.support], drawn.support_labels, features[drawn.query], way), "PE")
    shares = np.full(way, 1 / way) if prior == "balanced" else np.arange(1, way + 1) / np.arange(1, way + 1).sum()
    ours = METHODS["protolp"](task, prior=shares).probabilities
    for r in range(2):
        plan = book.protolp(task.support[r], task.labels[r], task.query[r], shares * task.queries)
        np.testing.assert_allclose(ours[r], plan / plan.sum(axis=1, keepdims=True), atol=1e-9)
