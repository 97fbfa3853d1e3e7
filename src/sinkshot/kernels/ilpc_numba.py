"""Gradient descent with momentum for linear classifiers of many episodes, in scores: how hard each row was to learn.

Weights stay in the span of an episode's rows, so only their scores S [way, N] are stored: with D = softmax(S) - T a
step changes them by D (G + 1) / N, where the one is for the bias. Rows are padded to a multiple of eight. Episodes are
independent and divided among threads.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.simd import LOG2_E, ONE, WIDTH, Floats, exp2, load, part, store, where_larger, zeros

_TOP, _SUM, _OWN = range(3)  # rows of `_Work.rows`: largest score; sum of exp(score - largest); score of the own class


class _Work(NamedTuple):
    """Work arrays of one episode of n rows, n8 with padding."""

    scores: Floats  # [way, n8] S
    target: Floats  # [way, n8] T
    error: Floats  # [way, n8] D / n
    speed: Floats  # [way, n8]
    slope: Floats  # [n8] one class's D (G + 1) / n
    rows: Floats  # [3, n8] values per row, indexed by the names above
    loss: NDArray[np.float64]  # [n8] summed over the epochs


def _work(way: int, n8: int) -> _Work:
    scores, target, error, speed = (np.zeros((way, n8), np.float32) for _ in range(4))
    return _Work(scores, target, error, speed, np.zeros(n8, np.float32), np.zeros((3, n8), np.float32), np.zeros(n8))


@part
def _errors(work: _Work, n8: int, share: float) -> None:
    """D / n = (softmax(S) - T) / n, and the parts of each row's loss; eight rows at a time."""
    for i in range(0, n8, 8):
        top = load(work.scores, 0, i)
        for j in range(1, len(work.scores)):
            s = load(work.scores, j, i)
            top = where_larger(s, top, s, top)
        sum_, own = zeros(), zeros()
        for j in range(len(work.scores)):
            s = load(work.scores, j, i)
            numerator = exp2((s - top) * LOG2_E)
            store(work.error, j, i, numerator)
            sum_ += numerator
            own += s * load(work.target, j, i)
        for j in range(len(work.scores)):
            store(work.error, j, i, (load(work.error, j, i) / sum_ - load(work.target, j, i)) * share)
        store(work.rows, _TOP, i, top)
        store(work.rows, _SUM, i, sum_)
        store(work.rows, _OWN, i, own)


@part
def _step(gram: Floats, n: int, lr: float, momentum: float, decay: float, work: _Work) -> None:
    """Update the scores; four rows of G at a time, so that a sum is read and written once for all of them."""
    n8, slope = gram.shape[1], work.slope
    for j in range(len(work.scores)):
        error, speed, scores = work.error[j], work.speed[j], work.scores[j]
        bias = np.float32(0)
        for k in range(n):
            bias += error[k]
        slope[:] = bias
        for k in range(0, n, 4):  # beyond n, both are zero
            e0, e1, e2, e3 = error[k], error[k + 1], error[k + 2], error[k + 3]
            for i in range(n8):
                slope[i] += e0 * gram[k, i] + e1 * gram[k + 1, i] + e2 * gram[k + 2, i] + e3 * gram[k + 3, i]
        for i in range(n8):
            speed[i] = momentum * speed[i] + slope[i] + decay * scores[i]
            scores[i] -= lr * speed[i]


@engine
def _episodes(
    gram: Floats,
    scores: Floats,
    target: Floats,
    n: int,
    epochs: int,
    lr: float,
    momentum: float,
    decay: float,
    work: _Work,
    out: NDArray[np.float64],
) -> None:
    n8 = gram.shape[1]
    for r in range(len(gram)):
        work.scores[:] = scores[r]
        work.target[:] = target[r]
        work.speed[:] = 0
        work.loss[:] = 0
        for _ in range(epochs):
            _errors(work, n8, ONE / np.float32(n))
            for i in range(n):
                work.loss[i] += math.log(work.rows[_SUM, i]) + work.rows[_TOP, i] - work.rows[_OWN, i]
            for j in range(len(work.error)):
                work.error[j, n:] = 0
            _step(gram[r], n, lr, momentum, decay, work)
        out[r] = work.loss[:n] / epochs


def mean_loss(
    gram: NDArray[np.float64],
    scores: NDArray[np.float64],
    target: NDArray[np.float64],
    descent: tuple[int, float, float, float],
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the cross-entropy of each row averaged over the epochs, [R, N].

    Parameters
    ----------
    gram : array [R, N, N]
    scores : array [R, way, N]
        Scores of the initial weights, with zero bias.
    target : array [R, way, N]
        One in the class of each row.
    descent : epochs, lr, momentum, weight decay
    """
    way, n = scores.shape[1:]
    n8 = -(-n // WIDTH) * WIDTH
    epochs, *rates = descent
    out = np.empty((len(gram), n))

    def padded(values: NDArray[np.float64], rows: int) -> Floats:
        room = np.zeros((len(values), rows, n8), np.float32)
        room[:, : values.shape[1], :n] = values
        return room

    def train(batch: slice) -> None:
        arrays = padded(gram[batch], n8), padded(scores[batch], way), padded(target[batch], way)
        _episodes(*arrays, n, epochs, *(np.float32(rate) for rate in rates), _work(way, n8), out[batch])

    in_batches(_episodes, len(gram), train, threads)
    return out
