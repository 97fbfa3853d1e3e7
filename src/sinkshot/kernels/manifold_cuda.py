"""Adaptive manifold on an NVIDIA GPU: the steps of `manifold_torch` by the kernels of `manifold_triton`.

The inverse that corrects solutions is brought up to date by a step of Newton and Schulz, X <- X (2 - A X): two products
in place of a decomposition, which GPUs do not batch well. So a whole round of steps is one CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sinkshot.kernels import manifold_centroids_triton as of_centroids
from sinkshot.kernels import manifold_triton as triton
from sinkshot.kernels.adam_torch import optimiser
from sinkshot.kernels.manifold_torch import Manifold
from sinkshot.kernels.tim_triton import MOST_WAYS, step_sizes
from sinkshot.kernels.torch_graphs import Repeated
from sinkshot.settings.tim import TIMSettings

ROUND = 4  # steps that an inverse serves
CORRECTIONS = 2  # of a solution, in each step
RECORDED = 4  # rounds in a CUDA graph


class ManifoldOnGPU(Manifold):
    """The centroids and edges of some episodes."""

    def __init__(self, x: Tensor, member: Tensor, first: Tensor, k: int, spread: float, settings: TIMSettings) -> None:
        """Start at the mean supports `first` [R, way, d]; `member` [R, way, l] has the classes of supports."""
        self.member, self.settings = member.to(torch.float32).contiguous(), settings
        super().__init__(x.contiguous(), first, k, spread, settings.temperature, settings.lr, lambda p: p)
        (episodes, rows, _), total = x.shape, self.distances.shape[-1]
        self.adam = optimiser([self.shift], settings.lr)
        arrays = [triton.padded(episodes, total, x) for _ in range(10)]
        for array, values in zip(arrays, (self.distances, self.width, self.strength), strict=False):
            array.copy_(values)
        self.distances, self.width, self.strength, self.inverse, self.chosen, self.strong, *self.moments = arrays
        self.root = x.new_empty((episodes, total, 1))
        states = torch.zeros((4, episodes, total, MOST_WAYS), dtype=torch.float64, device=x.device)
        self.arrived, self.back, self.sent, self.rest = states.unbind()
        self.sources = torch.eye(total, MOST_WAYS, dtype=torch.float64, device=x.device)[None]
        self.sources[..., self.way :] = 0.0
        stride = self.width.stride(1)
        self.sides = torch.zeros((episodes, 2, MOST_WAYS, stride), dtype=torch.float64, device=x.device)
        self.apart = x.new_empty((episodes, self.way, self.way))
        self.towards = x.new_zeros((episodes, total, self.way))
        self.parts = x.new_zeros((episodes, triton.tile_pairs(total)))
        self.inner, self.pulled = x.new_empty((episodes, self.way, rows)), torch.empty_like(self.shift)
        self.rates = step_sizes(settings.steps, settings.lr, x.device).to(x.dtype)
        self.step = torch.zeros(1, dtype=torch.int32, device=x.device)

    def descend(self, steps: int) -> Tensor:
        """Take all steps of Adam but the last, and return p of all rows then, [R, way, n]."""
        with torch.no_grad(), torch.cuda.device_of(self.x):
            self._refresh()
            Repeated(self._round, self.x.device, recorded=RECORDED)((steps - 1) // ROUND)
            for _ in range((steps - 1) % ROUND):
                self._step()
            self._build()
            for _ in range(2):
                self._renew()
                self._solve()
            return torch.softmax(self.temperature * self.arrived[:, self.way :, : self.way].mT, dim=-2).to(self.x.dtype)

    def _refresh(self) -> None:
        self._build()
        edges = self.root * self.strong * self.root.mT
        system = torch.eye(edges.shape[-1], dtype=edges.dtype, device=edges.device) - 0.5 * self.spread * edges
        self.inverse.copy_(torch.linalg.inv(system))
        self.arrived[..., : self.way] = self.inverse[..., : self.way]

    def _renew(self) -> None:
        """Bring the inverse nearer to that of the present edges."""
        scaled = torch.bmm(self.strong, self.root * self.inverse).mul_(0.5 * self.spread * self.root)
        scaled.sub_(self.inverse)  # minus A X
        self.inverse.copy_(torch.baddbmm(self.inverse, self.inverse, scaled, beta=2))

    def _graph(self) -> None:
        triton.choose(self.width, self.distances, self.scale, self.way, self.k, self.chosen)
        triton.link(self.chosen, self.strength, self.strong, self.root)

    def _products(self) -> Tensor:
        of_centroids.products(self.x, self.shift, self.inner)
        return self.inner

    def _between(self) -> Tensor:
        of_centroids.between(self.centroids, self.apart)
        return self.apart

    def _solve(self) -> None:
        half = 0.5 * self.spread
        system = (self.strong, self.inverse, self.root)
        for _ in range(CORRECTIONS):
            triton.correct(*system, self.sources, self.arrived, self.rest, half, turned=False)
        triton.send(self.arrived, self.member, self.sent, self.settings)
        for _ in range(CORRECTIONS):
            triton.correct(*system, self.sent, self.back, self.rest, half, turned=True)
        triton.factor(self.root, self.arrived, self.sent, self.back, self.sides, self.way, half)

    def _round(self) -> None:
        self._build()
        self._renew()
        self._step_on()
        for _ in range(ROUND - 1):
            self._step()

    def _step(self) -> None:
        self._build()
        self._step_on()

    def _step_on(self) -> None:
        """The rest of a step, after the graph was built."""
        self._solve()
        edges = (self.width, *self.moments[:2], self.strength, *self.moments[2:])
        triton.move(
            self.sides,
            self.chosen,
            self.distances,
            self.scale,
            edges,
            self.rates,
            self.step,
            self.towards,
            self.parts,
        )
        self.step.add_(1)
        by_scale = -self.parts.sum(dim=1)[:, None, None] / self.scale
        self._move_centroids(by_scale, self.towards.mT)

    def _pulls(self, pull: Tensor) -> Tensor:
        of_centroids.pulls(self.x, pull.contiguous(), self.pulled)
        return self.pulled
