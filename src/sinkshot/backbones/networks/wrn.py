"""Wide residual network: Zagoruyko and Komodakis, "Wide residual networks", BMVC 2016, as S2M2 uses it.

Three groups of pre-activated blocks of two 3x3 convolutions, a last batch norm and ReLU. Parameters have the names of
the published few-shot checkpoints: conv1, block1.layer.0.bn1, ..., bn1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks._network import Network, convolution, pooled
from sinkshot.backbones.networks._registry import register
from sinkshot.errors import InputError


@register("wrn-28-10")
def wrn(*, depth: int = 28, widen: int = 10, dropout: float = 0.0, stem_stride: int = 1, size: int = 32) -> Network:
    """Make a wide residual network; at all sizes its stem keeps the resolution unless `stem_stride` is 2."""
    del size
    if depth < 10 or (depth - 4) % 6:
        raise InputError(
            f"the depth of a wide residual network must be 6 n + 4 (10, 16, 22, 28, ...); {depth} was given."
        )
    return WideResidualNetwork((depth - 4) // 6, widen, dropout, stem_stride)


class WideResidualNetwork(Network):
    """Stem, three groups of `count` blocks each, batch norm, ReLU."""

    def __init__(self, count: int, widen: int, dropout: float, stem_stride: int) -> None:
        super().__init__(width=64 * widen, blocks=3)
        self.conv1 = convolution(3, 16, 3, stem_stride)
        self.block1 = _Group(count, 16, 16 * widen, 1, dropout)
        self.block2 = _Group(count, 16 * widen, 32 * widen, 2, dropout)
        self.block3 = _Group(count, 32 * widen, 64 * widen, 2, dropout)
        self.bn1 = nn.BatchNorm2d(64 * widen)

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the three groups."""
        return (self.conv1, self.block1), (self.block2,), (self.block3,)

    def end(self, x: Tensor) -> Tensor:
        """Normalise, rectify, pool."""
        return pooled(F.relu(self.bn1(x)))


class _Group(nn.Module):
    def __init__(self, count: int, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        first = _Block(inputs, outputs, stride, dropout)
        self.layer = nn.Sequential(first, *[_Block(outputs, outputs, 1, dropout) for _ in range(count - 1)])

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3)
        self.dropout = dropout
        self.convShortcut = None if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        out = F.relu(self.bn2(self.conv1(active)))
        if self.dropout:
            out = F.dropout(out, self.dropout, self.training)
        carried: Tensor = x if self.convShortcut is None else self.convShortcut(active)
        return carried + self.conv2(out)
