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
        scores = with_bias.new_zeros((episodes, way, rows))
        target, speed = torch.zeros_like(scores), torch.zeros_like(scores)
        total = with_bias.new_zeros((episodes, rows))
        self.scores, self.target, self.speed, self.total = scores, target, speed, total

        def step() -> None:  # without `self`: a cycle would keep the graph and its memory until a collection
            log_p = torch.log_softmax(scores, dim=-2)
            total.sub_((log_p * target).sum(dim=-2))
            miss = log_p.exp_().sub_(target)
            speed.baddbmm_(miss, with_bias, beta=momentum).add_(scores, alpha=decay)
            scores.sub_(speed, alpha=lr)

        self.repeated = Repeated(step, gram.device)

    def mean_loss(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each row, averaged over the training from `scores` on, [R, N]."""
        self.scores.copy_(scores)
        self.target.copy_(target)
        self.speed.zero_()
        self.total.zero_()
        self.repeated(self.epochs)
        return self.total.to(scores.dtype) / self.epochs
