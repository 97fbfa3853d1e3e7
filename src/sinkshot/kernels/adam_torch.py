"""Adam on torch: its own fused optimiser, on a GPU with all steps as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sinkshot.kernels.torch_graphs import Repeated
from sinkshot.settings.constants import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON


def optimiser(moving: list[Tensor], lr: float) -> torch.optim.Adam:
    """Return Adam for tensors whose gradients are written to their `grad`, which starts at zero."""
    for one in moving:
        one.grad = torch.zeros_like(one)
    on_gpu = moving[0].device.type == "cuda"
    return torch.optim.Adam(moving, lr, (ADAM_BETA1, ADAM_BETA2), ADAM_EPSILON, fused=True, capturable=on_gpu)


def adam(start: Tensor, gradient: Callable[[Tensor], Tensor], *, steps: int, lr: float) -> Tensor:
    """Return `start` after a number of steps; `gradient` must not ask the device for a value."""
    at = start.detach().clone(memory_format=torch.contiguous_format)
    moving = optimiser([at], lr)
    slope = at.grad
    assert slope is not None

    def step() -> None:
        slope.copy_(gradient(at))
        moving.step()

    with torch.no_grad():
        Repeated(step, at.device)(steps)
    at.grad = None
    return at
