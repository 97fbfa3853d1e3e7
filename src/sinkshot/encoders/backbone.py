"""Torch networks as encoders: weights of `sinkshot train`, published checkpoints, timm's models.

They need torch. Our own files say how images are prepared. For other files give `size`, `mean` and `std`; the default
is ImageNet's, and the encoder's note says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders.images import ImageInput, Triple
from sinkshot.encoders.registry import Encoder, missing_package, register

_CROP = 1 / 1.15  # as `extract` crops


@register("timm:", modality="image", summary="a model of timm, with its weights on this machine", extra="timm")
def _timm(name: str, **options: Any) -> Encoder:
    return _load(None, backbone=f"timm:{name}", told=True, **options)


@register(".safetensors", modality="image", summary="weights that `sinkshot train` made", extra="torch")
@register(".pt", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
@register(".pth", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
@register(".tar", modality="image", summary="a published checkpoint, with --backbone", extra="torch")
def _file(path: Path, **options: Any) -> Encoder:
    return _load(path, told=path.suffix.lower() == ".safetensors", **options)


def _load(
    path: Path | None,
    *,
    told: bool,
    backbone: str | None = None,
    size: int | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
) -> Encoder:
    try:
        import torch

        from sinkshot.backbones import checkpoints
        from sinkshot.backbones.backbone import normalised
    except ImportError:
        raise missing_package(str(path or backbone), "torch", "torch") from None
    found = checkpoints.load(path, backbone, size)
    images = ImageInput(found.size or size or 224, _CROP, mean or found.mean, std or found.std)

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            rows = normalised(torch.from_numpy(pixels), images.mean, images.std)
            return np.asarray(found.network(rows).float().cpu().numpy())

    guessed = not told and mean is None
    note = "assuming ImageNet's mean and std for its images; --mean and --std set others" if guessed else ""
    digest = hashlib.sha256(f"{found.sha256} {images}".encode()).hexdigest()
    return Encoder(found.name, "image", found.width, digest, encode, images, note)
