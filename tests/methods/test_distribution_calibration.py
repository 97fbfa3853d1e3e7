"""Distribution calibration draws at random: its mean accuracy is that of the public code."""

from __future__ import annotations

import pytest
from published_code import golden, probabilities


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("5w1s15q", 12), ("5w5s15q", 8)])
def test_mean_accuracy_is_that_of_the_public_code(kind, count):
    p, labels, _ = probabilities("distribution-calibration", kind, count)
    ours = (p.argmax(axis=-1) == labels).mean()
    assert ours == pytest.approx(golden("distribution-calibration", kind)["accuracy"][:count].mean(), abs=0.015)
