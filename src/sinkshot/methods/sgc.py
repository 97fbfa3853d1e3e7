"""Transfer+SGC: Hu, Gripon, Pateux, "Graph-based interpolation of feature vectors for accurate few-shot
classification", ICPR 2020.

Features are averaged over a graph of nearest neighbours, supports and queries together, and a linear layer is trained
on the averaged supports. Nothing is assumed about the class sizes.

The public code initialises the layer at random, without a seed; here it starts at zero, so that results are
reproducible. A random start changes the accuracy of about one episode in ten, and hardly the mean.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods._adam import adam
from sinkshot.methods._tim import fused, in_triton
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task


@register("sgc", transductive=True, preprocess="", random=True, reference="Hu, Gripon, Pateux 2020")
def sgc(
    task: Task,
    *,
    k: int = 10,
    alpha: float = 0.5,
    kappa: int = 3,
    steps: int = 1000,
    lr: float = 1e-3,
    decay: float = 5e-6,
    seed: int | None = None,
) -> Scores:
    """Train a linear layer on supports averaged over a graph of nearest neighbours.

    Parameters
    ----------
    k : int
        Neighbours that a row chooses; an edge is kept if either end chose it, and ties are all chosen.
    alpha, kappa : float, int
        Features are multiplied by (alpha I + E)^kappa, where E is the normalised graph.
    steps, lr, decay : int, float, float
        Steps, learning rate and weight decay of Adam.
    seed : int, optional
        Seed of a random start, the same for every episode; without it the layer starts at zero.
    """
    averaged = propagate(task, whole("k", k, least=1), number("alpha", alpha), whole("kappa", kappa, least=1))
    xp = array_namespace(averaged)
    x = xp.concat([averaged, xp.ones_like(averaged[..., :1])], axis=-1)  # the last weight is the intercept
    layer = start(task.way, x, None if seed is None else whole("seed", seed, least=0))
    layer = train(
        layer,
        x[..., : task.supports, :],
        one_hot(task.labels, task.way, x),
        whole("steps", steps, least=0),
        number("lr", lr, above=0),
        number("decay", decay),
    )
    return Scores(by_query(softmax(layer @ xp.matrix_transpose(x[..., task.supports :, :]), axis=-2)))


def propagate(task: Task, k: int, alpha: float, kappa: int) -> Array:
    """Centre supports and queries separately, scale to unit length, and average over the graph, [R, N, d]."""
    xp = array_namespace(task.support, task.query)
    edges = graph(xp.concat([task.support, task.query], axis=-2), k)
    degree = xp.sum(edges, axis=-2, keepdims=True)  # [R, 1, N]
    lonely = degree <= 0  # has no neighbour in its direction
    scale = xp.where(lonely, xp.zeros_like(degree), 1 / xp.sqrt(xp.where(lonely, xp.ones_like(degree), degree)))
    each = alpha * xp.eye(edges.shape[-1], dtype=edges.dtype, device=device(edges))
    step = each + scale * edges * xp.matrix_transpose(scale)
    centred = [unit(part - xp.mean(part, axis=-2, keepdims=True)) for part in (task.support, task.query)]
    power = step
    for _ in range(kappa - 1):
        power = power @ step
    return power @ xp.concat(centred, axis=-2)


def graph(x: Array, k: int) -> Array:
    """Return cosines [R, N, N] between rows where one of the two is among the k nearest of the other, else zero."""
    xp = array_namespace(x)
    x = unit(x)
    rows = x.shape[-2]
    others = 1 - xp.eye(rows, dtype=x.dtype, device=device(x))
    cosine = xp.clip(x @ xp.matrix_transpose(x), min=-1.0, max=1.0) * others
    least = xp.sort(cosine, axis=-1)[..., max(0, rows - k), None]  # [R, N, 1] of the k largest
    chosen = cosine >= least
    return xp.where(chosen | xp.matrix_transpose(chosen), cosine, xp.zeros_like(cosine))


def unit(x: Array) -> Array:
    """Scale rows to unit length; a zero row stays zero."""
    xp = array_namespace(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return x / xp.where(length > 0, length, xp.ones_like(length))


def start(way: int, x: Array, seed: int | None) -> Array:
    """Return the layer [R, way, d + 1] before training: zero, or uniform within 1 / sqrt(d) as torch draws it."""
    xp = array_namespace(x)
    width = x.shape[-1]
    layer = np.zeros((way, width))
    if seed is not None:
        layer = np.random.default_rng(seed).uniform(-1.0, 1.0, layer.shape) / (width - 1) ** 0.5
    first = xp.asarray(layer, dtype=x.dtype, device=device(x))
    return first + xp.zeros_like(x[:, :1, :])


def train(layer: Array, x: Array, member: Array, steps: int, lr: float, decay: float) -> Array:
    """Return the layer [R, way, d] after training on rows x [R, l, d] of the classes member [R, way, l].

    From a start at zero the gradient of the intercept is zero up to rounding, which Adam's first step would scale up to
    full size. So gradients below the resolution of the number type count as zero.
    """
    xp = array_namespace(x)
    least = float(xp.finfo(x.dtype).eps) / 4
    if fused(x, steps):
        from sinkshot.kernels.tim_numba import linear

        return linear(x, member, layer, decay=decay, least=least, lr=lr, steps=steps)
    if in_triton(x, member.shape[-2]):
        from sinkshot.kernels import linear_triton

        if linear_triton.fits(*member.shape[-2:]):
            return linear_triton.linear(x, member, layer, decay=decay, least=least, lr=lr, steps=steps)

    def gradient(w: Array) -> Array:
        miss = softmax(w @ xp.matrix_transpose(x), axis=-2) - member
        slope = miss @ x / x.shape[-2] + decay * w
        return xp.where(xp.abs(slope) > least, slope, xp.zeros_like(slope))

    return adam(layer, gradient, steps=steps, lr=lr)
