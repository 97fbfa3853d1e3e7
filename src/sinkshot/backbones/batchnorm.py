"""Batch norm over the images of all processes, so that several of them compute what one would.

torch's own `SyncBatchNorm` needs GPUs; this one is a few lines, works everywhere, and is therefore tested everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Summed(torch.autograd.Function):
    """The sum of a tensor over all processes; so is its gradient."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        """Return the sum, the same in every process."""
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Every process's loss depends on this value: their gradients add up."""
        total = gradient.clone()
        torch.distributed.all_reduce(total)
        return total


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics, while training, are those of every process's images; all have as many."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [n, c, h, w]; the running statistics move as `nn.BatchNorm2d`'s do."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        wide = x.float()
        world = torch.distributed.get_world_size()
        mean = Summed.apply(wide.mean(dim=(0, 2, 3))) / world  # [c]
        centred = wide - mean[:, None, None]
        variance = Summed.apply(centred.square().mean(dim=(0, 2, 3))) / world
        with torch.no_grad():
            count = world * x.numel() // x.shape[1]
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / max(1, count - 1)), self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(x.dtype)


def share_batch_norm(module: nn.Module) -> None:
    """Turn every batch norm in a module into a shared one, in place; parameters and their names stay."""
    for child in module.modules():
        if type(child) is nn.BatchNorm2d:
            child.__class__ = SharedBatchNorm
