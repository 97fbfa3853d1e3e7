"""Image networks in ONNX files. They need onnxruntime, but not torch.

An untrusted file runs in a separate process with bounded time and memory. Files do not say how images are normalised:
give `mean` and `std`; the default is ImageNet's, and the encoder's note says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sinkshot.encoders.images import ImageInput, Triple
from sinkshot.encoders.registry import Encoder, register
from sinkshot.foreign.onnx_network import OnnxNetwork

_GUESSED = "assuming ImageNet's mean and std for its images; --mean and --std set others"


@register(".onnx", modality="image", summary="a network in an ONNX file", extra="onnx")
def load(path: Path, *, size: int | None = None, mean: Triple | None = None, std: Triple | None = None) -> Encoder:
    """Return the network of a file as an encoder."""
    network = OnnxNetwork(path, size)
    shown = ImageInput(network.side)
    images = ImageInput(network.side, mean=mean or shown.mean, std=std or shown.std)
    digest = hashlib.sha256(f"{network.sha256} {images}".encode()).hexdigest()
    note = "" if mean is not None and std is not None else _GUESSED
    return Encoder(path.stem, "image", network.width, digest, lambda x: network(images.normalised(x)), images, note)
