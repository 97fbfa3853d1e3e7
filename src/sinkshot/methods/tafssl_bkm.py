"""TAFSSL with Bayesian k-means: Lichtenstein et al., "TAFSSL: task-adaptive feature sub-space learning", 2020.

In the subspace of the task, k-means finds clusters without labels. Within each cluster, supports and queries are
shifted to a common centre, and supports vote for a query with a weight given by their membership in its cluster.
"""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace, device

from sinkshot.errors import whole
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.methods.tafssl_msp import project, squared_distances, unit
from sinkshot.task import Array, Scores, Task


@register(
    "tafssl-pca-bkm",
    transductive=True,
    preprocess="",
    random=True,
    ordered=True,
    reference="Lichtenstein et al. 2020 (TAFSSL)",
)
def tafssl_bkm(
    task: Task,
    *,
    dimensions: int = 10,
    clusters: int = 5,
    restarts: int = 10,
    steps: int = 300,
    seed: int = 0,
) -> Scores:
    """Classify queries by the supports of their cluster, in the subspace of the task.

    Parameters
    ----------
    dimensions : int
        Dimensions of the subspace, see `sinkshot.methods.tafssl_msp.project`.
    clusters : int
        Clusters of k-means; the public code has five for any number of classes.
    restarts, steps : int
        Random starts of k-means, of which the best is used, and maximum iterations of each.
    seed : int
        Seed of the starts. All episodes use the same draws, so that no episode depends on others in the batch.
    """
    clusters, restarts = whole("clusters", clusters, 1), whole("restarts", restarts, 1)
    steps, seed = whole("steps", steps, 1), whole("seed", seed, 0)
    support, query = project(task, "pca", dimensions)
    rows = array_namespace(query).concat([support, query], axis=-2)  # [R, N, k]
    clusters = min(clusters, rows.shape[-2])
    return bayesian(task, support, query, kmeans_labels(rows, clusters, restarts, steps, seed), clusters)


def bayesian(task: Task, support: Array, query: Array, labels: Array, clusters: int) -> Scores:
    """Return the probabilities that follow from k-means labels [R, N] of supports and queries."""
    xp = array_namespace(query)
    member = one_hot(labels, clusters, query)  # [R, clusters, N]
    centres = unit(member @ xp.concat([support, query], axis=-2))
    belongs = softmax(-squared_distances(centres, support), axis=-2)  # [R, clusters, l], soft
    inside = member[..., task.supports :]  # [R, clusters, q], hard
    shift = unit(belongs @ support) - unit(inside @ query)  # from a cluster's queries to its supports, [R, clusters, k]
    to_cluster = xp.matrix_transpose(inside)  # [R, q, clusters]
    distances = squared_distances(support, query + to_cluster @ shift)  # [R, l, q]
    nearness = xp.exp(-distances) * (xp.matrix_transpose(belongs) @ inside)
    classes = one_hot(task.labels, task.way, query) @ nearness  # [R, way, q]
    return Scores(by_query(classes / xp.sum(classes, axis=-2, keepdims=True)))


def kmeans_labels(x: Array, clusters: int, restarts: int, steps: int, seed: int) -> Array:
    """Cluster rows x [R, N, k] by Lloyd's k-means from k-means++ starts; return the labels [R, N] of the best start.

    All starts run together, [R, restarts * clusters, k]. A start that has converged does not change any more, so it can
    stay in the batch until all have.
    """
    xp = array_namespace(x)
    centres = xp.reshape(_starts(x, clusters, restarts, seed), (x.shape[0], -1, x.shape[-1]))
    shape = (x.shape[0], restarts, clusters, x.shape[-2])
    labels: Array = None
    for _ in range(steps):
        distances = xp.reshape(squared_distances(centres, x), shape)
        before, labels = labels, xp.argmin(distances, axis=-2)  # [R, restarts, N]
        if before is not None and bool(xp.all(before == labels)):
            break
        member = xp.reshape(one_hot(labels, clusters, x), (shape[0], -1, shape[-1]))
        size = xp.sum(member, axis=-1, keepdims=True)
        centres = xp.where(size > 0, (member @ x) / xp.clip(size, min=1.0), centres)
    inertia = xp.sum(xp.min(xp.reshape(squared_distances(centres, x), shape), axis=-2), axis=-1)  # [R, restarts]
    best = one_hot(xp.argmin(inertia, axis=-1)[..., None], restarts, x)  # [R, restarts, 1]
    return xp.sum(labels * xp.astype(best, labels.dtype), axis=-2)


def _starts(x: Array, clusters: int, restarts: int, seed: int) -> Array:
    """Centres [R, restarts, clusters, k] by k-means++.

    Each next centre is a row drawn with probability proportional to its squared distance to the centres before; of a
    few drawn rows, the one with the least total squared distance is kept.
    """
    xp = array_namespace(x)
    trials, rows = 2 + int(np.log(clusters)), x.shape[-2]
    draws = np.random.default_rng(seed).random((clusters, restarts, trials))
    shape = (x.shape[0], restarts, trials)
    weight, left, centres = xp.ones_like(x[..., None, :, 0]), math.inf, []
    for values in draws:
        draw = xp.asarray(values, dtype=x.dtype, device=device(x))  # [restarts, trials]
        reach = xp.cumulative_sum(weight, axis=-1)  # [R, restarts, N]
        at = _places(reach, draw * reach[..., -1:])  # [R, restarts, trials]
        drawn = xp.take_along_axis(x, xp.reshape(at, (shape[0], -1, 1)), axis=-2)  # [R, restarts * trials, k]
        distances = xp.reshape(squared_distances(drawn, x), (*shape, rows))
        after = xp.clip(distances, max=left)
        best = xp.argmin(xp.sum(after, axis=-1), axis=-1)[..., None, None]  # [R, restarts, 1, 1]
        left = xp.take_along_axis(after, best, axis=-2)
        weight = left[..., 0, :]  # [R, restarts, N]
        centres.append(xp.take_along_axis(xp.reshape(drawn, (*shape, -1)), best, axis=-2))
    return xp.concat(centres, axis=-2)


def _places(reach: Array, level: Array) -> Array:
    """How many of the increasing numbers `reach` [R, m, N] are below each level [R, m, t]: [R, m, t]."""
    xp = array_namespace(reach)
    return xp.sum(xp.astype(reach[..., None, :] < level[..., None], xp.int64), axis=-1)
