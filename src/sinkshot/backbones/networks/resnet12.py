"""ResNet12 of the few-shot literature: Lee et al., "Meta-learning with differentiable convex optimization", CVPR 2019.

Four residual blocks of three 3x3 convolutions, widths 64, 160, 320, 640, leaky rectifiers of slope 0.1, each block
followed by max-pooling. The last block ends in a plain ReLU, so that features are >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks._network import Network, convolution
from sinkshot.backbones.networks._registry import register

WIDTHS = (1, 2.5, 5, 10)  # of the blocks, in units of the first
_GROUPS = tuple((rf"^layer{i + 1}\.0\.", f"layers.{i}.") for i in range(4))


@register("resnet12", *_GROUPS, (r"\.downsample\.", ".shortcut."))
def resnet12(*, first: int = 64, pools: int = 4, size: int = 32) -> Network:
    """Make a ResNet12 with blocks of `first`, 2.5, 5 and 10 times `first` channels; `pools` of them halve the size."""
    del size
    return ResNet12(tuple(int(first * factor) for factor in WIDTHS), pools)


class ResNet12(Network):
    """Four residual blocks; the first `pools` of them end in max-pooling."""

    def __init__(self, widths: Sequence[int], pools: int) -> None:
        super().__init__(width=widths[-1], blocks=len(widths))
        inputs = (3, *widths[:-1])
        last = len(widths) - 1
        self.layers = nn.ModuleList(
            _Block(inputs[i], widths[i], 0.1 if i < last else 0.0, pool=i < pools) for i in range(len(widths))
        )

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the four blocks."""
        return tuple((layer,) for layer in self.layers)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, slope: float, *, pool: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv3, self.bn3 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(convolution(inputs, outputs, 1), nn.BatchNorm2d(outputs))
        self.slope, self.pool = slope, pool  # slope of the last rectifier

    def forward(self, x: Tensor) -> Tensor:
        out = F.leaky_relu(self.bn1(self.conv1(x)), 0.1)
        out = F.leaky_relu(self.bn2(self.conv2(out)), 0.1)
        out = F.leaky_relu(self.bn3(self.conv3(out)) + self.shortcut(x), self.slope)
        return F.max_pool2d(out, 2) if self.pool and min(out.shape[2:]) > 1 else out
