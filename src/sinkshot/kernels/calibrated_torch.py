"""Distribution calibration on torch: logistic regression of many episodes at once, without ever making the samples.

A sample is a mean plus normal draws z [c] times factors F [c, d] of the covariances of base classes. All episodes share
the draws and the factors, so logits of samples are z (F w): two products whose left sides are common to all episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkshot.kernels.lbfgs_torch import minimise

CHANGE = 64 * torch.finfo(torch.float64).eps  # scikit-learn's limits of logistic regression
TOLERANCE, MOST = 1e-4, 1000
TOGETHER = 2600  # episodes trained at a time: about 3 MB each


@dataclass(frozen=True)
class Calibrated:
    """Training rows of episodes: supports and, for each of them, samples. R episodes, l supports, s samples of each."""

    factors: Tensor  # [C, f, d] with F^T F the covariance of a base class, over the number of neighbours
    draws: Tensor  # [l, s, k f + 1] the last column moves all features alike
    shift: float  # by this much
    support: Tensor  # [R, l, d]
    means: Tensor  # [R, l, d] of the samples
    nearest: Tensor  # [R, l, k] base classes
    member: Tensor  # [R, l, way] one at the class of a support

    @property
    def rows(self) -> int:
        """Training rows of an episode."""
        return int(self.support.shape[1] * (1 + self.draws.shape[1]))

    def select(self, rows: Tensor) -> Calibrated:
        """Return some of the episodes."""
        own = {name: getattr(self, name)[rows] for name in ("support", "means", "nearest", "member")}
        return replace(self, **own)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss [R] and gradient [R, (d + 1) way] of weights [d, way] and, in the last row, biases."""
        episodes, width, way = len(x), self.support.shape[-1], self.member.shape[-1]
        weights, bias = x.view(episodes, width + 1, way).split([width, 1], dim=1)
        of_supports = self.support @ weights + bias  # [R, l, way]
        of_samples = self._sampled(weights) + (self.means @ weights + bias)[:, :, None, :]  # [R, l, s, way]
        miss, value = _cross_entropy(of_supports, self.member)
        misses, values = _cross_entropy(of_samples, self.member[:, :, None, :])
        ridge = 1.0 / self.rows
        loss = (value.sum(dim=1) + values.sum(dim=(1, 2))) / self.rows
        loss = loss + 0.5 * ridge * (weights * weights).sum(dim=(1, 2))
        together = misses.sum(dim=2)  # [R, l, way]
        slope = self.support.mT @ miss + self.means.mT @ together + self._spread(misses, width)
        of_bias = (miss + together).sum(dim=1, keepdim=True)
        slope = torch.cat([slope / self.rows + ridge * weights, of_bias / self.rows], dim=1)
        return loss, slope.reshape(episodes, -1)

    def _sampled(self, weights: Tensor) -> Tensor:
        """Return what the draws add to the logits, [R, l, s, way]."""
        classes, rank, width = self.factors.shape
        episodes, way = weights.shape[0], weights.shape[-1]
        side = weights.transpose(0, 1).reshape(width, episodes * way)
        moved = (self.factors.view(-1, width) @ side).view(classes, rank, episodes, way).permute(2, 0, 1, 3)
        which = torch.arange(episodes, device=weights.device)[:, None, None]
        chosen = moved[which, self.nearest].flatten(2, 3)  # [R, l, k f, way]
        level = self.shift * weights.sum(dim=1)[:, None, None, :].expand(-1, chosen.shape[1], 1, way)
        return torch.einsum("lsc,rlcw->rlsw", self.draws, torch.cat([chosen, level], dim=2))

    def _spread(self, misses: Tensor, width: int) -> Tensor:
        """Return the transpose of that applied to the misses of samples [R, l, s, way], [R, d, way]."""
        classes, rank, _ = self.factors.shape
        episodes, _, _, way = misses.shape
        back = torch.einsum("lsc,rlsw->rlcw", self.draws, misses)  # [R, l, k f + 1, way]
        chosen, level = back[:, :, :-1].unflatten(2, (-1, rank)), self.shift * back[:, :, -1].sum(dim=1)
        by_class = misses.new_zeros((episodes * classes, rank, way))
        which = torch.arange(episodes, device=misses.device)[:, None, None] * classes + self.nearest
        by_class.index_add_(0, which.flatten(), chosen.reshape(-1, rank, way))
        side = by_class.view(episodes, classes * rank, way).transpose(0, 1).reshape(classes * rank, -1)
        slope = (self.factors.view(-1, width).mT @ side).view(width, episodes, way).transpose(0, 1)
        return slope + level[:, None, :]


def training_of(
    support: Tensor,
    labels: Tensor,
    way: int,
    statistics: tuple[NDArray[np.float64], list[NDArray[np.float64]]],
    neighbours: int,
    alpha: float,
    count: int,
    seed: int,
) -> Calibrated:
    """Return the training rows for supports [R, l, d] in float64, with `count` samples of each.

    `statistics` are the means of base classes and factors of their covariances, all of one size.
    """
    means, factors = (torch.as_tensor(np.asarray(part), device=support.device) for part in statistics)
    apart = torch.cdist(support, means, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = torch.argsort(apart, dim=-1, stable=True)[..., :neighbours]  # [R, l, k]
    kept = nearest.shape[-1]
    draws = np.random.default_rng(seed).standard_normal((support.shape[1], count, kept * factors.shape[1] + 1))
    return Calibrated(
        factors=factors / kept**0.5,
        draws=torch.as_tensor(draws, device=support.device),
        shift=alpha**0.5,
        support=support,
        means=(means[nearest].sum(dim=-2) + support) / (kept + 1),
        nearest=nearest,
        member=torch.nn.functional.one_hot(labels.long(), way).to(support.dtype),
    )


def _cross_entropy(logits: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Return its slope by the logits, and its value without the last axis."""
    log_p = torch.log_softmax(logits, dim=-1)
    value = -(log_p * member).sum(dim=-1)
    return log_p.exp_() - member, value


def probabilities(training: Calibrated, query: Tensor) -> Tensor:
    """Return the probabilities of queries [R, q, d] by classifiers trained as scikit-learn does, [R, q, way]."""
    width, way, found = query.shape[-1], training.member.shape[-1], []
    for rows in torch.arange(len(query), device=query.device).split(TOGETHER):
        start = query.new_zeros((len(rows), (width + 1) * way))
        found.append(minimise(training.select(rows), start, tolerance=TOLERANCE, change=CHANGE, most=MOST))
    weights, bias = torch.cat(found).view(-1, width + 1, way).split([width, 1], dim=1)
    return torch.softmax(query @ weights + bias, dim=-1)
