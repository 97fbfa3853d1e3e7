"""What a method may know of the class sizes among the queries: shares that are given, equal, or estimated.

`prior` is the hyper-parameter for it. An evaluation can also set it to "oracle", each episode's true shares; the
distance between that, "estimated" and "balanced" tells what a method gains from knowing, and loses from assuming.
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
    """Return the proportions that a prior means for a task, [way] or [R, way]; None stays None.

    With `centre`, what is estimated from is the task behind MnE: for a method whose chain does not centre.
    """
    if isinstance(prior, str) and prior == "estimated":
        return estimate(centred(task) if centre and isinstance(task, Task) else task)
    return proportions(prior, task.way)


def column_targets(prior: Prior, task: Task | GramTask, like: Array, centre: bool = False) -> Array:
    """Queries that each class is to get, [R or 1, way, 1] as `like`, for a method that cannot do without knowing."""
    shares = settled(prior, task, centre)
    if shares is None:
        raise InputError("this method takes class sizes for granted: prior must be 'balanced', 'estimated' or shares.")
    xp = array_namespace(like)
    shares = shares if shares.ndim > 1 else shares[None]
    return task.queries * xp.asarray(shares[..., None], dtype=like.dtype, device=device(like))


def estimate(task: Task | GramTask) -> Shares:
    """Estimate the class shares among the queries, [R, way], by expectation maximisation.

    Rows should have unit length and a mean near zero (`centred`). The classes are directions, started at the means of
    their supports; a query belongs to each in proportion to the class's share times exp(8.5 cosine), the temperature of
    BMS. Shares are means of what queries say, and directions means of rows so weighted, in turn, 20 times. On balanced
    queries this is off by a little, so knowing the balance stays worth something; on Dirichlet ones it is far nearer
    to the truth than balance is.
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
    belongs: Array, known: Array, noise: float, bias: float, doubt: float = 1.5, least: float = 0.005
) -> Array:
    """Count class sizes among queries with probabilities [R, way, q], and doubt the counts: shares [R, way, 1].

    d, the counted shares less equal ones, is believed as far as its square exceeds what chance makes of it: the
    variance of counting times `noise`, and `bias`, which stays however many rows are counted. As James and Stein
    shrink means, pi = 1/way + d / (1 + r^doubt), where r is that noise over the square of d; at least `least` over
    the way. Queries count as far as they are `known` [R, 1, q].
    """
    xp = array_namespace(belongs)
    way = belongs.shape[-2]
    rows = xp.sum(known, axis=-1, keepdims=True)  # [R, 1, 1]
    rows = xp.where(rows > 1.0, rows, xp.ones_like(rows))
    d = xp.sum(known * belongs, axis=-1, keepdims=True) / rows - 1.0 / way  # [R, way, 1]
    square = xp.sum(d * d, axis=-2, keepdims=True)  # [R, 1, 1]
    counting = xp.sum(known * belongs * (1.0 - belongs), axis=(-2, -1), keepdims=True) / (rows * rows)
    some = xp.where(square > 1e-20, square, xp.ones_like(square))
    belief = 1.0 / (1.0 + ((noise * counting + bias) / some) ** doubt)
    belief = xp.where(square > 1e-20, belief, xp.zeros_like(belief))
    return xp.clip(1.0 / way + belief * d, min=least / way)


def centred(task: Task) -> Task:
    """Subtract the mean of a task from its rows and take unit length."""
    xp = array_namespace(task.support, task.query)
    x = run(xp.concat([task.support, task.query], axis=-2), parse("MnE")).x
    return replace(task, support=x[..., : task.supports, :], query=x[..., task.supports :, :])


def _cosines(a: Array, rows: Rows) -> Array:
    """Cosines [R, way, q] of the queries to the points with coefficients `a`, if rows have unit length."""
    xp = array_namespace(a)
    scores = rows.product(a)
    length = xp.sqrt(xp.clip(xp.sum(a * scores, axis=-1, keepdims=True), min=0.0))
    return scores[..., rows.supports :] / xp.where(length > 0, length, xp.ones_like(length))
