"""Toy backbones and images for tests of extraction."""

from __future__ import annotations

import numpy as np
import torch

from sinkshot.backbones import checkpoints
from sinkshot.backbones.backbone import Backbone
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.datasets.sources import Pixels
from sinkshot.backbones.networks import build

GREY = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
NAMES = ("ant", "bee", "cat")


def small_network(path):
    """Write the weights of a small network with non-trivial batch norm statistics, and return the path."""
    torch.manual_seed(0)
    network = build("conv4", channels=6)
    with torch.no_grad():
        network(torch.randn(16, 3, 32, 32))
    checkpoints.save(network, path, *GREY, {"recipe": "toy", "data_set": "Zoo"})
    return path


def linear(width, seed=0, shift=0.0):
    """A backbone whose features are a few linear maps of the mean colour, rectified unless shifted."""
    matrix = torch.rand(3, width, generator=torch.Generator().manual_seed(seed))
    return Backbone(lambda x: (x.mean((2, 3)) @ matrix).relu() - shift, "linear", width, None, *GREY, f"{seed}")


def plain(count, size=4, split="all"):
    """Images that are plain pixels, two classes in turn."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    return Images(Pixels(pixels, "noise"), np.arange(count) % 2, ("a", "b"), meta={"split": split})
