"""A folder of synthetic images."""

from __future__ import annotations

import numpy as np
import pytest
from colour_photos import COLOURS, paint


@pytest.fixture
def photos(tmp_path):
    """Three classes with three labelled images each, and twenty images of each without a label."""
    rng = np.random.default_rng(0)
    root = tmp_path / "photos"
    for name, colour in COLOURS.items():
        for i in range(3):
            paint(root / name / f"{i}.png", colour, rng)
        for i in range(20):
            paint(root / "_unlabeled" / f"{name}-{i}.png", colour, rng)
    return root
