"""A Python function as an encoder: `encode(batch) -> array`, for features beyond the registered encoders."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from sinkshot.encoders.images import ImageInput
from sinkshot.encoders.registry import Encoder, Modality
from sinkshot.errors import InputError

SIZE = 224


def from_function(
    function: Callable[[Any], Any], modality: Modality, *, size: int = SIZE, crop: float = 1.0, name: str = ""
) -> Encoder:
    """Return an encoder that calls a function.

    Parameters
    ----------
    function : callable
        Takes uint8 images [n, size, size, 3] or a list of texts, returns features [n, d].
    modality : {"image", "text"}
    size : int, default=224
        Side of the images in pixels.
    crop : float, default=1.0
        Fraction of the short side that is kept, around the centre.
    name : str, optional
        Its key in the cache; by default its source text. Change it when the function changes.
    """
    images = ImageInput(size, crop, (0.0, 0.0, 0.0), (1 / 255,) * 3) if modality == "image" else None
    trial: Any = np.zeros((1, size, size, 3), np.uint8) if images else ["a text"]
    shape = np.asarray(function(trial)).shape
    if len(shape) != 2 or shape[0] != 1:
        raise InputError(f"the function returned an array of shape {shape} for one item; features [n, d] are expected.")
    known = name or _source(function)
    digest = hashlib.sha256(f"{known} {images}".encode()).hexdigest()
    title = name or getattr(function, "__name__", "function")
    return Encoder(title, modality, shape[1], digest, lambda batch: np.asarray(function(batch), np.float32), images)


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        raise InputError(
            "the source of the function cannot be read; give it a name, under which its features are cached."
        ) from None
