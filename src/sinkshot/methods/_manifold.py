"""The graph of adaptive manifold: label propagation from class centroids, and its gradients.

The code is the readable reference; float32 on NumPy is computed by `kernels.manifold_numba`, which does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from sinkshot.methods import _tim
from sinkshot.methods.algebra import one_hot, softmax
from sinkshot.settings.constants import MANIFOLD_EPSILON
from sinkshot.settings.tim import TIMSettings
from sinkshot.task import Array, Task

MOST_ROWS = 1000  # largest episode for the kernel; LAPACK is better for larger matrices


@dataclass(frozen=True)
class ManifoldRows:
    """What stays fixed: n = l + q rows, supports first. N = way + n with the centroids before them."""

    x: Array  # [R, n, d]
    first: Array  # [R, way, d] where the centroids start: the mean supports
    from_first: Array  # [R, way, n] squared distances
    apart: Array  # [R, n, n] distances
    member: Array  # [R, way, l]
    choosing: Array  # [N, N] one where a row may choose a neighbour: centroids choose none, no row chooses itself
    k: int
    spread: float
    kind: dict[str, Any]  # type and device of all arrays


def start_of(task: Task) -> tuple[Array, Array, Array]:
    """Return rows [R, n, d], the class of supports [R, way, l], and mean supports [R, way, d]."""
    xp = array_namespace(task.support, task.query)
    x = xp.concat([task.support, task.query], axis=-2)
    member = one_hot(task.labels, task.way, x)
    return x, member, (member / xp.sum(member, axis=-1, keepdims=True)) @ task.support


def compiled(x: Array, spread: float, settings: TIMSettings) -> bool:
    """Whether the kernel can process rows [R, n, d]; independent of the number of episodes.

    Its rounding may lead to other neighbours. It solves without pivoting, which is stable while strengths, initially
    `spread`, stay positive: on average Adam changes each by at most lr per step.
    """
    positive = spread < 1 and 2 * settings.lr * settings.steps <= spread
    return positive and x.shape[1] <= MOST_ROWS and _tim.fused(x, settings.steps, least=1)


def in_triton(x: Array, way: int) -> bool:
    """Whether the kernels of a GPU can process rows [R, n, d]."""
    if not _tim.in_triton(x, way):
        return False
    from sinkshot.kernels.manifold_triton import fits

    return fits(way, x.shape[1])


def rows_of(x: Array, member: Array, first: Array, k: int, spread: float) -> ManifoldRows:
    """Prepare a task: distances between rows are computed once."""
    xp = array_namespace(x)
    way = first.shape[1]
    apart = xp.sqrt(xp.stack([_squares(x, x[:, i : i + 1, :]) for i in range(x.shape[1])], axis=-2))
    from_first = xp.stack([_squares(x, first[:, i : i + 1, :]) for i in range(way)], axis=-2)
    kind = {"dtype": x.dtype, "device": device(x)}
    total = way + x.shape[1]
    chooses = xp.astype(xp.arange(total, device=device(x)) >= way, x.dtype)
    return ManifoldRows(
        x, first, from_first, apart, member, chooses[:, None] * (1 - xp.eye(total, **kind)), k, spread, kind
    )


def _squares(x: Array, y: Array) -> Array:
    """Return squared distances from rows to one point, [R, n]."""
    return array_namespace(x).sum((x - y) ** 2, axis=-1)


@dataclass(frozen=True)
class Found:
    """The result of propagation for given centroids and edges, and what its gradients need."""

    p: Array  # [R, way, n]
    arrived: Array  # [R, N, way] F = (I - spread M)^-1 Y
    system: Array  # [R, N, N] I - spread M
    centroids: Array  # [R, way, d]
    distances: Array  # [R, N, N]
    scale: Array  # [R, 1, 1] their standard deviation
    chosen: Array  # [R, N, N] exp(-width distance / scale) of chosen neighbours, else zero
    edges: Array  # [R, N, N] chosen by either end, before their strength
    strong: Array  # [R, N, N] V, after it
    root: Array  # [R, N, 1] degree^-1/2
    width: Array
    strength: Array


def propagate(rows: ManifoldRows, shift: Array, width: Array, strength: Array, temperature: float) -> Found:
    """Build the graph and propagate from the centroids."""
    xp = array_namespace(shift)
    centroids, way = rows.first + shift, shift.shape[-2]
    moved = xp.sum(shift * rows.first, axis=-1, keepdims=True) - shift @ xp.matrix_transpose(rows.x)
    to_rows = rows.from_first + 2 * moved + xp.sum(shift * shift, axis=-1, keepdims=True)
    to_rows = xp.sqrt(xp.clip(to_rows, min=0.0))
    between = xp.sqrt(xp.sum((centroids[:, :, None, :] - centroids[:, None, :, :]) ** 2, axis=-1))
    above = xp.concat([between, to_rows], axis=-1)
    distances = xp.concat([above, xp.concat([xp.matrix_transpose(to_rows), rows.apart], axis=-1)], axis=-2)
    scale = xp.std(distances, axis=(-2, -1), correction=1.0, keepdims=True)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    near = xp.exp(-width * distances / scale) * rows.choosing
    least = xp.sort(near, axis=-1)[..., max(0, near.shape[-1] - rows.k), None]
    chosen = xp.where(near >= least, near, xp.zeros_like(near))
    edges = (chosen + xp.matrix_transpose(chosen)) / 2
    strong = strength * edges
    root = 1 / xp.sqrt(xp.sum(strong, axis=-1, keepdims=True) + MANIFOLD_EPSILON)
    each = xp.eye(near.shape[-1], **rows.kind)
    system = each - rows.spread * (root * strong * xp.matrix_transpose(root))
    sources = xp.zeros_like(near[..., :way]) + each[:, :way]
    arrived = xp.linalg.solve(system, sources)
    p = softmax(temperature * xp.matrix_transpose(arrived[:, way:, :]), axis=-2)
    return Found(p, arrived, system, centroids, distances, scale, chosen, edges, strong, root, width, strength)


def slopes(rows: ManifoldRows, found: Found, by_logits: Array, settings: TIMSettings) -> tuple[Array, Array, Array]:
    """Return the gradients of the loss by the centroids [R, way, d], the widths and the strengths [R, N, N]."""
    xp = array_namespace(by_logits)
    way = by_logits.shape[-2]
    sent = settings.temperature * xp.matrix_transpose(by_logits)  # [R, n, way]
    sent = xp.concat([xp.zeros_like(found.arrived[:, :way, :]), sent], axis=-2)
    back = xp.linalg.solve(xp.matrix_transpose(found.system), sent)  # [R, N, way]
    by_graph = (
        rows.spread * (back @ xp.matrix_transpose(found.arrived)) * (found.root * xp.matrix_transpose(found.root))
    )
    turned = by_graph * found.strong
    by_degree = xp.sum(turned, axis=-1, keepdims=True) + xp.matrix_transpose(xp.sum(turned, axis=-2, keepdims=True))
    by_strong = by_graph - found.root**2 * by_degree / 2
    by_edges = by_strong * found.strength
    by_chosen = (by_edges + xp.matrix_transpose(by_edges)) / 2
    by_exponent = -by_chosen * found.chosen
    relative = found.distances / found.scale
    by_relative = by_exponent * found.width

    by_scale = -xp.sum(by_relative * relative, axis=(-2, -1), keepdims=True) / found.scale
    mean = xp.mean(found.distances, axis=(-2, -1), keepdims=True)
    pairs = found.distances.shape[-1] ** 2 - 1
    above = found.distances[:, :way, :]
    by_above = (by_relative[:, :way, :] + xp.matrix_transpose(by_relative[:, :, :way])) / found.scale
    by_above = by_above + 2 * by_scale * (above - mean) / (pairs * found.scale)
    pull = xp.where(above > 0, by_above / xp.where(above > 0, above, xp.ones_like(above)), xp.zeros_like(above))
    along = xp.sum(pull, axis=-1, keepdims=True) * found.centroids
    by_centroids = along - pull[..., :way] @ found.centroids - pull[..., way:] @ rows.x
    return by_centroids, by_exponent * relative, by_strong * found.edges
