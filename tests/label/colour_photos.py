"""Images of plain colours with noise, and an encoder for them without a network."""

from __future__ import annotations

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200)}


def mean_colours(images):
    """Features of images: their colour in each quarter."""
    halves = [part for half in np.array_split(images, 2, axis=1) for part in np.array_split(half, 2, axis=2)]
    return np.concatenate([part.mean(axis=(1, 2)) for part in halves], axis=1)


def paint(path, colour, rng):
    """Write a small noisy image of a colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.clip(np.array(colour) + rng.normal(0, 25, (12, 12, 3)), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)
