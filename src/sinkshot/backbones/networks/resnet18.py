"""ResNet18: He et al., "Deep residual learning for image recognition", CVPR 2016, with a stem for small images.

A 3x3 stem and no max-pooling: it keeps the resolution up to 36 pixels and halves it above.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks._network import SMALL, Network, convolution
from sinkshot.backbones.networks._registry import register


@register("resnet18", (r"^conv1\.", "stem.0."), (r"^bn1\.", "stem.1."), (r"\.downsample\.", ".shortcut."))
def resnet18(*, first: int = 64, stem_stride: int | None = None, size: int = 32) -> Network:
    """Make a ResNet18 with groups of `first`, 2, 4 and 8 times `first` channels."""
    stride = (1 if size <= SMALL else 2) if stem_stride is None else stem_stride
    return ResNet18(first, stride)


class ResNet18(Network):
    """Stem, and four groups of two residual blocks."""

    def __init__(self, first: int, stem_stride: int) -> None:
        super().__init__(width=8 * first, blocks=4)
        self.stem = nn.Sequential(convolution(3, first, 3, stem_stride), nn.BatchNorm2d(first), nn.ReLU())
        self.layer1 = nn.Sequential(_Block(first, first, 1), _Block(first, first, 1))
        self.layer2 = nn.Sequential(_Block(first, 2 * first, 2), _Block(2 * first, 2 * first, 1))
        self.layer3 = nn.Sequential(_Block(2 * first, 4 * first, 2), _Block(4 * first, 4 * first, 1))
        self.layer4 = nn.Sequential(_Block(4 * first, 8 * first, 2), _Block(8 * first, 8 * first, 1))

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the four groups."""
        return (self.stem, self.layer1), (self.layer2,), (self.layer3,), (self.layer4,)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))
