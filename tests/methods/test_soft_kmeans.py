"""Soft k-means: parity with the published code, balanced and Dirichlet."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GOLDEN

from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply


def tasks(bank, name):
    """The 200 episodes of a golden file as a task, and the labels of its queries."""
    if name.endswith("dir1"):
        drawn = np.load(GOLDEN / "dirichlet_episodes.npz")
        support, query, labels = drawn["support"][:, :, 0], drawn["query"], drawn["labels"]
        support_labels = np.tile(np.arange(5), (200, 1))
    else:
        drawn = draw(bank.labels, protocol="official", shot=int(name[-5]), episodes=200)
        support, query, labels = drawn.support, drawn.query, drawn.query_labels
        support_labels = drawn.support_labels
    return Task(bank.features[support], support_labels, bank.features[query], 5), labels


@pytest.mark.parametrize("kind", ["5w1s15q", "5w5s15q", "dir1"])
@pytest.mark.parametrize(("name", "chain"), [("soft-kmeans", "MnE"), ("soft-kmeans-peme", "PsEMnE")])
def test_scores_and_accuracy_are_those_of_the_published_code(exact, name, chain, kind):
    # the published square root has no epsilon: it is our signed power
    golden = np.load(GOLDEN / f"{name}_{kind}.npz")
    task, labels = tasks(exact, f"{name}_{kind}")
    p = METHODS["soft-kmeans"](apply(task, chain)).probabilities
    np.testing.assert_allclose(p[:16], golden["query_scores"], atol=1e-3)
    accuracy = (p.argmax(axis=-1) == labels).mean(axis=1)
    assert np.isclose(accuracy, golden["accuracy"], atol=1e-4).mean() >= 0.98
    assert METHODS["soft-kmeans"].preprocess == "MnE"
