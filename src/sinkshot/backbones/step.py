"""One step of training: views, losses, gradients, new weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sinkshot.backbones.augment import augmented, blank
from sinkshot.backbones.devices import Devices
from sinkshot.backbones.learner import losses, weighted
from sinkshot.backbones.pixels import moved
from sinkshot.backbones.plan import Plan
from sinkshot.backbones.recipes import Augment, Stage

SCALE_SHARE = 0.01  # of the learning rate, for the logits' scale under SGD
KINDS = ("loss", "mixed", "label", "rotation", "accuracy")
"""What `take` returns, in this order; zero where a stage has no such views."""


@dataclass(frozen=True)
class ImageViews:
    """What turns pixels into what the network sees, and the labels of all images; all on the device, so none waits."""

    labels: Tensor  # [n]
    mean: Tensor  # [1, 3, 1, 1]
    std: Tensor  # [1, 3, 1, 1]
    size: int
    augment: Augment

    def views(self, pixels: Tensor, numbers: Tensor, turn: Tensor) -> Tensor:
        """Return normalised views [v, 3, size, size] of pixels [v, h, w, 3]."""
        views = (augmented(pixels, self.size, self.augment, numbers, turn) - self.mean) / self.std
        return blank(views, self.augment.cutout, numbers[:, 8:10]) if self.augment.cutout else views


def optimiser_of(learner: nn.Module, stage: Stage, fused: bool) -> torch.optim.Optimizer:
    """Return the stage's optimiser; only matrices and convolutions decay.

    The scale of the logits, whose gradient is that of all of them together, is moved by a small share of the rate.
    """
    scale = [p for name, p in learner.named_parameters() if name.endswith("scale")]
    others = [p for name, p in learner.named_parameters() if not name.endswith("scale")]
    share = 1.0 if stage.optimiser == "adam" else SCALE_SHARE
    groups = [
        {"params": [p for p in others if p.ndim > 1], "weight_decay": stage.weight_decay, "share": 1.0},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0, "share": 1.0},
        {"params": scale, "weight_decay": 0.0, "share": share},
    ]
    if stage.optimiser == "adam":
        return torch.optim.Adam(groups, lr=stage.rate, fused=fused)
    nesterov = stage.momentum > 0
    return torch.optim.SGD(groups, lr=stage.rate, momentum=stage.momentum, nesterov=nesterov, fused=fused)


def take(
    devices: Devices,
    module: nn.Module,
    optimiser: Any,
    stage: Stage,
    shown: ImageViews,
    sheet: Plan,
    pixels: Tensor,
    rate: float,
) -> Tensor:
    """Move the weights by one step and return its losses and the accuracy on unmixed views [5], still on the device.

    `pixels` [b, h, w, 3] are those of the sheet's images.
    """
    arrays = (sheet.rows, sheet.source, sheet.turn, sheet.partner, sheet.lam, sheet.numbers)
    rows, source, turn, partner, lam, numbers = (moved(array, pixels.device) for array in arrays)
    views = shown.views(pixels[source], numbers, turn)
    labels = shown.labels[rows][source]  # [v]
    answers = module(views, sheet.depth, partner, lam)
    found = losses(answers, labels, turn, partner, lam, sheet.mixed, sheet.plain)
    loss = weighted(found, stage.loss)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["share"]
    optimiser.zero_grad(set_to_none=True)
    devices.backward(loss)
    optimiser.step()
    with torch.no_grad():
        right = (answers[0][sheet.mixed :].argmax(dim=1) == labels[sheet.mixed :]).float()
        told = {**found, "loss": loss, "accuracy": right.mean() if len(right) else loss.new_zeros(())}
        return torch.stack([told[kind].detach() if kind in told else loss.new_zeros(()) for kind in KINDS])
