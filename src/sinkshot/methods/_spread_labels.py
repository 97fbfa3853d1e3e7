"""Labels spread over the graph of neighbours, for pools whose classes are not clusters around a mean.

A class may lie on a curved surface or in several pieces, as pixels of handwritten digits do. A row's neighbours then
tell its class better than its cosines to class means. Such a pool is recognised by rows that are much closer to their
neighbours than to other rows of their class: its classes have few dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from array_api_compat import array_namespace, device

from sinkshot.arrays import kept, to_numpy
from sinkshot.methods._graph import Graph
from sinkshot.methods.algebra import Rows, at_least
from sinkshot.settings.sinkshot import FAINT_LABEL, LEAST_SHARED, MOST_SHARED, MOST_WITHIN, SinkShotSettings
from sinkshot.task import Array

Joined = Callable[[Array, float], Array]
"""Cosines of queries to class weights [R, way, q], and the lam that will multiply them -> joined with spread labels."""


def cosines_alone(cosines: Array, lam: float) -> Array:
    """Return the cosines as they are."""
    return cosines


def spread_labels(belongs: Array, rows: Rows, graph: Graph, s: SinkShotSettings) -> Joined:
    """Spread the labels of the supports over the graph, and return the function that joins them with cosines.

    F <- 0.1 [supports; 0] + 0.9 F S, 30 times; rows are divided by their sums. lam cosine becomes a log F + b lam
    cosine. The weights a and b depend on `class_dimension` and on the shots; for clusters, a is 0 and b is 1.
    """
    xp = array_namespace(belongs)
    way = belongs.shape[-2]
    dimension = to_numpy(class_dimension(belongs, rows, graph))
    weights = s.weights_of_labels_and_means(dimension, rows.supports / way)
    if not weights[0].any():
        return cosines_alone
    like = {"dtype": belongs.dtype, "device": device(belongs)}
    of_labels, of_means = (xp.asarray(weight, **like)[:, None, None] for weight in weights)
    seeds = rows.with_queries(rows.member, xp.zeros_like(belongs))
    found = graph.smooth(seeds, s.label_spread, s.label_spreads)[..., rows.supports :]
    total = xp.sum(found, axis=-2, keepdims=True)
    found = xp.where(total > 0, found / xp.where(total > 0, total, xp.ones_like(total)), 1.0 / way)
    logarithms = kept(of_labels * xp.log(at_least(found, FAINT_LABEL)))

    def joined(cosines: Array, lam: float) -> Array:
        return of_means * cosines + logarithms / lam

    return joined


def class_dimension(belongs: Array, rows: Rows, graph: Graph) -> Array:
    """Estimate in how many dimensions the rows of a class vary, [R].

    Neighbours share the part (c - w) / (1 - w) of a row's deviation from its class: c is the mean cosine of neighbours,
    w that of two rows of a class by `belongs` [R, way, q]. Among n rows in m dimensions the rest falls as n^(-2/m). So
    m = -2 log n / log(1 - part), with n the mean number of rows of a class.
    """
    xp = array_namespace(belongs)
    mass = rows.with_queries(rows.member, belongs)  # [R, way, N]
    squared = mass * mass
    size = xp.sum(mass, axis=-1)  # [R, way]
    pairs = at_least(size * size - xp.sum(squared, axis=-1), 1.0)
    cosines = xp.sum(mass * rows.product(mass), axis=-1) - xp.sum(squared * rows.squares[..., None, :], axis=-1)
    within = xp.sum(size * cosines / pairs, axis=-1) / xp.sum(size, axis=-1)
    within = xp.clip(within, min=0.0, max=MOST_WITHIN)
    shared = xp.clip((graph.closeness - within) / (1.0 - within), min=LEAST_SHARED, max=MOST_SHARED)
    return -2.0 * math.log((rows.supports + rows.queries) / belongs.shape[-2]) / xp.log(1.0 - shared)
