"""How many queries each class of an episode gets where sizes are unequal: from a Dirichlet, or along a long tail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sinkshot.errors import InputError
from sinkshot.random_words import mix, shuffled, streams, word

ALPHA = 2.0  # the field's imbalanced setting
RATIO = 10.0  # of the largest to the smallest class of a long tail

_REDRAWS = 1000  # tries for a Dirichlet episode whose classes are large enough
_PRODUCTS_UP_TO = 16  # whole alphas whose gamma variables are products of uniform ones
_OF_SIZES, _OF_ORDER = (mix(np.array([1 << bit], dtype=np.uint64)) for bit in (62, 61))  # apart from those of rows

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Words = NDArray[np.uint64]


def dirichlet(room: Int, query: int, seed: int, first: int, alpha: float = ALPHA) -> Int:
    """Draw the sizes [R, way] of episodes: Dirichlet proportions of way * query queries, rounded to that sum.

    Parameters
    ----------
    room : array [R, way]
        Rows that each class has for queries. An episode that asks a class for more is drawn again.
    query : int
        Queries of a class on average.
    seed, first : int
        Which stream of episodes, and the number of the first.
    alpha : float
        Of the Dirichlet, above 0; the smaller, the less equal.
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
    """Return the sizes of a long tail with its classes in a random order for each episode, [R, way]."""
    order = shuffled(np.full(episodes, way), way, streams(seed, first, episodes) ^ _OF_ORDER)  # [way, R]
    return np.asarray(long_tail(way, query, ratio)[order.T])


def rounded(shares: Float, total: int) -> Int:
    """Round shares [R, way], each row of sum `total`, to whole numbers of that sum, largest remainders upwards."""
    whole = np.floor(shares).astype(np.int64)
    rank = np.argsort(np.argsort(whole - shares, axis=1, kind="stable"), axis=1)  # 0: the largest remainder
    return np.asarray(whole + (rank < (total - whole.sum(axis=1, keepdims=True))))


def _proportions(keys: Words, way: int, alpha: float, attempt: int) -> Float:
    """Return Dirichlet proportions [R, way]: gamma variables divided by their sum.

    A gamma variable of whole alpha is minus the logarithm of a product of alpha uniform ones. For any other alpha it is
    one of alpha + 1, found by inverting its distribution function, times a uniform one to the power 1 / alpha. That is
    done in logarithms, since a small alpha would leave the range of a float.
    """
    if float(alpha).is_integer() and alpha <= _PRODUCTS_UP_TO:
        gamma = np.zeros((len(keys), way))
        factors = way * int(alpha)
        for factor in range(factors):
            gamma[:, factor % way] -= np.log(_uniform(keys, attempt * factors + factor))
    else:
        start = attempt * 2 * way
        above, below = (np.stack([_uniform(keys, start + p * way + c) for c in range(way)], axis=1) for p in range(2))
        logarithm = np.log(gammaincinv(alpha + 1, above)) + np.log(below) / max(alpha, 1e-300)
        gamma = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))


def _uniform(keys: Words, counter: int) -> Float:
    """Uniform numbers in (0, 1) from word `counter` of each stream."""
    return np.asarray(((word(keys, counter) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)
