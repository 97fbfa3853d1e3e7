"""Adaptive manifold on torch: all steps in place, on a GPU as CUDA graphs. `methods._manifold` has the formulas.

Edges move by at most the learning rate in a step, so an inverse that is some steps old still corrects both systems of
equations, of the propagation and of its gradient, to rounding: in place of an LU decomposition in every step, a few
products with as many columns as classes. Degrees need no pass over all pairs either: V times what arrived is known from
the equations themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sinkshot.kernels.adam_torch import optimiser
from sinkshot.kernels.torch_graphs import Repeated
from sinkshot.settings.constants import MANIFOLD_EPSILON

REFRESH = 20  # steps that an inverse serves
CORRECTIONS = {torch.float32: 3, torch.float64: 8}  # of a solution, in each step: what its digits are worth


class Manifold:
    """The centroids and edges of some episodes; n rows, N = way + n with the centroids before them."""

    def __init__(
        self,
        x: Tensor,
        first: Tensor,
        k: int,
        spread: float,
        temperature: float,
        lr: float,
        slope: Callable[[Tensor], Tensor],
    ) -> None:
        """Start at the mean supports `first` [R, way, d]; `slope` gives the loss by the logits from p [R, way, n]."""
        (episodes, rows, _), self.way = x.shape, first.shape[1]
        self.x, self.first, self.k, self.spread, self.temperature, self.slope = x, first, k, spread, temperature, slope
        total = self.way + rows
        self.distances = x.new_zeros((episodes, total, total))
        self.distances[:, self.way :, self.way :] = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        self.from_first = torch.cdist(first, x, compute_mode="donot_use_mm_for_euclid_dist").square()
        inner = self.distances.double()
        self.sums = torch.stack([inner.sum(dim=(1, 2)), inner.square().sum(dim=(1, 2))])  # [2, R], of what stays
        self.shift = torch.zeros_like(first)
        self.width = torch.ones_like(self.distances)
        self.strength = torch.full_like(self.distances, spread)
        self.adam = optimiser([self.shift, self.width, self.strength], lr)
        self.inverse = torch.zeros_like(self.distances)
        self.sources = torch.eye(total, self.way, dtype=x.dtype, device=x.device).repeat(episodes, 1, 1)  # [R, N, way]
        self.arrived, self.back = torch.zeros_like(self.sources), torch.zeros_like(self.sources)
        self.sent = torch.zeros_like(self.sources)

    def descend(self, steps: int) -> Tensor:
        """Take all steps of Adam but the last, and return p of all rows then, [R, way, n]."""
        with torch.no_grad():
            repeated = Repeated(self._step, self.x.device, recorded=REFRESH)
            for done in range(0, steps - 1, REFRESH):
                self._refresh()
                repeated(min(REFRESH, steps - 1 - done))
            self._refresh()
            return self._p()

    def _refresh(self) -> None:
        """Invert the system of the present edges, and solve for what arrives; what is sent back is corrected later."""
        self._build()
        edges = self.root * self.strong * self.root.mT
        system = torch.eye(edges.shape[-1], dtype=edges.dtype, device=edges.device) - 0.5 * self.spread * edges
        self.inverse.copy_(torch.linalg.inv(system))
        self.arrived.copy_(self.inverse[..., : self.way])
        torch.bmm(self.inverse.mT, self.sent, out=self.back)

    def _build(self) -> None:
        """Distances from the centroids, and the graph."""
        shift, way = self.shift, self.way
        inner = (shift * self.first).sum(dim=-1, keepdim=True) - self._products()
        squares = self.from_first + 2 * inner + shift.square().sum(dim=-1, keepdim=True)
        to_rows = squares.clamp_(min=0.0).sqrt_()
        self.centroids = self.first + shift
        between = self._between()
        self.distances[:, :way, :way] = between
        self.distances[:, :way, way:] = to_rows
        self.distances[:, way:, :way] = to_rows.mT
        self._measure(between.double(), to_rows.double())
        self._graph()

    def _between(self) -> Tensor:
        """Distances of the centroids, [R, way, way]."""
        return torch.cdist(self.centroids, self.centroids, compute_mode="donot_use_mm_for_euclid_dist")

    def _products(self) -> Tensor:
        """How the centroids' shifts project on all rows, [R, way, n]."""
        return torch.bmm(self.shift, self.x.mT)

    def _graph(self) -> None:
        """The graph; `edges` and `strong` are twice those of the formulas."""
        near = (self.width * self.distances).mul_(-1 / self.scale).exp_()
        near[:, : self.way].zero_()  # centroids choose no neighbours, and no row chooses itself
        near.diagonal(dim1=1, dim2=2).zero_()
        least = near.topk(min(self.k, near.shape[-1]), dim=-1, sorted=False).values.amin(dim=-1, keepdim=True)
        self.chosen = near.masked_fill_(near < least, 0.0)
        self.edges = self.chosen + self.chosen.mT
        self.strong = self.strength * self.edges
        self.root = torch.rsqrt(0.5 * self.strong.sum(dim=-1, keepdim=True) + MANIFOLD_EPSILON)

    def _measure(self, between: Tensor, to_rows: Tensor) -> None:
        """Mean and standard deviation of all distances [R, 1, 1], from the sums of those that stay."""
        pairs = self.distances.shape[-1] ** 2
        total = self.sums[0] + between.sum(dim=(1, 2)) + 2 * to_rows.sum(dim=(1, 2))
        squares = self.sums[1] + between.square().sum(dim=(1, 2)) + 2 * to_rows.square().sum(dim=(1, 2))
        mean = total / pairs
        scale = ((squares - pairs * mean.square()) / (pairs - 1)).clamp(min=0.0).sqrt()
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        self.mean, self.scale = (one.to(self.x.dtype)[:, None, None] for one in (mean, scale))

    def _p(self) -> Tensor:
        return torch.softmax(self.temperature * self.arrived[:, self.way :].mT, dim=-2)

    def _correct(self, solution: Tensor, right: Tensor, strong: Tensor, inverse: Tensor) -> None:
        """Bring the solution of (I - spread M) solution = right nearer, by the old inverse."""
        for _ in range(CORRECTIONS[solution.dtype]):
            passed = torch.bmm(strong, self.root * solution).mul_(0.5 * self.spread * self.root)
            solution.baddbmm_(inverse, right - solution + passed)

    def _step(self) -> None:
        """One step of Adam."""
        self._build()
        way, edges_half = self.way, 0.5 * self.spread * self.root
        self._correct(self.arrived, self.sources, self.strong, self.inverse)
        self.sent[:, way:] = self.temperature * self.slope(self._p()).mT
        self._correct(self.back, self.sent, self.strong.mT, self.inverse.mT)
        by_degree = self.back * (self.arrived - self.sources) + self.arrived * (self.back - self.sent)
        by_degree = by_degree.sum(dim=-1, keepdim=True)  # [R, N, 1]
        left = torch.cat([edges_half * self.back, -0.25 * self.root.square() * by_degree], dim=-1)
        right = torch.cat([self.root * self.arrived, torch.ones_like(by_degree)], dim=-1)
        half = torch.bmm(left, right.mT)  # [R, N, N] half of the slope by V
        of_width, of_strength = self.width.grad, self.strength.grad
        torch.mul(half, self.edges, out=of_strength)
        half.mul_(self.strength)
        by_exponent = (half + half.mT).mul_(self.chosen)  # minus the slope by the exponent
        torch.mul(by_exponent, self.distances, out=of_width)
        assert of_width is not None
        of_width.mul_(-1 / self.scale)
        by_scale = -(of_width * self.width).sum(dim=(1, 2), keepdim=True) / self.scale
        self._move_centroids(by_scale, (by_exponent[..., :way] * self.width[..., :way]).mT)

    def _move_centroids(self, by_scale: Tensor, by_relative: Tensor) -> None:
        """Take a step of Adam, given the slopes by the scale [R, 1, 1] and, by distances over it, minus [R, way, N]."""
        way, of_shift = self.way, self.shift.grad
        assert of_shift is not None
        above, pairs = self.distances[:, :way], self.distances.shape[-1] ** 2 - 1
        by_above = 2 * by_scale * (above - self.mean) / (pairs * self.scale) - by_relative / self.scale
        pull = torch.where(above > 0, by_above / above, torch.zeros_like(above))
        along = pull.sum(dim=-1, keepdim=True) * self.centroids
        along.baddbmm_(pull[..., :way], self.centroids, alpha=-1)
        torch.sub(along, self._pulls(pull[..., way:]), out=of_shift)
        self.adam.step()

    def _pulls(self, pull: Tensor) -> Tensor:
        """What rows pull at each centroid, [R, way, d]."""
        return torch.bmm(pull, self.x)
