"""iLPC: the public code's labels, and the algorithm at other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import golden, novel, probabilities

from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("5w1s15q", 16), ("5w5s15q", 60)])
def test_labels_are_those_of_the_public_code(kind, count):
    """Except where two queries are equally clean to the last digit: one choice then changes the later ones."""
    found = golden("ilpc", kind)
    p, labels, _ = probabilities("ilpc", kind, count, dtype="float32")
    accuracy = (p.argmax(axis=-1) == labels).mean(axis=1)
    assert np.isclose(accuracy, found["accuracy"][:count], atol=1e-4).mean() >= 0.98
    assert (p[:16].argmax(axis=-1) == found["query_scores"].argmax(axis=-1)).mean() >= 0.995


@pytest.mark.parametrize(
    ("protocol", "way", "shot", "query", "episode"),
    [("balanced", 10, 1, 15, 5), ("dirichlet", 10, 3, 12, 3), ("dirichlet", 10, 3, 12, 11), ("balanced", 3, 2, 9, 0)],
)
def test_other_sizes_follow_the_algorithm(protocol, way, shot, query, episode):
    """Ten classes do not fill at the same time: the rest is shared among the classes that still have room."""
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=1, first=episode)
    features = novel().features.astype(np.float64)
    task = apply(Task(features[drawn.support], drawn.support_labels, features[drawn.query], way), "PsEMnE")
    ours = METHODS["ilpc"](task, epochs=60).probabilities.argmax(axis=-1)
    np.testing.assert_array_equal(ours[0], book.ilpc(task.support[0], task.labels[0], task.query[0], epochs=60))
