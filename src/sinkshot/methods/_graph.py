"""The graph of nearest neighbours of an episode's rows, and averages over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from array_api_compat import array_namespace, device

from sinkshot.methods.algebra import Rows
from sinkshot.task import Array


class Graph(Protocol):
    """What mixes values of rows with those of their neighbours."""

    @property
    def closeness(self) -> Array:
        """Mean cosine of rows and their neighbours, [R]; one below zero counts as zero."""

    def smooth(self, values: Array, spread: float, times: int) -> Array:
        """Mix values [R, way, N] with neighbours' values."""

    def average(self, values: Array, spread: float, times: int) -> Array:
        """Mix values [R, 1, N] with the weighted mean of neighbours' values."""


@dataclass(frozen=True)
class DenseGraph:
    """Weights between neighbours, S = D^-1/2 A D^-1/2 with A symmetric and D its row sums."""

    weights: Array  # S, [R, N, N]
    root_degree: Array  # D^1/2, [R, 1, N]; one for a row without neighbours, which keeps its value
    closeness: Array  # mean cosine of rows and their neighbours, [R]

    def smooth(self, values: Array, spread: float, times: int) -> Array:
        """Mix values [R, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeated."""
        mixed = values
        for _ in range(times):
            mixed = (1.0 - spread) * values + spread * (mixed @ self.weights)
        return mixed

    def average(self, values: Array, spread: float, times: int) -> Array:
        """Mix values [R, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        return self.smooth(values * self.root_degree, spread, times) / self.root_degree


def neighbour_graph(rows: Rows, neighbours: int, sharpness: float) -> DenseGraph:
    """Link each row with its nearest other rows by cosine.

    The weight is max(cosine, 0) to the power `sharpness`, and A is the mean of both directions. Ties at the last place
    are all included, so that the result does not depend on the order of rows.
    """
    xp = array_namespace(rows.squares)
    identity = xp.eye(rows.squares.shape[-1], dtype=rows.squares.dtype, device=device(rows.squares))
    length = xp.sqrt(xp.where(rows.squares > 0, rows.squares, xp.ones_like(rows.squares)))
    cosine = rows.product(identity[None, ...]) / (length[..., None] * length[..., None, :])
    cosine = xp.where(identity > 0, -2.0 * xp.ones_like(cosine), cosine)  # no row is its own neighbour
    k = min(neighbours, cosine.shape[-1] - 1)
    if k < 1:
        return DenseGraph(identity + xp.zeros_like(cosine), xp.ones_like(length)[..., None, :], 0.0 * length[..., 0])
    least = xp.sort(cosine, axis=-1, descending=True)[..., k - 1 : k]
    near = xp.where((cosine >= least) & (cosine > 0), cosine, xp.zeros_like(cosine))
    closeness = xp.sum(near, axis=(-2, -1)) / (k * cosine.shape[-1])
    weight = near**sharpness
    weight = 0.5 * (weight + xp.matrix_transpose(weight))
    degree = xp.sum(weight, axis=-1)  # [R, N]
    root = xp.sqrt(xp.where(degree > 0, degree, xp.ones_like(degree)))
    weight = weight / (root[..., None] * root[..., None, :])
    return DenseGraph(xp.where((degree > 0)[..., None], weight, identity), root[..., None, :], closeness)
