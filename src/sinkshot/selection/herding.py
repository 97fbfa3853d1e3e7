"""Herding: Bae et al., "Generalized coverage for more robust low-budget active learning" (MaxHerding), ECCV 2024, and
Bae, Sutherland, Oliveira, "Uncertainty herding", ICLR 2025.

Rows are chosen greedily so that every row of the pool is similar to a chosen or labelled one; the similarity is a
Gaussian of the distance. MaxHerding weights all rows equally. Uncertainty herding weights each row by the uncertainty
of its class, and here also by its probability of belonging to any class, so that rows of no class are not chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.selection.registry import Floats, Pool, register

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
    free = np.flatnonzero(~pool.labelled[seen])
    chosen: list[int] = []
    gains = np.full(len(free), np.inf)  # upper bounds: coverage is submodular, so gains only fall
    if not len(free) or weights.sum() <= 0:
        weights = np.ones_like(weights)
    for _ in range(min(count, len(free))):
        best = _best(gains, free, rows, weights, covered, width)
        chosen.append(int(seen[free[best]]))
        covered = np.maximum(covered, _similarity(rows, rows[free[best]][None], width)[:, 0])
        gains[best] = -np.inf
    rest = [int(row) for row in pool.candidates if int(row) not in set(chosen)]
    return chosen + rest[: count - len(chosen)]


def _best(gains: Floats, free: NDArray[np.int64], rows: Floats, weights: Floats, covered: Floats, width: float) -> int:
    """The candidate with the largest gain, by lazy evaluation in blocks of the largest bounds."""
    while True:
        order = np.argsort(-gains, kind="stable")[:256]
        top = order[np.isfinite(gains[order]) | (gains[order] == np.inf)]
        similar = _similarity(rows, rows[free[top]], width)  # [m, t]
        gains[top] = weights @ np.clip(similar - covered[:, None], 0, None)
        best = int(top[np.argmax(gains[top])])
        outside = np.delete(gains, top)
        if not len(outside) or gains[best] >= outside.max():
            return best


def _width(rows: Floats) -> float:
    """Length scale: the median distance of rows to their tenth nearest neighbour, on a sample."""
    sample = rows[:: max(1, len(rows) // 500)]
    squares = np.clip(2 - 2 * (sample @ rows[:: max(1, len(rows) // 4_000)].T), 0, None)
    near = np.partition(squares, min(10, squares.shape[1] - 1), axis=1)[:, min(10, squares.shape[1] - 1)]
    return float(max(np.median(near), 1e-6))


def _similarity(rows: Floats, others: Floats, width: float) -> Floats:
    squares = np.clip(2 - 2 * (rows @ others.T), 0, None)
    return np.asarray(np.exp(-squares / width))
