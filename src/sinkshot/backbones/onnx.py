"""Backbones from ONNX files. Needs the extra `sinkshot[onnx]`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sinkshot.backbones.backbone import IMAGENET, Backbone
from sinkshot.foreign.onnx_network import OnnxNetwork


def load(path: Path, name: str | None = None, size: int | None = None) -> Backbone:
    """Read a network as `OnnxNetwork` does. Images are normalised as ImageNet's unless the caller changes that."""
    network = OnnxNetwork(path, size)

    def features(images: Tensor) -> Tensor:
        return torch.from_numpy(network(images.cpu().numpy()))

    return Backbone(features, name or path.stem, network.width, network.side, *IMAGENET, network.sha256)
