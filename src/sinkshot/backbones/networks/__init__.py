"""Networks that turn images into features: one file for each family, found by name.

    network = build("wrn-28-10", size=32)
    features = network(images)  # [n, 3, h, w] normalised -> [n, network.width], all >= 0

Adding a network is one new file with a `@register`ed function, and its name in the line below.
"""

from __future__ import annotations

from sinkshot.backbones.networks import conv4, densenet, resnet12, resnet18, wrn
from sinkshot.backbones.networks._network import Mix, Network, mixed
from sinkshot.backbones.networks._registry import SMALLEST, build, names, our_name, register, sketch

__all__ = [
    "SMALLEST",
    "Mix",
    "Network",
    "build",
    "conv4",
    "densenet",
    "mixed",
    "names",
    "our_name",
    "register",
    "resnet12",
    "resnet18",
    "sketch",
    "wrn",
]
