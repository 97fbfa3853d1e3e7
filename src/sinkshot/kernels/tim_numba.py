"""Small classifiers trained by a thousand steps of Adam, fused: one whole episode in a core's cache.

Logits are temperature (w . x - half |w|^2). The loss is the cross-entropy of the supports and, for TIM, entropies of
the queries' probabilities; with half = 0 and no queries it is the linear layer of SGC. Adam updates every entry of a
weight by its own history, so the weights stay in feature space. Memory traffic is saved: the rows of an episode are
read from the cache twice per step, and an entry is updated as soon as its gradient is summed.

Rows of an episode are queries first, then supports, each padded to a multiple of eight; classes are padded to a
multiple of five, with zero weights. Episodes are independent, and every sum has a fixed order.
"""

from typing import Any, NamedTuple

import numpy as np

from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.simd import (
    LOG2_E,
    ONE,
    TWO,
    ZERO,
    Floats,
    exp2,
    load,
    part,
    root,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.kernels.tiles_numba import add_weighted_rows, no_sums, products
from sinkshot.settings.constants import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON, TIM_EPSILON, TIM_LEAST
from sinkshot.settings.tim import TIMSettings

_TIM_EPSILON, _LEAST = np.float32(TIM_EPSILON), np.float32(TIM_LEAST)
_LEAST_LOG2 = np.float32(np.log2(TIM_EPSILON))
_LN_2 = np.float32(np.log(2))
_BETA1, _BETA2, _EPSILON = np.float32(ADAM_BETA1), np.float32(ADAM_BETA2), np.float32(ADAM_EPSILON)
_INSIDE, _SUM = 0, 1  # rows of `_Work.rows`: one for a query, zero for padding; sum over classes


class _Numbers(NamedTuple):
    """Parameters shared by all episodes."""

    supports: np.float32  # weights of the loss: cross-entropy of the supports,
    mean: np.float32  # entropy of the mean prediction,
    each: np.float32  # mean entropy of predictions
    alpha: np.float32
    temperature: np.float32
    half: np.float32  # times |w|^2 in the logits
    decay: np.float32  # weight decay, added to the gradient
    least: np.float32  # a gradient below it counts as zero
    lr: float
    steps: int


class _Work(NamedTuple):
    """Work arrays of one episode: q8 queries and l8 supports, way5 classes, width16 features."""

    x: Floats  # [q8 + l8, width16 or more]
    weights: Floats  # [way5, width16] and Adam's running means of gradients and of their squares:
    means: Floats  # [way5, width16]
    squares: Floats  # [way5, width16]
    member: Floats  # [way, l8] class of each support
    scores: Floats  # [way5, q8 + l8 + 8] logits, then the gradient of the loss by them
    p: Floats  # [way, q8 + l8 + 8]
    rows: Floats  # [2, q8 + l8 + 8]
    shrink: Floats  # [way5] factor of a weight in its own gradient


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _work(queries: int, supports: int, way: int, width: int) -> _Work:
    rows, way5, width16 = _up(queries, 8) + _up(supports, 8), _up(way, 5), _up(width, 16)
    pitch = width16 // 16 | 1  # an odd number of cache lines: the same column of many rows fits into the L1 cache
    shapes = [(rows, 16 * pitch), *[(way5, width16)] * 3, (way, _up(supports, 8)), (way5, rows + 8), (way, rows + 8)]
    work = [np.zeros(shape, np.float32) for shape in [*shapes, (2, rows + 8), (way5,)]]
    work[7][_INSIDE, :queries] = 1
    return _Work(*work)


@part
def _softmax(numbers: _Numbers, work: _Work) -> None:
    """Probabilities of all rows; scores become log2 of p, up to the logarithm of the sums in rows[_SUM]."""
    scores, p, way = work.scores, work.p, len(work.p)
    scale = numbers.temperature * LOG2_E
    for k in range(way):
        square = zeros()
        for j in range(0, work.weights.shape[1], 8):
            w = load(work.weights, k, j)
            square += w * w
        lower = total(square) * numbers.half
        for i in range(0, len(work.x), 8):
            store(scores, k, i, (load(scores, k, i) - lower) * scale)
    for i in range(0, len(work.x), 8):
        top, mass = load(scores, 0, i), zeros()
        for k in range(1, way):
            s = load(scores, k, i)
            top = where_larger(s, top, s, top)
        for k in range(way):
            s = load(scores, k, i) - top
            store(scores, k, i, s)
            s = exp2(s)
            store(p, k, i, s)
            mass += s
        store(work.rows, _SUM, i, mass)
        for k in range(way):
            store(p, k, i, load(p, k, i) / mass)


@part
def slope_of_supports(numbers: _Numbers, queries8: int, supports: int, work: _Work) -> None:
    """Gradient of the cross-entropy by the logits of the supports; zero for padding, which has no class."""
    scores, p, way = work.scores, work.p, len(work.p)
    share = numbers.supports / np.float32(supports)
    for i in range(0, work.member.shape[1], 8):
        right = zeros()
        for k in range(way):
            right += load(work.member, k, i) * load(p, k, queries8 + i)
        factor = right / (right + _TIM_EPSILON) * share
        for k in range(way):
            miss = load(p, k, queries8 + i) - load(work.member, k, i)
            store(scores, k, queries8 + i, miss * factor)


@part
def slope_of_queries(numbers: _Numbers, queries: int, work: _Work) -> None:
    """Gradient of both entropies by the logits of the queries."""
    scores, p, rows, way = work.scores, work.p, work.rows, len(work.p)
    power, factor = numbers.alpha - ONE, ONE
    if power != ZERO:
        factor = numbers.alpha / power
    for i in range(queries):
        rows[_SUM, i] = np.log2(rows[_SUM, i])
    for k in range(way):
        mass = zeros()
        for i in range(0, queries, 8):
            mass += load(p, k, i) * load(rows, _INSIDE, i)
        mean = max(total(mass) / np.float32(queries), _LEAST)
        by_mean = numbers.mean * (np.log(mean) if power == ZERO else factor * mean**power)
        for i in range(0, queries, 8):
            by_each = load(scores, k, i) - load(rows, _SUM, i)  # log2 of p
            by_each = where_larger(by_each, _LEAST_LOG2, by_each, _LEAST_LOG2)
            by_each = by_each * _LN_2 if power == ZERO else exp2(by_each * power) * factor
            store(scores, k, i, by_mean - by_each * numbers.each)
    for i in range(0, queries, 8):
        along = zeros()
        for k in range(way):
            along += load(p, k, i) * load(scores, k, i)
        share = load(rows, _INSIDE, i) / np.float32(queries)
        for k in range(way):
            store(scores, k, i, load(p, k, i) * (load(scores, k, i) - along) * share)


@part
def _move(work: _Work, k: int, j: int, slope: Any, least: float, first: float, second: float) -> None:
    """One step of Adam for eight entries of a weight."""
    w = load(work.weights, k, j)
    slope = slope + w * work.shrink[k]
    slope = where_larger(least * least, slope * slope, ZERO, slope)  # NaN stays NaN
    mean = load(work.means, k, j) * _BETA1 + slope * (ONE - _BETA1)
    square = load(work.squares, k, j) * _BETA2 + slope * slope * (ONE - _BETA2)
    store(work.means, k, j, mean)
    store(work.squares, k, j, square)
    store(work.weights, k, j, w - mean * first / (root(square) * second + _EPSILON))


@part
def _descend(numbers: _Numbers, queries: int, queries8: int, last: int, step: int, work: _Work) -> None:
    """Sum the gradients over the rows, five classes by sixteen features in ten registers, and update the weights."""
    x, slope, temperature, least = work.x, work.scores, numbers.temperature, numbers.least
    first = np.float32(numbers.lr / (1 - ADAM_BETA1**step))
    second = np.float32(1 / np.sqrt(1 - ADAM_BETA2**step))
    for j in range(0, work.weights.shape[1], 16):
        for k in range(0, len(work.weights), 5):
            sums = no_sums()
            for begin, end in ((0, queries), (queries8, last)):
                sums = add_weighted_rows(x, slope, k, j, begin, end, sums)
            (s00, s01), (s10, s11), (s20, s21), (s30, s31), (s40, s41) = sums
            for r, a, b in ((0, s00, s01), (1, s10, s11), (2, s20, s21), (3, s30, s31), (4, s40, s41)):
                _move(work, k + r, j, a * temperature, least, first, second)
                _move(work, k + r, j + 8, b * temperature, least, first, second)


@engine
def _episodes(x: Floats, member: Floats, start: Floats, numbers: _Numbers, work: _Work, out: Floats) -> None:
    """Train the weights of each episode: x [R, N, d], supports first, member [R, way, l], start and out [R, way, d]."""
    episodes, way, width = start.shape
    supports = member.shape[2]
    queries = x.shape[1] - supports
    queries8 = -(-queries // 8) * 8
    last = queries8 + supports
    for r in range(episodes):
        work.weights[:way, :width] = start[r]
        work.means[:], work.squares[:] = ZERO, ZERO
        work.x[:queries, :width] = x[r, supports:]
        work.x[queries8:last, :width] = x[r, :supports]
        work.member[:, :supports] = member[r]
        for step in range(1, numbers.steps + 1):
            products(work.x, work.weights, 0, queries, work.scores)
            products(work.x, work.weights, queries8, last, work.scores)
            _softmax(numbers, work)
            slope_of_supports(numbers, queries8, supports, work)
            if queries > 0:
                slope_of_queries(numbers, queries, work)
            for k in range(way):
                mass = zeros()
                for i in range(0, len(work.x), 8):
                    mass += load(work.scores, k, i)
                work.shrink[k] = numbers.decay - TWO * numbers.half * numbers.temperature * total(mass)
            _descend(numbers, queries, queries8, last, step, work)
        out[r] = work.weights[:way, :width]


def _train(x: Floats, member: Floats, start: Floats, numbers: _Numbers, threads: int | None) -> Floats:
    x, member, start = (np.ascontiguousarray(a, np.float32) for a in (x, member, start))
    out = np.empty_like(start)
    (episodes, way, width), supports = start.shape, member.shape[2]

    def train(batch: slice) -> None:
        work = _work(x.shape[1] - supports, supports, way, width)
        _episodes(x[batch], member[batch], start[batch], numbers, work, out[batch])

    in_batches(_episodes, episodes, train, threads)
    return out


def tim(x: Floats, member: Floats, start: Floats, settings: TIMSettings, threads: int | None = None) -> Floats:
    """Class weights [R, way, d] of TIM-GD or alpha-TIM; rows x [R, N, d], supports first, member [R, way, l]."""
    supports, mean, each_query = (np.float32(w) for w in settings.weights)
    numbers = _Numbers(
        supports=supports,
        mean=mean,
        each=each_query,
        alpha=np.float32(settings.alpha),
        temperature=np.float32(settings.temperature),
        half=np.float32(0.5),
        decay=ZERO,
        least=ZERO,
        lr=settings.lr,
        steps=settings.steps,
    )
    return _train(x, member, start, numbers, threads)


def linear(
    x: Floats,
    member: Floats,
    start: Floats,
    *,
    decay: float,
    least: float,
    lr: float,
    steps: int,
    threads: int | None = None,
) -> Floats:
    """Weights [R, way, d] of a linear layer without intercept, trained on supports x [R, l, d], member [R, way, l].

    Gradients below `least` count as zero.
    """
    numbers = _Numbers(
        supports=ONE,
        mean=ZERO,
        each=ZERO,
        alpha=ONE,
        temperature=ONE,
        half=ZERO,
        decay=np.float32(decay),
        least=np.float32(least),
        lr=lr,
        steps=steps,
    )
    return _train(x, member, start, numbers, threads)
