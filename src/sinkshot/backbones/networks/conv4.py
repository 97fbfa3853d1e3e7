"""Conv4: the four-layer network of Vinyals et al., "Matching networks for one shot learning", NeurIPS 2016.

Four times a 3x3 convolution, batch norm, ReLU and max-pooling. Features are pooled (64) or, with `flat`, all places of
the last map one after another, as the first papers had them (1600 at 84 pixels). Conv64 is the same network as Snell et
al., "Prototypical networks for few-shot learning", NeurIPS 2017, use it: 64 channels, and flat.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from sinkshot.backbones.networks._network import Network, convolution, pooled
from sinkshot.backbones.networks._registry import register


@register("conv4")
def conv4(*, channels: int = 64, flat: bool = False, size: int = 32) -> Network:
    """Make a Conv4; with `flat` it takes images of `size` pixels only."""
    return Conv4(channels, places=(size // 16) ** 2 if flat else None)


@register("conv64")
def conv64(*, channels: int = 64, flat: bool = True, size: int = 32) -> Network:
    """Make a Conv4 whose features are all places of the last map: 256 at 32 pixels."""
    return conv4(channels=channels, flat=flat, size=size)


class Conv4(Network):
    """Four blocks, and an end that pools or, given the number of `places` of the last map, keeps them all."""

    def __init__(self, channels: int, places: int | None) -> None:
        super().__init__(width=channels * (places or 1), blocks=4)
        self.layers = nn.ModuleList(_block(channels if i else 3, channels) for i in range(4))
        self.places = places

    def stages(self) -> Sequence[Sequence[nn.Module]]:
        """Return the four blocks."""
        return tuple((layer,) for layer in self.layers)

    def end(self, x: Tensor) -> Tensor:
        """Pool, or keep all places, channel by channel."""
        return pooled(x) if self.places is None else x.flatten(1)


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))
