"""A backbone: a trained network with the size and normalisation of its images. Torch is imported only where used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Triple = tuple[float, float, float]

IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels, from 0 to 1, that published few-shot networks were trained with."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that gives features [n, width], and the size and scale of the images that it was trained on."""

    network: Callable[[Tensor], Tensor] | None  # normalised [n, 3, h, w] -> [n, width]
    name: str
    width: int
    size: int | None  # side of the images in pixels; None: any
    mean: Triple
    std: Triple
    sha256: str  # of the weights
    meta: Mapping[str, str] = field(default_factory=dict)  # recipe, data set, ... where the weights tell
    guessed: bool = False  # mean and std are a guess, since the weights do not tell
    encode: Callable[[NDArray[np.uint8]], NDArray[np.float32]] | None = None  # instead of `network`: pixels to features


def normalised(pixels: Tensor, mean: Triple, std: Triple) -> Tensor:
    """Turn pixels [n, h, w, 3], 0 to 255, into what networks take: float32 [n, 3, h, w], channels last in memory."""
    import torch

    shift = torch.tensor(mean, device=pixels.device) * 255
    scale = 1 / (torch.tensor(std, device=pixels.device) * 255)
    return ((pixels.float() - shift) * scale).permute(0, 3, 1, 2)


def triple(values: Any) -> Triple:
    """Return three numbers, one for each channel."""
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def weights_hash(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a network's parameters and buffers, the same from whatever file they came."""
    import torch

    digest = hashlib.sha256()
    for key in sorted(state):
        value = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
