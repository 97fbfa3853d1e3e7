"""Image files whose class is a pattern; colours are random, so a network must learn the patterns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from image_files import write

RECIPE = """
extends = "modern"
network = "conv4"
options = { channels = 8 }
size = 16
stored = 20
ema = 0.9

[augment]
pad = 2

[stage.train]
epochs = 4
batch = 32
rate = 0.05

[validation]
every = 2
episodes = 50
methods = ["ncm"]
"""


def patterns(root: Path, classes: int, each: int, seed: int, size: int = 20) -> Path:
    """Make `root/<class>/<index>.png`: a class is a coarse mask, an image fills it with a bright and a dark colour."""
    rng = np.random.default_rng(seed)
    for number in range(classes):
        coarse = rng.random((4, 4)) < 0.5
        mask = np.kron(coarse, np.ones((size // 4, size // 4)))[:, :, None]
        for index in range(each):
            one, other = rng.integers(120, 256, 3), rng.integers(0, 120, 3)
            noise = rng.normal(0, 20, (size, size, 3))
            image = np.clip(mask * one + (1 - mask) * other + noise, 0, 255).astype(np.uint8)
            write(root / f"{root.name}{number:02d}" / f"{index:03d}.png", image)
    return root


def recipe_file(folder: Path, more: str = "") -> Path:
    """Write the toy recipe, or one that extends it."""
    base = folder / "toy.toml"
    base.write_text(RECIPE)
    if not more:
        return base
    other = folder / "other.toml"
    other.write_text(f'extends = "{base}"\n{more}')
    return other
