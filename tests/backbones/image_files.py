"""Small real image files for tests: flat colours with a little noise, so that colour tells the class."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image


def colour(number):
    """One colour per class, dark enough to leave room for noise."""
    return np.array([20 + 53 * number % 200, 20 + 97 * number % 200, 20 + 151 * number % 200], np.uint8)


def picture(number, index=0, size=32):
    """An image [size, size, 3] of class `number`; two of them differ by their noise."""
    noise = np.random.default_rng([number, index]).integers(0, 20, (size, size, 3))
    return (colour(number) + noise).astype(np.uint8)


def png(pixels):
    Image.fromarray(pixels).save(buffer := BytesIO(), "PNG")
    return buffer.getvalue()


def write(path: Path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folder(root: Path, names, each=3, size=32, suffix="png"):
    """Make `root/<class>/<index>.<suffix>` and return the root."""
    for number, name in enumerate(names):
        for index in range(each):
            write(root / name / f"{index:03d}.{suffix}", picture(number, index, size))
    return root


def pack(path: Path, names, each=3, size=32):
    """Make a pack of the same images."""
    contents = [png(picture(number, index, size)) for number in range(len(names)) for index in range(each)]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        blob=np.frombuffer(b"".join(contents), np.uint8),
        offsets=np.cumsum([0, *map(len, contents)]),
        label=np.repeat(np.arange(len(names)), each).astype(np.int16),
        class_names=np.array(names),
    )
    return path
