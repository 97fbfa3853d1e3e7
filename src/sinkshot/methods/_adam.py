"""Adam as torch's optimiser computes it: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015."""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace, is_torch_array

from sinkshot.settings.constants import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON
from sinkshot.task import Array


class Adam:
    """An array under optimisation: each entry is updated from the history of its own gradient only."""

    def __init__(self, start: Array, lr: float) -> None:
        xp = array_namespace(start)
        self.at, self.lr, self.step = start, lr, 0
        self.mean, self.square = xp.zeros_like(start), xp.zeros_like(start)

    def move(self, slope: Array) -> None:
        """Take one step, given the gradient at the current value."""
        xp = array_namespace(slope)
        self.step += 1
        self.mean = ADAM_BETA1 * self.mean + (1 - ADAM_BETA1) * slope
        self.square = ADAM_BETA2 * self.square + (1 - ADAM_BETA2) * (slope * slope)
        root = xp.sqrt(self.square) / (1 - ADAM_BETA2**self.step) ** 0.5
        self.at = self.at - (self.lr / (1 - ADAM_BETA1**self.step)) * self.mean / (root + ADAM_EPSILON)


def adam(start: Array, gradient: Callable[[Array], Array], *, steps: int, lr: float) -> Array:
    """Return `start` after a number of steps."""
    if is_torch_array(start):
        from sinkshot.kernels.adam_torch import adam as on_torch

        return on_torch(start, gradient, steps=steps, lr=lr)
    moving = Adam(start, lr)
    for _ in range(steps):
        moving.move(gradient(moving.at))
    return moving.at
