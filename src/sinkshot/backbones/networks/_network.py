"""What all networks share: stages one after another, a pooled end, and places where activations can be mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

SMALL = 36  # pixels: up to this side an image is too small to be halved by the stem

Mix = tuple[int, Tensor, Tensor | float]
"""Depth (0: the images, i: what block i gives), permutation [n], and lam, one number or [n]."""


class Network(nn.Module):
    """A stack of blocks from images to features.

    Attributes: `width` of the features, `blocks` (activations can be mixed at the depths 0 .. blocks), and the `name`
    and `options` with which `build` made it.
    """

    name: str
    options: dict[str, Any]

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = blocks

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return for each block the modules that it runs, in order; the stem belongs to the first."""
        raise NotImplementedError  # each network has its own

    def end(self, x: Tensor) -> Tensor:
        """Turn what the last block gives [n, c, h, w] into features [n, width], all >= 0."""
        return pooled(x)

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        """Return features [n, width] of normalised images [n, 3, h, w].

        With `mix`, activations at its depth are mixed as manifold mixup does (Verma et al. 2019): h becomes
        lam h + (1 - lam) h[permutation].
        """
        depth = -1 if mix is None else mix[0]
        x = images.contiguous(memory_format=torch.channels_last)
        if mix is not None and depth == 0:
            x = mixed(x, mix[1], mix[2])
        for place, modules in enumerate(self.stages(), start=1):
            for module in modules:
                x = module(x)
            if mix is not None and depth == place:
                x = mixed(x, mix[1], mix[2])
        return self.end(x)


def mixed(x: Tensor, permutation: Tensor, lam: Tensor | float) -> Tensor:
    """Return lam x + (1 - lam) x[permutation] in x's own precision; lam is one number, or one for each row."""
    if isinstance(lam, Tensor):
        lam = lam.reshape(-1, *[1] * (x.ndim - 1))
    both: Tensor = lam * x + (1 - lam) * x[permutation]
    return both.to(x.dtype)


def pooled(x: Tensor) -> Tensor:
    """Average over the places of an image: [n, c, h, w] -> [n, c]."""
    return x.mean(dim=(2, 3))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the size, up to its stride."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
