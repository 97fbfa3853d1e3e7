"""Networks of images in ONNX files. Needs onnxruntime, and no torch.

A file of a stranger runs in a process of its own, whose time and memory are bounded. Files do not say how their images
are normalised: `mean` and `std` may be given, else ImageNet's are guessed, and the encoder's note says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sinkshot.encoders.images import ImageInput, Triple
from sinkshot.encoders.registry import Encoder, register
from sinkshot.foreign.onnx_network import OnnxNetwork

_GUESSED = "mean and spread of its images are guessed as ImageNet's; --mean and --std set others"


@register(".onnx", modality="image", summary="a network in an ONNX file", extra="onnx")
def load(path: Path, *, size: int | None = None, mean: Triple | None = None, std: Triple | None = None) -> Encoder:
    """Return the network of a file as an encoder."""
    network = OnnxNetwork(path, size)
    shown = ImageInput(network.side)
    images = ImageInput(network.side, mean=mean or shown.mean, std=std or shown.std)
    digest = hashlib.sha256(f"{network.sha256} {images}".encode()).hexdigest()
    note = "" if mean is not None and std is not None else _GUESSED
    return Encoder(path.stem, "image", network.width, digest, lambda x: network(images.normalised(x)), images, note)
