"""The classifier of iLPC on torch: gradient descent in place, on a GPU as a CUDA graph."""

from __future__ import annotations

import torch
from torch import Tensor

from sinkshot.kernels.torch_graphs import Repeated


class Descent:
    """Trains linear classifiers of some episodes, round after round, by the method's formulas (`methods.ilpc`).

    Float32 is enough here: the loss of a row is a mean over all epochs, and only the order of rows counts.
    """

    def __init__(self, gram: Tensor, way: int, descent: tuple[int, float, float, float]) -> None:
        self.epochs, lr, momentum, decay = descent
        episodes, rows = gram.shape[0], gram.shape[-1]
        with_bias = ((gram + 1.0) / rows).to(torch.float32)  # [R, N, N]
        self.scores = with_bias.new_zeros((episodes, way, rows))
        self.target, self.speed = torch.zeros_like(self.scores), torch.zeros_like(self.scores)
        self.total = with_bias.new_zeros((episodes, rows))

        def step() -> None:
            log_p = torch.log_softmax(self.scores, dim=-2)
            self.total.sub_((log_p * self.target).sum(dim=-2))
            miss = log_p.exp_().sub_(self.target)
            self.speed.baddbmm_(miss, with_bias, beta=momentum).add_(self.scores, alpha=decay)
            self.scores.sub_(self.speed, alpha=lr)

        self.repeated = Repeated(step, gram.device)

    def mean_loss(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each row, averaged over the training from `scores` on, [R, N]."""
        self.scores.copy_(scores)
        self.target.copy_(target)
        self.speed.zero_()
        self.total.zero_()
        self.repeated(self.epochs)
        return self.total.to(scores.dtype) / self.epochs
