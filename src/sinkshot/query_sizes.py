"""Numbers of queries per class in unbalanced episodes: from a Dirichlet distribution, or a long tail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.counter_random import mix, shuffled, streams, word
from sinkshot.errors import InputError

ALPHA = 2.0  # the field's imbalanced setting
RATIO = 10.0  # of the largest to the smallest class in a long tail

_REDRAWS = 1000  # attempts to draw a Dirichlet episode whose classes are large enough
_PRODUCTS_UP_TO = 16  # largest integer alpha for which gamma variables are made from products of uniform ones
_OF_SIZES, _OF_ORDER = (mix(np.array([1 << bit], dtype=np.uint64)) for bit in (62, 61))  # other streams than rows

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Words = NDArray[np.uint64]


def dirichlet(room: Int, query: int, seed: int, first: int, alpha: float = ALPHA) -> Int:
    """Draw the sizes [R, way] of episodes: Dirichlet proportions of way * query queries, rounded to that sum.

    Parameters
    ----------
    room : array [R, way]
        Rows available for queries in each class. An episode that needs more is drawn again.
    query : int
        Mean number of queries per class.
    seed, first : int
        The seed, and the number of the first episode.
    alpha : float
        Parameter of the Dirichlet, above 0; the smaller, the less equal the sizes.
    """
    episodes, way = room.shape
    total = way * query
    keys = streams(seed, first, episodes) ^ _OF_SIZES
    counts = np.empty((episodes, way), dtype=np.int64)
    todo = np.arange(episodes)
    for attempt in range(_REDRAWS):
        counts[todo] = sizes = rounded(total * _proportions(keys[todo], way, alpha, attempt), total)
        todo = todo[(sizes > room[todo]).any(axis=1)]
        if not len(todo):
            return counts
    raise InputError(
        f"no Dirichlet episode of {total} queries fits classes with {int(room.min())} rows left for queries after "
        f"{_REDRAWS} draws. Lower query or shot, raise alpha, or leave the small classes out."
    )


def long_tail(way: int, query: int, ratio: float = RATIO) -> Int:
    """Return the sizes of a long tail [way], largest first: the j-th is proportional to ratio^(-j / (way - 1)).

    They sum to way * query, and each is at least one.

    >>> long_tail(5, 15).tolist()
    [35, 20, 11, 6, 3]
    """
    weight = float(ratio) ** (-np.arange(way) / (way - 1))
    sizes: Int = rounded((way * query * weight / weight.sum())[None], way * query)[0]
    while sizes.min() < 1:
        sizes[np.flatnonzero(sizes == sizes.max())[-1]] -= 1
        sizes[sizes.argmin()] += 1
    return sizes


def long_tails(way: int, query: int, seed: int, first: int, episodes: int, ratio: float = RATIO) -> Int:
    """Return the sizes of a long tail, in random order for each episode, [R, way]."""
    order = shuffled(np.full(episodes, way), way, streams(seed, first, episodes) ^ _OF_ORDER)  # [way, R]
    return np.asarray(long_tail(way, query, ratio)[order.T])


def rounded(shares: Float, total: int) -> Int:
    """Round shares [R, way] with row sums `total` to integers with the same sums; the largest remainders round up."""
    whole = np.floor(shares).astype(np.int64)
    rank = np.argsort(np.argsort(whole - shares, axis=1, kind="stable"), axis=1)  # 0: the largest remainder
    return np.asarray(whole + (rank < (total - whole.sum(axis=1, keepdims=True))))


def _proportions(keys: Words, way: int, alpha: float, attempt: int) -> Float:
    """Return Dirichlet proportions [R, way]: gamma variables divided by their sum.

    For integer alpha, a gamma variable is minus the logarithm of a product of alpha uniform ones. For other alpha, it
    is a gamma variable of alpha + 1, drawn by inverting its distribution function, times a uniform one to the power
    1 / alpha; this is computed in logarithms, since a small alpha would leave the range of a float.
    """
    if float(alpha).is_integer() and alpha <= _PRODUCTS_UP_TO:
        gamma = np.zeros((len(keys), way))
        factors = way * int(alpha)
        for factor in range(factors):
            gamma[:, factor % way] -= np.log(_uniform(keys, attempt * factors + factor))
    else:
        from scipy.special import gammaincinv  # here, since its import takes longer than that of sinkshot

        start = attempt * 2 * way
        above, below = (np.stack([_uniform(keys, start + p * way + c) for c in range(way)], axis=1) for p in range(2))
        logarithm = np.log(gammaincinv(alpha + 1, above)) + np.log(below) / max(alpha, 1e-300)
        gamma = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))


def _uniform(keys: Words, counter: int) -> Float:
    """Uniform numbers in (0, 1) from word `counter` of each stream."""
    return np.asarray(((word(keys, counter) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)
