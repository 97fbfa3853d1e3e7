"""Class proportions among the queries that a method may use: given, equal, or estimated.

They are set by the hyper-parameter `prior`. An evaluation can also set it to "oracle", the true proportions of each
episode; comparing it with "estimated" and "balanced" shows what a method gains from knowing the class sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from sinkshot.arrays import to_numpy
from sinkshot.errors import InputError
from sinkshot.methods.algebra import Rows, rows_of, softmax
from sinkshot.preprocess import parse, run
from sinkshot.task import Array, GramTask, Task

Shares = NDArray[np.float64]
Prior = Literal["balanced", "estimated", "oracle"] | Sequence[float] | Shares | None
_LAMBDA, _STEPS, _LEAST = 8.5, 20, 1e-6  # of the estimate: BMS's own temperature and number of steps


def proportions(prior: Prior, way: int) -> Shares | None:
    """Return a prior as class proportions that sum to one, [way] or [R, way]; None stays None."""
    if prior is None:
        return None
    known = "prior must be 'balanced', 'estimated' or one proportion per class"
    if isinstance(prior, str):
        if prior == "oracle":
            raise InputError("prior='oracle' is for evaluations, which know the labels of the queries.")
        if prior != "balanced":
            raise InputError(f"{known}; {prior!r} was given.")
        return np.full(way, 1.0 / way)
    try:
        shares = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{known}; {prior!r} was given.") from None
    if shares.shape[-1:] != (way,) or (shares < 0).any() or not np.allclose(shares.sum(-1), 1.0, atol=1e-3):
        raise InputError(f"prior must be {way} proportions that sum to one; {prior!r} was given.")
    return np.asarray(shares / shares.sum(-1, keepdims=True))


def settled(prior: Prior, task: Task | GramTask, centre: bool = False) -> Shares | None:
    """Return the proportions that a prior gives for a task, [way] or [R, way]; None stays None.

    With `centre`, they are estimated from the task after MnE: for a method whose chain does not centre.
    """
    if isinstance(prior, str) and prior == "estimated":
        return estimate(centred(task) if centre and isinstance(task, Task) else task)
    return proportions(prior, task.way)


def column_targets(prior: Prior, task: Task | GramTask, like: Array, centre: bool = False) -> Array:
    """Number of queries that each class gets, [R or 1, way, 1] as `like`, for a method that needs class sizes."""
    shares = settled(prior, task, centre)
    if shares is None:
        raise InputError("this method needs class sizes: prior must be 'balanced', 'estimated' or proportions.")
    xp = array_namespace(like)
    shares = shares if shares.ndim > 1 else shares[None]
    return task.queries * xp.asarray(shares[..., None], dtype=like.dtype, device=device(like))


def estimate(task: Task | GramTask) -> Shares:
    """Estimate the class shares among the queries, [R, way], by expectation maximisation.

    Rows should have unit length and a mean near zero (`centred`). Each class is a direction, initially the mean of its
    supports. A query belongs to each class in proportion to the class's share times exp(8.5 cosine), the temperature of
    BMS. Shares are then means of these probabilities, and directions are means of the rows weighted by them; this is
    repeated 20 times. On balanced queries the estimate is slightly off, so a balanced prior remains better; on
    Dirichlet queries it is much closer to the truth than a balanced prior.
    """
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    scores = _cosines(rows.means(), rows)
    share = xp.full_like(rows.member[..., :1], 1.0 / task.way)  # [R, way, 1]
    for _ in range(_STEPS):
        belongs = softmax(_LAMBDA * scores + xp.log(xp.clip(share, min=_LEAST)), axis=-2)  # [R, way, q]
        share = xp.mean(belongs, axis=-1, keepdims=True)
        scores = _cosines(rows.with_queries(rows.member, belongs), rows)
    found = to_numpy(share[..., 0]).astype(np.float64)
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def shrunken_shares(
    belongs: Array,
    known: Array,
    noise: float,
    bias: float,
    doubt: float = 1.5,
    least: float = 0.005,
    unsure_noise: float = 0.0,
    unsure_from: float = 0.55,
) -> Array:
    """Count class sizes among queries with probabilities [R, way, q] and shrink them to equal ones: shares [R, way, 1].

    d is the difference between counted and equal shares. It is kept as far as its square exceeds the noise: the
    variance of counting times `noise`; plus `bias`, which does not fall with the number of rows; plus `unsure_noise`
    times what u = 1 - mean of sum p^2 exceeds `unsure_from` by, since classes that rows are torn between attract too
    many or too few. As in James-Stein estimation, pi = 1/way + d / (1 + r^doubt), where r is the noise over the square
    of d; at least `least` over the way. Queries are weighted by `known` [R, 1, q].
    """
    xp = array_namespace(belongs)
    way = belongs.shape[-2]
    rows = xp.sum(known, axis=-1, keepdims=True)  # [R, 1, 1]
    rows = xp.where(rows > 1.0, rows, xp.ones_like(rows))
    d = xp.sum(known * belongs, axis=-1, keepdims=True) / rows - 1.0 / way  # [R, way, 1]
    square = xp.sum(d * d, axis=-2, keepdims=True)  # [R, 1, 1]
    unsure = xp.sum(known * belongs * (1.0 - belongs), axis=(-2, -1), keepdims=True) / rows
    estimated = noise * unsure / rows + bias + unsure_noise * xp.clip(unsure - unsure_from, min=0.0)
    some = xp.where(square > 1e-20, square, xp.ones_like(square))
    belief = 1.0 / (1.0 + (estimated / some) ** doubt)
    belief = xp.where(square > 1e-20, belief, xp.zeros_like(belief))
    return xp.clip(1.0 / way + belief * d, min=least / way)


def centred(task: Task) -> Task:
    """Subtract the mean of a task from its rows and scale them to unit length."""
    xp = array_namespace(task.support, task.query)
    x = run(xp.concat([task.support, task.query], axis=-2), parse("MnE")).x
    return replace(task, support=x[..., : task.supports, :], query=x[..., task.supports :, :])


def _cosines(a: Array, rows: Rows) -> Array:
    """Cosines [R, way, q] of the queries to the points with coefficients `a`, if rows have unit length."""
    xp = array_namespace(a)
    scores = rows.product(a)
    length = xp.sqrt(xp.clip(xp.sum(a * scores, axis=-1, keepdims=True), min=0.0))
    return scores[..., rows.supports :] / xp.where(length > 0, length, xp.ones_like(length))
