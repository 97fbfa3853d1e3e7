"""ResNet18: He et al., "Deep residual learning for image recognition", CVPR 2016, with a stem for small images.

A 3x3 stem and no max-pooling: it keeps the resolution up to 36 pixels and halves it above. ResNet10, which Chen et al.,
"A closer look at few-shot classification", ICLR 2019, introduced, has one block where ResNet18 has two.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks._network import SMALL, Network, convolution
from sinkshot.backbones.networks._registry import register

_OTHER_NAMES = ((r"^conv1\.", "stem.0."), (r"^bn1\.", "stem.1."), (r"\.downsample\.", ".shortcut."))


@register("resnet18", *_OTHER_NAMES)
def resnet18(*, first: int = 64, stem_stride: int | None = None, size: int = 32) -> Network:
    """Make a ResNet18 with groups of `first`, 2, 4 and 8 times `first` channels."""
    return BasicResNet(first, stem_stride, size, each=2)


@register("resnet10", *_OTHER_NAMES)
def resnet10(*, first: int = 64, stem_stride: int | None = None, size: int = 32) -> Network:
    """Make a ResNet10 with groups of `first`, 2, 4 and 8 times `first` channels."""
    return BasicResNet(first, stem_stride, size, each=1)


class BasicResNet(Network):
    """Stem, and four groups of `each` residual blocks of two convolutions."""

    def __init__(self, first: int, stem_stride: int | None, size: int, each: int) -> None:
        super().__init__(width=8 * first, blocks=4)
        stride = (1 if size <= SMALL else 2) if stem_stride is None else stem_stride
        self.stem = nn.Sequential(convolution(3, first, 3, stride), nn.BatchNorm2d(first), nn.ReLU())
        self.layer1 = _group(each, first, first, 1)
        self.layer2 = _group(each, first, 2 * first, 2)
        self.layer3 = _group(each, 2 * first, 4 * first, 2)
        self.layer4 = _group(each, 4 * first, 8 * first, 2)

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the four groups."""
        return (self.stem, self.layer1), (self.layer2,), (self.layer3,), (self.layer4,)


def _group(count: int, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    later = [_Block(outputs, outputs, 1) for _ in range(count - 1)]
    return nn.Sequential(_Block(inputs, outputs, stride), *later)


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
