"""Torch networks as encoders: weights of `sinkshot train` and published checkpoints.

They need torch. Our own files say how images are prepared. For other files give `size`, `mean` and `std`; the default
is ImageNet's, and the encoder's note says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.backbone import Backbone, normalised
from sinkshot.encoders.images import GUESSED, ImageInput, Triple
from sinkshot.encoders.registry import Encoder, missing_package, register


@register(".safetensors", modality="image", summary="weights that `sinkshot train` made", extra="torch")
@register(".pt", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
@register(".pth", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
@register(".tar", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
def load(
    path: Path,
    *,
    backbone: str | None = None,
    size: int | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
    **options: Any,
) -> Encoder:
    """Return the network of a file; `backbone` names it and `options` are the network's, if the file does not tell."""
    if backbone is not None and backbone.startswith("timm:"):
        from sinkshot.encoders import timm

        return timm.load(backbone.removeprefix("timm:"), weights=path, size=size, mean=mean, std=std)
    try:
        from sinkshot.backbones import checkpoints
    except ImportError:
        raise missing_package(str(path), "torch", "torch") from None
    return from_backbone(checkpoints.load(path, backbone, size, **options), size, mean, std)


def from_backbone(found: Backbone, size: int | None, mean: Triple | None, std: Triple | None) -> Encoder:
    """Return a torch network as an encoder; `size`, `mean` and `std` replace its own."""
    told = replace(found, mean=mean or found.mean, std=std or found.std, size=size or found.size)
    images = ImageInput.of_network(told.size or 224, told.mean, told.std)

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        import torch

        assert told.network is not None
        with torch.inference_mode():
            rows = normalised(torch.from_numpy(pixels), told.mean, told.std)
            return np.asarray(told.network(rows).float().cpu().numpy())

    guessed = found.guessed and (mean is None or std is None)
    digest = hashlib.sha256(f"{found.sha256} {images}".encode()).hexdigest()
    return Encoder(found.name, "image", found.width, digest, encode, images, GUESSED if guessed else "", told)


def as_backbone(encoder: Encoder) -> Backbone:
    """Return an encoder of images as `extract` takes it, which runs torch networks on any device."""
    if encoder.backbone is not None:
        return encoder.backbone
    assert encoder.images is not None
    shown = encoder.images
    return Backbone(
        None,
        encoder.name,
        encoder.width,
        shown.size,
        shown.mean,
        shown.std,
        encoder.weights_sha256 or encoder.digest,
        encode=encoder.encode,
    )
