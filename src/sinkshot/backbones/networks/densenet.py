"""DenseNet121: Huang et al., "Densely connected convolutional networks", CVPR 2017.

Four dense blocks of 6, 12, 24 and 16 layers that each add `growth` channels, halved in between. Up to 36 pixels the
stem keeps the resolution; above, it is the 7x7 convolution of stride 2 with max-pooling of the original. Parameters
have the names of torchvision's, which the few-shot checkpoints share.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks._network import SMALL, Network, convolution, pooled
from sinkshot.backbones.networks._registry import register


@register("densenet121", (r"\.(norm|conv)\.([12])\.", r".\1\2."))
def densenet121(*, growth: int = 32, layers: tuple[int, ...] = (6, 12, 24, 16), size: int = 32) -> Network:
    """Make a DenseNet whose dense blocks have these numbers of layers."""
    return DenseNet(growth, tuple(layers), small=size <= SMALL)


class DenseNet(Network):
    """Stem, dense blocks with transitions between them, batch norm, ReLU."""

    def __init__(self, growth: int, layers: Sequence[int], *, small: bool) -> None:
        channels = 2 * growth
        modules: dict[str, nn.Module] = {
            "conv0": convolution(3, channels, 3) if small else convolution(3, channels, 7, 2),
            "norm0": nn.BatchNorm2d(channels),
            "relu0": nn.ReLU(),
            "pool0": nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1),
        }
        for place, count in enumerate(layers, start=1):
            modules[f"denseblock{place}"] = dense = nn.Sequential()
            for k in range(count):
                dense.add_module(f"denselayer{k + 1}", _Layer(channels + k * growth, growth))
            channels += count * growth
            if place < len(layers):
                modules[f"transition{place}"] = _Transition(channels)
                channels //= 2
        super().__init__(width=channels, blocks=len(layers))
        self.features = nn.ModuleDict({**modules, "norm5": nn.BatchNorm2d(channels)})

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the dense blocks, the first with the stem and each later one with the transition before it."""
        part = self.features
        stem = (part["conv0"], part["norm0"], part["relu0"], part["pool0"], part["denseblock1"])
        return stem, *((part[f"transition{i}"], part[f"denseblock{i + 1}"]) for i in range(1, self.blocks))

    def end(self, x: Tensor) -> Tensor:
        """Normalise, rectify, pool."""
        return pooled(F.relu(self.features["norm5"](x)))


class _Layer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, 4 * growth, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), convolution(4 * growth, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(new)))], dim=1)


class _Transition(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), convolution(inputs, inputs // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)
