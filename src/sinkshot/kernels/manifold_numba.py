"""Adaptive manifold, fused: one episode in a core's cache for all of the thousand steps of `methods._manifold`.

The system of propagation is I - spread D^-1 V, with V the edges times their strength and D its row sums: the readable
code's I - spread D^-1/2 V D^-1/2, up to the scale of rows and columns. V is not symmetric: the strengths of ij and ji
become different. While they are positive and spread is below one, the matrix is diagonally dominant, so elimination
needs no pivots; its factors serve the result and all gradients. Episodes are independent, and every sum has a fixed
order.
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.block_lu import factor, solve, solve_across
from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.manifold_graph_numba import (
    BY_DEGREE,
    DEGREE,
    ManifoldGraph,
    Moving,
    Places,
    begin,
    connect,
    distances,
    work,
)
from sinkshot.kernels.simd import (
    LOG2_E,
    ONE,
    TWO,
    ZERO,
    Floats,
    Lanes,
    each,
    exp2,
    load,
    part,
    root,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.kernels.tiles_numba import add_weighted_rows, no_sums
from sinkshot.kernels.tim_numba import slope_of_queries, slope_of_supports
from sinkshot.settings.constants import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON
from sinkshot.settings.tim import TIMSettings

_BETA1, _BETA2, _EPSILON = np.float32(ADAM_BETA1), np.float32(ADAM_BETA2), np.float32(ADAM_EPSILON)
_HALF = np.float32(0.5)
_INSIDE, _SUM = 0, 1  # rows of `_Loss.rows`, as in `kernels.tim_numba`


class _Numbers(NamedTuple):
    """Parameters shared by all episodes."""

    supports: np.float32  # weights of the loss: cross-entropy of the supports,
    mean: np.float32  # entropy of the mean prediction,
    each: np.float32  # mean entropy of predictions
    alpha: np.float32
    temperature: np.float32
    spread: np.float32
    k: int  # neighbours, fewer than N
    lr: float
    steps: int


class _Loss(NamedTuple):
    """Probabilities, with the names of `kernels.tim_numba`: q8 queries before l8 supports."""

    member: Floats  # [way, l8]
    scores: Floats  # [way, q8 + l8 + 8]
    p: Floats  # [way, q8 + l8 + 8]
    rows: Floats  # [2, q8 + l8 + 8]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _loss(queries: int, supports: int, way: int) -> _Loss:
    shape = (way, _up(queries, 8) + _up(supports, 8) + 8)
    loss = _Loss(*(np.zeros(s, np.float32) for s in ((way, _up(supports, 8)), shape, shape, (2, shape[1]))))
    loss.rows[_INSIDE, :queries] = 1
    return loss


@part
def _propagate(n: int, way: int, queries: int, numbers: _Numbers, graph: ManifoldGraph, loss: _Loss) -> None:
    """Propagate from the centroids, and compute the probabilities of all rows.

    Scores become log2 of p, up to the logarithm of the sums in rows[_SUM]: `kernels.tim_numba` needs them so.
    """
    arrived, scores, p = graph.arrived, loss.scores, loss.p
    factor(graph.system, graph.unit, graph.inverse)
    arrived[:] = ZERO
    for k in range(way):
        arrived[n + k, k] = ONE / np.sqrt(graph.of_row[n + k, DEGREE])
    solve(graph.system, graph.inverse, n, arrived, graph.held)
    scale, gap = numbers.temperature * LOG2_E, -(-queries // 8) * 8 - queries
    for i in range(n + way):
        size = np.sqrt(graph.of_row[i, DEGREE]) * scale
        for k in range(way):
            graph.across[k, i] = arrived[i, k]
            if i < n:
                scores[k, i + (gap if i >= queries else 0)] = arrived[i, k] * size
    for i in range(0, scores.shape[1], 8):
        top, mass = load(scores, 0, i), zeros()
        for k in range(1, way):
            s = load(scores, k, i)
            top = where_larger(s, top, s, top)
        for k in range(way):
            s = load(scores, k, i) - top
            store(scores, k, i, s)
            store(p, k, i, exp2(s))
            mass += load(p, k, i)
        store(loss.rows, _SUM, i, mass)
        for k in range(way):
            store(p, k, i, load(p, k, i) / mass)


@part
def _return(n: int, way: int, queries: int, numbers: _Numbers, graph: ManifoldGraph, loss: _Loss) -> None:
    """The gradient of the loss by the values sent and by degrees, given that by logits.

    Sums over rows and columns of gradient times edge need no edges: with A = I - spread D^-1 V, A h = r
    and A^T b = s, they are b . (h - r) and (b - s) . h of each row.
    """
    arrived, back, of_row, gap = graph.arrived, graph.back, graph.of_row, -(-queries // 8) * 8 - queries
    back[:] = ZERO
    for i in range(n):
        size, along = np.sqrt(of_row[i, DEGREE]) * numbers.temperature, ZERO
        for k in range(way):
            back[i, k] = loss.scores[k, i + (gap if i >= queries else 0)] * size
            along += back[i, k] * arrived[i, k]
        of_row[i, BY_DEGREE] = -along
    for k in range(way):
        of_row[n + k, BY_DEGREE] = ZERO
    solve_across(graph.system, graph.inverse, back, graph.held)
    for i in range(n + way):
        along = zeros()
        for k in range(0, back.shape[1], 8):
            along += load(back, i, k) * load(arrived, i, k)
        of_row[i, BY_DEGREE] += TWO * total(along)
    for k in range(way):
        of_row[n + k, BY_DEGREE] -= back[n + k, k] / np.sqrt(of_row[n + k, DEGREE])


@part
def _move(moving: Moving, i: int, j: int, slope: Lanes, first: float, second: float) -> None:
    """One step of Adam for eight entries."""
    mean = load(moving.mean, i, j) * _BETA1 + slope * (ONE - _BETA1)
    square = load(moving.square, i, j) * _BETA2 + slope * slope * (ONE - _BETA2)
    store(moving.mean, i, j, mean)
    store(moving.square, i, j, square)
    store(moving.at, i, j, load(moving.at, i, j) - mean * first / (root(square) * second + _EPSILON))


@part
def _descend_edges(
    n: int,
    way: int,
    numbers: _Numbers,
    first: float,
    second: float,
    mean: float,
    scale: float,
    places: Places,
    graph: ManifoldGraph,
) -> None:
    """Update strengths and widths, and compute the gradient by distances from the centroids."""
    points, strength, line, by_edges = n + way, graph.strength, graph.line, graph.system
    for i in range(points):
        inverse = ONE / graph.of_row[i, DEGREE]
        lower, factor_ = graph.of_row[i, BY_DEGREE] * inverse * _HALF, numbers.spread * inverse
        for j in range(0, points, 8):
            along = zeros()
            for k in range(way):
                along += each(graph.back, i, k) * load(graph.across, k, j)
            by_strong = along * factor_ - lower
            store(by_edges, i, j, by_strong * load(strength.at, i, j))
            _move(strength, i, j, by_strong * load(graph.edges, i, j), first, second)
    inverse, by_scale = np.float32(1 / scale), 0.0
    places.pull[:] = ZERO
    for i in range(n):
        line[:] = ZERO
        for s in range(graph.counts[i]):
            j = graph.neighbours[i, s]
            relative = graph.apart[i, j] * inverse
            by_exponent = -_HALF * (by_edges[i, j] + by_edges[j, i]) * graph.near[i, s]
            by_relative = by_exponent * graph.width.at[i, j]
            by_scale -= by_relative * relative
            line[0, j] = by_exponent * relative
            if j >= n:
                places.pull[j - n, i] = by_relative * inverse
        for j in range(0, points, 8):
            _move(graph.width, i, j, load(line, 0, j), first, second)
    by_distance = np.float32(2 * by_scale / scale / scale / (float(points * points) - 1))
    for k in range(way):
        for i in range(points):
            distance = places.above[k, i]
            if distance > 0:
                places.pull[k, i] = (places.pull[k, i] + by_distance * (distance - np.float32(mean))) / distance
            else:
                places.pull[k, i] = ZERO


@part
def _descend_centroids(n: int, way: int, first: float, second: float, places: Places) -> None:
    """Sum the gradients of the centroids, five of them by sixteen features in ten registers, and update them."""
    x, pull, shift, width = places.x, places.pull, places.shift, places.first.shape[1]
    for k in range(0, len(pull), 5):
        for j in range(0, width, 16):
            sums = add_weighted_rows(x, pull, k, j, 0, n + way, no_sums())
            (s00, s01), (s10, s11), (s20, s21), (s30, s31), (s40, s41) = sums
            for r, a, b in ((0, s00, s01), (1, s10, s11), (2, s20, s21), (3, s30, s31), (4, s40, s41)):
                store(places.slope, k + r, j, a)
                store(places.slope, k + r, j + 8, b)
    for k in range(way):
        mass = ZERO
        for i in range(n + way):
            mass += pull[k, i]
        for j in range(0, width, 8):
            _move(shift, k, j, load(x, n + k, j) * mass - load(places.slope, k, j), first, second)
    for k in range(way):
        for j in range(0, width, 8):
            store(x, n + k, j, load(places.first, k, j) + load(shift.at, k, j))


@engine
def _episodes(
    x: Floats,
    member: Floats,
    start: Floats,
    numbers: _Numbers,
    places: Places,
    graph: ManifoldGraph,
    loss: _Loss,
    out: Floats,
) -> None:
    """p of the queries out [R, way, q]: x [R, n, d], supports first, member [R, way, l], start [R, way, d]."""
    (episodes, way, width), supports, n = start.shape, member.shape[2], x.shape[1]
    queries = n - supports
    queries8 = -(-queries // 8) * 8
    for r in range(episodes):
        places.x[:queries, :width] = x[r, supports:]
        places.x[queries:n, :width] = x[r, :supports]
        places.first[:way, :width] = start[r]
        loss.member[:, :supports] = member[r]
        loss.scores[:] = ZERO  # padding stays zero, unless an episode had NaN
        sum_, squares = begin(n, way, numbers.spread, places, graph)
        for step in range(1, numbers.steps + 1):
            mean, scale = distances(n, way, places, graph, sum_, squares)
            if not scale < np.inf:
                loss.p[:] = np.nan
                break
            connect(n, way, numbers.k, numbers.spread, scale, graph)
            _propagate(n, way, queries, numbers, graph, loss)
            if step == numbers.steps:
                break
            slope_of_supports(numbers, queries8, supports, loss)
            if queries > 0:
                slope_of_queries(numbers, queries, loss)
            _return(n, way, queries, numbers, graph, loss)
            first = np.float32(numbers.lr / (1 - ADAM_BETA1**step))
            second = np.float32(1 / np.sqrt(1 - ADAM_BETA2**step))
            _descend_edges(n, way, numbers, first, second, mean, scale, places, graph)
            _descend_centroids(n, way, first, second, places)
        out[r] = loss.p[:, :queries]


def probabilities(
    x: Floats, member: Floats, start: Floats, k: int, spread: float, settings: TIMSettings, threads: int | None = None
) -> Floats:
    """p of the queries [R, way, q]; rows x [R, n, d], supports first, member [R, way, l], mean supports [R, way, d]."""
    x, member, start = (np.ascontiguousarray(a, np.float32) for a in (x, member, start))
    (episodes, way, width), supports = start.shape, member.shape[2]
    queries = x.shape[1] - supports
    out = np.empty((episodes, way, queries), np.float32)
    of_supports, of_mean, of_each = (np.float32(weight) for weight in settings.weights)
    numbers = _Numbers(
        supports=of_supports,
        mean=of_mean,
        each=of_each,
        alpha=np.float32(settings.alpha),
        temperature=np.float32(settings.temperature),
        spread=np.float32(spread),
        k=min(k, x.shape[1] + way - 1),
        lr=settings.lr,
        steps=settings.steps,
    )

    def classify(batch: slice) -> None:
        places, graph = work(queries + supports, way, width)
        loss = _loss(queries, supports, way)
        _episodes(x[batch], member[batch], start[batch], numbers, places, graph, loss, out[batch])

    in_batches(_episodes, episodes, classify, threads)
    return out
