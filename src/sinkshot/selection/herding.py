"""Herding: Bae et al., "Generalized coverage for more robust low-budget active learning" (MaxHerding), ECCV 2024, and
Bae, Sutherland, Oliveira, "Uncertainty herding", ICLR 2025.

Rows are chosen greedily so that every row of the pool is similar to a chosen or labelled one; the similarity is a
Gaussian of the distance. MaxHerding weights all rows equally. Uncertainty herding weights each row by the uncertainty
of its class, and here also by its probability of belonging to any class, so that rows of no class are not chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.selection.lazy_greedy import lazy_greedy
from sinkshot.selection.registry import Floats, Pool, register

NEIGHBOUR = 10  # whose median distance is the length scale
_BLOCK = 2_048


@register("max-herding", reference="Bae et al. 2024")
def max_herding(pool: Pool, count: int) -> list[int]:
    """Choose rows that cover the pool."""
    return _cover(pool, count, pool.known)


@register("uherding", reference="Bae, Sutherland, Oliveira 2025")
def uherding(pool: Pool, count: int) -> list[int]:
    """Choose rows that cover the uncertain part of the pool."""
    return _cover(pool, count, pool.doubt * pool.known)


def _cover(pool: Pool, count: int, weight: Floats) -> list[int]:
    """Greedy coverage: each choice adds the most weighted similarity that is not covered yet."""
    seen = pool.seen
    rows, weights = pool.rows[seen], weight[seen]
    width = _width(rows)
    covered = np.zeros(len(seen))
    labelled = pool.rows[pool.labelled]
    for at in range(0, len(labelled), _BLOCK):
        covered = np.maximum(covered, _similarity(rows, labelled[at : at + _BLOCK], width).max(axis=1, initial=0.0))
    free = np.flatnonzero(np.isin(seen, pool.candidates))
    if not len(free) or weights.sum() <= 0:
        weights = np.ones_like(weights)

    def gains_of(some: NDArray[np.int64]) -> Floats:
        similar = _similarity(rows, rows[free[some]], width)  # [m, t]
        return np.asarray(weights @ np.clip(similar - covered[:, None], 0, None))

    def choose(one: int) -> None:
        np.maximum(covered, _similarity(rows, rows[free[one]][None], width)[:, 0], out=covered)

    chosen = [int(seen[free[one]]) for one in lazy_greedy(count, len(free), gains_of, choose)]
    rest = pool.candidates[~np.isin(pool.candidates, chosen)]
    return chosen + [int(row) for row in rest[: count - len(chosen)]]


def _width(rows: Floats) -> float:
    """Length scale: the median squared distance of rows to a near neighbour, on a sample."""
    sample = rows[:: max(1, len(rows) // 500)]
    squares = np.clip(2 - 2 * (sample @ rows[:: max(1, len(rows) // 4_000)].T), 0, None)
    rank = min(NEIGHBOUR, squares.shape[1] - 1)
    return float(max(np.median(np.partition(squares, rank, axis=1)[:, rank]), 1e-6))


def _similarity(rows: Floats, others: Floats, width: float) -> Floats:
    squares = np.clip(2 - 2 * (rows @ others.T), 0, None)
    return np.asarray(np.exp(-squares / width))
