"""BMS for one large task, a practitioner's 20,000 to 100,000 rows: weights in feature space, work shared by threads.

Products with the features go to BLAS; what remains, Sinkhorn's passes and the residuals of logistic regression, reads
each array once per pass, in blocks of rows. Their sums are taken block by block in a fixed order, so that answers
depend on the number of threads by BLAS's rounding alone. No N x N matrix is ever built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.threads import announced, cached
from sinkshot.methods._algebra import one_hot
from sinkshot.methods.bms import LEAST_LOGIT, Settings, column_target, first_min_size, min_size_of
from sinkshot.task import Task

Floats = NDArray[np.floating[Any]]
F = TypeVar("F", bound=Callable[..., Any])

_BLOCK = 1024  # rows


def _compiled(function: F) -> F:
    compiled: F = cached(function, parallel=True, fastmath=True)
    return compiled


def solve(task: Task, settings: Settings) -> tuple[Floats, Floats]:
    """Run Algorithm 2 on a batch of one task.

    Returns
    -------
    assignment [way, q]
        Of the queries, each column summing to one.
    weights [way, d]
        After one more update, for rows that were not in the task.
    """
    with announced(_kernel, _column_sums, _scale, _residuals):
        return _solve(task, settings)


def _solve(task: Task, settings: Settings) -> tuple[Floats, Floats]:
    support, query = np.ascontiguousarray(task.support[0]), np.ascontiguousarray(task.query[0])
    member = one_hot(task.labels[0], task.way, query)  # [way, l]
    shots = member.sum(axis=1, keepdims=True)  # [way, 1]
    weights = _unit(member @ support / shots)
    min_size = first_min_size(settings, shots, len(query), task.way)
    target = column_target(settings, shots, len(query))
    for _ in range(settings.steps):
        free = _scores(weights, query)
        if settings.variant == "letter":
            free = np.hstack([_scores(weights, support), free])
        allocated = transport(free, settings, float(min_size.item()), None if target is None else target[:, 0])
        assignment = allocated if settings.variant == "letter" else np.hstack([member, allocated])  # [way, N]
        min_size = min_size_of(assignment, len(query), settings.variant)
        of_support, of_query = assignment[:, : len(support)], assignment[:, len(support) :]
        weights = _unit(of_query @ query + of_support @ support)
        weights = _logistic_regression(weights, ((query, of_query), (support, of_support)), settings)
    return of_query / of_query.sum(axis=0), weights


def _scores(weights: Floats, x: Floats) -> Floats:
    """Inner products [way, n]; in blocks of rows, since BLAS is slow on one very long, thin product."""
    scores = np.empty((len(weights), len(x)), dtype=x.dtype)
    for start in range(0, len(x), 2 * _BLOCK):
        rows = slice(start, start + 2 * _BLOCK)
        scores[:, rows] = (x[rows] @ weights.T).T
    return scores


def _unit(weights: Floats) -> Floats:
    length = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(length > 0, length, 1)


def transport(scores: Floats, settings: Settings, min_size: float, target: Floats | None) -> Floats:
    """Allocate rows to classes by Sinkhorn, with a minimum size or with targets; scores and answer are [way, n]."""
    kernel = np.empty_like(scores)
    _kernel(scores, settings.lam, kernel)
    v = np.ones(len(scores), dtype=scores.dtype)
    partial = np.empty((-(-scores.shape[1] // _BLOCK), len(v)), dtype=scores.dtype)
    for _ in range(settings.passes):
        v = v / v.max()
        used = v  # the scales that u belongs to
        _column_sums(kernel, v, partial)
        sums = partial.sum(axis=0)
        if target is not None:
            v = used = target / sums
            continue
        sizes = v * sums
        small = sizes < min_size
        if not small.any():
            break
        v = np.where(small, v * np.asarray(min_size, v.dtype) / sizes, v)
    _scale(kernel, used, v)
    return kernel


@_compiled
def _kernel(scores: Floats, lam: float, kernel: Floats) -> None:
    way, rows = scores.shape
    for block in numba.prange((rows + _BLOCK - 1) // _BLOCK):
        for i in range(block * _BLOCK, min(rows, (block + 1) * _BLOCK)):
            most = scores[0, i]
            for j in range(1, way):
                most = max(most, scores[j, i])
            for j in range(way):
                kernel[j, i] = np.exp(max(scores.dtype.type(lam) * (scores[j, i] - most), LEAST_LOGIT))


@_compiled
def _column_sums(kernel: Floats, v: Floats, partial: Floats) -> None:
    """Sums over each block of rows of K_ij u_i with u = 1 / (K v), [blocks, way]."""
    way, rows = kernel.shape
    for block in numba.prange(len(partial)):
        start, stop = block * _BLOCK, min(rows, (block + 1) * _BLOCK)
        u = np.zeros(_BLOCK, dtype=kernel.dtype)
        for j in range(way):
            for i in range(start, stop):
                u[i - start] += kernel[j, i] * v[j]
        for i in range(stop - start):
            u[i] = 1 / u[i]
        for j in range(way):
            total = kernel.dtype.type(0)
            for i in range(start, stop):
                total += kernel[j, i] * u[i - start]
            partial[block, j] = total


@_compiled
def _scale(kernel: Floats, used: Floats, v: Floats) -> None:
    """Turn K into P = diag(u) K diag(v) in place, with u = 1 / (K used)."""
    way, rows = kernel.shape
    for block in numba.prange((rows + _BLOCK - 1) // _BLOCK):
        for i in range(block * _BLOCK, min(rows, (block + 1) * _BLOCK)):
            total = kernel.dtype.type(0)
            for j in range(way):
                total += kernel[j, i] * used[j]
            for j in range(way):
                kernel[j, i] *= v[j] / total


def _logistic_regression(weights: Floats, parts: tuple[tuple[Floats, Floats], ...], settings: Settings) -> Floats:
    """Take `epochs` steps of gradient descent on the unit sphere; parts are (features [n, d], assignment [way, n])."""
    rows = sum(len(x) for x, _ in parts)
    speed, kappa, kappa_speed = np.zeros_like(weights), settings.kappa, 0.0
    for _ in range(settings.epochs):
        gradient, kappa_gradient = np.zeros_like(weights), 0.0
        for x, assignment in parts:
            pull = _scores(weights, x)  # [way, n]: cosines, then the loss's pull on them
            along = np.empty(-(-pull.shape[1] // _BLOCK), dtype=weights.dtype)
            _residuals(pull, assignment, kappa, 1.0 / rows, along)
            gradient += pull @ x
            kappa_gradient += float(along.sum()) / kappa
        gradient -= (gradient * weights).sum(axis=1, keepdims=True) * weights
        speed = settings.momentum * speed + gradient
        kappa_speed = settings.momentum * kappa_speed + kappa_gradient
        weights = _unit(weights - np.asarray(settings.lr, weights.dtype) * speed)
        kappa -= settings.lr * kappa_speed
    return weights


@_compiled
def _residuals(scores: Floats, assignment: Floats, kappa: float, share: float, along: Floats) -> None:
    """Turn cosines S into D = kappa (softmax(kappa S) mass - P) / N in place; `along` gets sums of S * D by block."""
    way, rows = scores.shape
    one = scores.dtype.type
    for block in numba.prange(len(along)):
        total = one(0)
        chance = np.empty(way, dtype=scores.dtype)
        for i in range(block * _BLOCK, min(rows, (block + 1) * _BLOCK)):
            most = scores[0, i]
            for j in range(1, way):
                most = max(most, scores[j, i])
            norm, mass = one(0), one(0)
            for j in range(way):
                chance[j] = np.exp(one(kappa) * (scores[j, i] - most))
                norm += chance[j]
                mass += assignment[j, i]
            for j in range(way):
                pull = one(kappa * share) * (chance[j] * mass / norm - assignment[j, i])
                total += scores[j, i] * pull
                scores[j, i] = pull
        along[block] = total
