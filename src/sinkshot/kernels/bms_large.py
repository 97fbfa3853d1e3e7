"""BMS for one large task of 20,000 to 100,000 rows: weights in feature space, work divided among threads.

Rows are processed in blocks. A thread does everything that a step needs from a block while the block is in its cache: a
step of logistic regression reads the features once. BLAS uses one thread per block; sums over blocks have a fixed
order, so that results do not depend on the number of threads. No N x N matrix is built.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.arrays import one_hot
from sinkshot.kernels.jit import announced, cached, workers
from sinkshot.settings.bms import BMSSettings, column_target, first_min_size, min_size_of
from sinkshot.settings.constants import LEAST_LOGIT
from sinkshot.task import Task
from sinkshot.threads import ONE_BLAS_THREAD

Floats = NDArray[np.floating[Any]]
Part = tuple[Floats, Floats]  # features [n, d] and assignment [way, n]

_BLOCK = 512  # rows
_SUMS = 64  # parts of a sum over all rows, for any number of threads


class _Threads:
    """Threads that process blocks of rows."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self.pool, self.count = pool, count

    def over(self, rows: int, work: Callable[..., None], *given: Any) -> None:
        """Call work(*given, start, stop) on ranges of whole blocks that together cover all rows."""
        self.sums(rows, partial(work, *given), 4 * self.count)

    def sums(self, rows: int, work: Callable[[int, int], Any], parts: int = _SUMS) -> list[Any]:
        """Do the same on ranges that do not depend on the number of threads, and return the results in order."""
        blocks = -(-rows // _BLOCK)
        parts = max(1, min(parts, blocks))
        bounds = [min(rows, blocks * i // parts * _BLOCK) for i in range(parts + 1)]
        return list(self.pool.map(work, bounds[:-1], bounds[1:]))


def _compiled(function: Callable[..., Any]) -> Any:
    return cached(function, nogil=True, fastmath=True)


def solve(task: Task, settings: BMSSettings) -> tuple[Floats, Floats]:
    """Run Algorithm 2 on a batch of one task.

    Returns
    -------
    assignment [way, q]
        Class probabilities of the queries; each column sums to one.
    weights [way, d]
        After one more update, for rows that were not in the task.
    """
    count = min(workers(), _SUMS)
    with announced(_kernel, _column_sums, _scale, _residuals), ONE_BLAS_THREAD, ThreadPoolExecutor(count) as pool:
        return _solve(task, settings, _Threads(pool, count))


def _solve(task: Task, settings: BMSSettings, threads: _Threads) -> tuple[Floats, Floats]:
    support, query = np.ascontiguousarray(task.support[0]), np.ascontiguousarray(task.query[0])
    member = one_hot(task.labels[0], task.way, query)  # [way, l]
    shots = member.sum(axis=1, keepdims=True)  # [way, 1]
    weights = _unit(member @ support / shots)
    min_size = first_min_size(settings, shots, len(query), task.way)
    target = column_target(settings, shots, len(query))
    for _ in range(settings.steps):
        free = _scores(weights, query, threads)
        if settings.variant == "letter":
            free = np.hstack([_scores(weights, support, threads), free])
        column = None if target is None else target[:, 0]
        allocated = transport(free, settings, float(min_size.item()), column, threads)
        assignment = allocated if settings.variant == "letter" else np.hstack([member, allocated])  # [way, N]
        min_size = min_size_of(assignment, len(query), settings.variant)
        of_support, of_query = assignment[:, : len(support)], assignment[:, len(support) :]
        weights = _unit(_weighted(query, of_query, threads) + _weighted(support, of_support, threads))
        weights = _logistic_regression(weights, ((query, of_query), (support, of_support)), settings, threads)
    return of_query / of_query.sum(axis=0), weights


def _scores(weights: Floats, x: Floats, threads: _Threads) -> Floats:
    """Inner products [way, n]."""
    scores = np.empty((len(weights), len(x)), dtype=x.dtype)

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, _BLOCK):
            rows = slice(first, min(stop, first + _BLOCK))
            scores[:, rows] = (x[rows] @ weights.T).T

    threads.over(len(x), some)
    return scores


def _weighted(x: Floats, assignment: Floats, threads: _Threads) -> Floats:
    """Sums of features by class, [way, d]."""

    def some(start: int, stop: int) -> Floats:
        return assignment[:, start:stop] @ x[start:stop]

    sums: Floats = np.sum(threads.sums(len(x), some), axis=0)
    return sums


def _unit(weights: Floats) -> Floats:
    length = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(length > 0, length, 1)


def transport(
    scores: Floats, settings: BMSSettings, min_size: float, target: Floats | None, threads: _Threads
) -> Floats:
    """Allocate rows to classes by Sinkhorn, with a minimum size or with targets; scores and answer are [way, n]."""
    rows, kernel = scores.shape[1], np.empty_like(scores)
    threads.over(rows, _kernel, scores, settings.lam, kernel)
    v = np.ones(len(scores), dtype=scores.dtype)
    by_block = np.empty((-(-rows // _BLOCK), len(v)), dtype=scores.dtype)
    for _ in range(settings.passes):
        v = v / v.max()
        used = v  # the scales that u belongs to
        threads.over(rows, _column_sums, kernel, v, by_block)
        sums = by_block.sum(axis=0)
        if target is not None:
            v = used = target / sums
            continue
        sizes = v * sums
        small = sizes < min_size
        if not small.any():
            break
        v = np.where(small, v * np.asarray(min_size, v.dtype) / sizes, v)
    threads.over(rows, _scale, kernel, used, v)
    return kernel


@_compiled
def _kernel(scores: Floats, lam: float, kernel: Floats, start: int, stop: int) -> None:
    way = len(scores)
    for i in range(start, stop):
        most = scores[0, i]
        for j in range(1, way):
            most = max(most, scores[j, i])
        for j in range(way):
            kernel[j, i] = np.exp(max(scores.dtype.type(lam) * (scores[j, i] - most), LEAST_LOGIT))


@_compiled
def _column_sums(kernel: Floats, v: Floats, by_block: Floats, start: int, stop: int) -> None:
    """Sums over each block of rows of K_ij u_i with u = 1 / (K v), [blocks, way]."""
    u = np.empty(_BLOCK, dtype=kernel.dtype)
    for first in range(start, stop, _BLOCK):
        rows = min(stop - first, _BLOCK)
        u[:] = 0
        for j in range(len(kernel)):
            for i in range(rows):
                u[i] += kernel[j, first + i] * v[j]
        for i in range(rows):
            u[i] = 1 / u[i]
        for j in range(len(kernel)):
            total = kernel.dtype.type(0)
            for i in range(rows):
                total += kernel[j, first + i] * u[i]
            by_block[first // _BLOCK, j] = total


@_compiled
def _scale(kernel: Floats, used: Floats, v: Floats, start: int, stop: int) -> None:
    """Turn K into P = diag(u) K diag(v) in place, with u = 1 / (K used)."""
    way = len(kernel)
    for i in range(start, stop):
        total = kernel.dtype.type(0)
        for j in range(way):
            total += kernel[j, i] * used[j]
        for j in range(way):
            kernel[j, i] *= v[j] / total


def _logistic_regression(weights: Floats, parts: tuple[Part, ...], settings: BMSSettings, threads: _Threads) -> Floats:
    """Take `epochs` steps of gradient descent on the unit sphere."""
    rows = sum(len(x) for x, _ in parts)
    speed, kappa, kappa_speed = np.zeros_like(weights), settings.kappa, 0.0
    for _ in range(settings.epochs):
        pulls = [_pull(weights, x, assignment, kappa, 1.0 / rows, threads) for x, assignment in parts]
        gradient = sum(gradient for gradient, _ in pulls)
        gradient = gradient - (gradient * weights).sum(axis=1, keepdims=True) * weights
        speed = settings.momentum * speed + gradient
        kappa_speed = settings.momentum * kappa_speed + sum(along for _, along in pulls) / kappa
        weights = _unit(weights - np.asarray(settings.lr, weights.dtype) * speed)
        kappa -= settings.lr * kappa_speed
    return weights


def _pull(
    weights: Floats, x: Floats, assignment: Floats, kappa: float, share: float, threads: _Threads
) -> tuple[Floats, float]:
    """Gradient of the loss by the weights, [way, d], and kappa times the gradient by kappa."""

    def some(start: int, stop: int) -> tuple[Floats, float]:
        slope, along = np.zeros_like(weights), 0.0
        for first in range(start, stop, _BLOCK):
            rows = slice(first, min(stop, first + _BLOCK))
            scores = x[rows] @ weights.T  # [rows, way]: cosines, then the gradient of the loss by them
            along += _residuals(scores, assignment[:, rows], kappa, share)
            slope += scores.T @ x[rows]
        return slope, along

    sums = threads.sums(len(x), some)
    slope: Floats = np.sum([slope for slope, _ in sums], axis=0)
    return slope, sum(along for _, along in sums)


@_compiled
def _residuals(scores: Floats, assignment: Floats, kappa: float, share: float) -> float:
    """Turn cosines S into D = kappa (softmax(kappa S) mass - P) / N in place, and return the sum of S * D."""
    rows, way = scores.shape
    one = scores.dtype.type
    total, chance = one(0), np.empty(way, dtype=scores.dtype)
    for i in range(rows):
        most = scores[i, 0]
        for j in range(1, way):
            most = max(most, scores[i, j])
        norm, mass = one(0), one(0)
        for j in range(way):
            chance[j] = np.exp(one(kappa) * (scores[i, j] - most))
            norm += chance[j]
            mass += assignment[j, i]
        for j in range(way):
            pull = one(kappa * share) * (chance[j] * mass / norm - assignment[j, i])
            total += scores[i, j] * pull
            scores[i, j] = pull
    return float(total)
