"""The graph of nearest neighbours of an episode's rows, and averages over it."""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.methods.algebra import Rows
from sinkshot.task import Array


def neighbour_graph(rows: Rows, neighbours: int, sharpness: float) -> Array:
    """Weights of each row's nearest other rows, symmetric and scaled, S = D^-1/2 A D^-1/2, [R, N, N].

    A row chooses its nearest others by cosine; the weight is the cosine, where positive, to the power `sharpness`, and
    A is the mean of both directions. A row without neighbours keeps itself.
    """
    xp = array_namespace(rows.squares)
    identity = xp.eye(rows.squares.shape[-1], dtype=rows.squares.dtype, device=device(rows.squares))
    length = xp.sqrt(xp.where(rows.squares > 0, rows.squares, xp.ones_like(rows.squares)))
    cosine = rows.product(identity[None, ...]) / (length[..., None] * length[..., None, :])
    cosine = xp.where(identity > 0, -2.0 * xp.ones_like(cosine), cosine)  # no row is its own neighbour
    k = min(neighbours, cosine.shape[-1] - 1)
    if k < 1:
        return identity + xp.zeros_like(cosine)
    least = xp.sort(cosine, axis=-1, descending=True)[..., k - 1 : k]  # ties are all chosen, whatever their order
    weight = xp.where((cosine >= least) & (cosine > 0), cosine, xp.zeros_like(cosine)) ** sharpness
    weight = 0.5 * (weight + xp.matrix_transpose(weight))
    degree = xp.sum(weight, axis=-1)  # [R, N]
    scale = xp.where(degree > 0, 1.0 / xp.sqrt(xp.where(degree > 0, degree, xp.ones_like(degree))), degree)
    weight = weight * scale[..., None] * scale[..., None, :]
    return xp.where((degree > 0)[..., None], weight, identity)


def spread_over(graph: Array, values: Array, spread: float, times: int) -> Array:
    """Average values [R, way, N] over neighbours: v <- (1 - spread) values + spread v S, so many times."""
    mixed = values
    for _ in range(times):
        mixed = (1.0 - spread) * values + spread * (mixed @ graph)
    return mixed
