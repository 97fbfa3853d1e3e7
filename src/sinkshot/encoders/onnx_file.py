"""Image networks in ONNX files. They need onnxruntime, but not torch.

An untrusted file runs in a separate process with bounded time and memory. Files do not say how images are normalised:
give `mean` and `std`; the default is ImageNet's, and the encoder's note says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sinkshot.encoders.images import GUESSED, ImageInput, Triple
from sinkshot.encoders.registry import Encoder, register
from sinkshot.foreign.onnx_network import OnnxNetwork


@register(".onnx", modality="image", summary="a network in an ONNX file", extra="onnx")
def load(
    path: Path,
    *,
    backbone: str | None = None,
    size: int | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
) -> Encoder:
    """Return the network of a file as an encoder; `backbone` is a name for it."""
    network = OnnxNetwork(path, size)
    images = ImageInput.of_network(network.side, mean, std)
    return Encoder(
        name=backbone or path.stem,
        modality="image",
        width=network.width,
        digest=hashlib.sha256(f"{network.sha256} {images}".encode()).hexdigest(),
        encode=lambda pixels: network(images.normalised(pixels)),
        images=images,
        note="" if mean is not None and std is not None else GUESSED,
        weights_sha256=network.sha256,
    )
