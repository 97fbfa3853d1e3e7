"""Network, cosine classifier and rotation head as one module, in which activations can be mixed, and its losses."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sinkshot.backbones.networks import Network
from sinkshot.backbones.recipes import Head, Loss

TURNS = 4


class Cosine(nn.Module):
    """Logits: a scale times the cosine between features and the weights of each class."""

    def __init__(self, width: int, classes: int, head: Head) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width) / width**0.5)
        scale = torch.full((classes,) if head.learn == "class" else (), head.scale)
        if head.learn == "none":
            self.register_buffer("scale", scale)
        else:
            self.scale = nn.Parameter(scale)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [n, classes] of features [n, width]."""
        cosine: Tensor = F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).mT
        return cosine * self.scale


class Learner(nn.Module):
    """What is trained: a network and its two heads."""

    def __init__(self, network: Network, classes: int, head: Head) -> None:
        super().__init__()
        self.network = network
        self.labels = Cosine(network.width, classes, head)
        self.turns = nn.Linear(network.width, TURNS)
        self.exchange = exchanged

    def forward(self, images: Tensor, depth: int, partner: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the class [v, classes] and of the turn [v, 4], both float32.

        Activations at `depth` are mixed: h_i becomes lam_i h_i + (1 - lam_i) h_partner(i). This is the network's own
        forward pass, but `partner` is its own inverse, which makes the gradient another such mixing, not a scatter.
        """
        x = images.contiguous(memory_format=torch.channels_last)
        for place, modules in enumerate(((), *self.network.stages())):
            for module in modules:
                x = module(x)
            if place == depth:
                x = Mixing.apply(x, partner, lam, self.exchange)
        features = self.network.end(x)
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            return self.labels(features), self.turns(features)

    def compile_blocks(self) -> None:
        """Compile each block of the network by itself: mixing stands between them, at any depth without a new graph."""
        torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # all blocks share one
        for modules in self.network.stages():
            for module in modules:
                if not isinstance(module, nn.Conv2d):  # nothing to fuse with
                    module.compile(dynamic=False)
        self.network.end = torch.compile(self.network.end, dynamic=False)  # type: ignore[method-assign]
        self.exchange = torch.compile(exchanged, dynamic=False)


class Mixing(torch.autograd.Function):
    """Mix rows with their partners' rows, where partner is its own inverse."""

    @staticmethod
    def forward(context: Any, x: Tensor, partner: Tensor, lam: Tensor, exchange: Any) -> Tensor:
        """Return lam x + (1 - lam) x[partner]."""
        context.save_for_backward(partner, lam)
        context.exchange = exchange
        with torch.autocast(x.device.type, enabled=False):  # as it is on the way back, so that one graph serves both
            mixed: Tensor = exchange(x.detach(), partner, lam, 1 - lam)
        return mixed

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Gradient of row i: lam_i times its own, plus its share in its partner's row."""
        partner, lam = context.saved_tensors
        with torch.autocast(gradient.device.type, enabled=False):
            return context.exchange(gradient, partner, lam, (1 - lam)[partner]), None, None, None


def exchanged(x: Tensor, partner: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Return own x + other x[partner], computed in float32, in x's precision."""
    shape = (-1, *[1] * (x.ndim - 1))
    both: Tensor = own.reshape(shape) * x + other.reshape(shape) * x[partner]
    return both.to(x.dtype)


def losses(
    answers: tuple[Tensor, Tensor], labels: Tensor, turn: Tensor, partner: Tensor, lam: Tensor, mixed: int, plain: int
) -> dict[str, Tensor]:
    """Return the mean losses of those kinds that have views: mixed labels, other labels, turns.

    Views are in the order mixed, plain, turned; `labels` and `turn` [v] are theirs.
    """
    logits, turns = answers
    found = {}
    if mixed:
        own = F.cross_entropy(logits[:mixed], labels[:mixed], reduction="none")
        other = F.cross_entropy(logits[:mixed], labels[partner[:mixed]], reduction="none")
        found["mixed"] = (lam[:mixed] * own + (1 - lam[:mixed]) * other).mean()
    if len(labels) > mixed:
        found["label"] = F.cross_entropy(logits[mixed:], labels[mixed:])
    if len(labels) > mixed + plain:
        found["rotation"] = F.cross_entropy(turns[mixed + plain :], turn[mixed + plain :])
    return found


def weighted(found: dict[str, Tensor], weights: Loss) -> Tensor:
    """Return the sum of the losses with a recipe's weights."""
    return torch.stack([getattr(weights, kind) * loss for kind, loss in found.items()]).sum()
