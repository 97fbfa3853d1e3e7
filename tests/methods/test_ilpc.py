"""iLPC: the public code's labels."""

from __future__ import annotations

import numpy as np
import pytest
from peers import golden, probabilities


@pytest.mark.parametrize(("kind", "count"), [("5w1s15q", 24), ("5w5s15q", 60)])
def test_labels_are_those_of_the_public_code(kind, count):
    """But where two queries are as clean as each other to the digit: then one choice changes those after it."""
    found = golden("ilpc", kind)
    p, labels, _ = probabilities("ilpc", kind, count, dtype="float32")
    accuracy = (p.argmax(axis=-1) == labels).mean(axis=1)
    assert np.isclose(accuracy, found["accuracy"][:count], atol=1e-4).mean() >= 0.98
    assert (p[:16].argmax(axis=-1) == found["query_scores"].argmax(axis=-1)).mean() >= 0.995
