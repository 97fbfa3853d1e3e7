"""Evidence spread over the nearest neighbours of one large task, whose graph of rows is sparse.

The same numbers as `sinkshot.methods.bms_open.over_neighbours`, which holds a dense graph of each small episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from sinkshot.methods.bms_open import SPREADS, Spreading
from sinkshot.task import Array

Floats = NDArray[np.floating[Any]]


class Neighbours:
    """Rows of a pool and a way to find those nearest to a row by cosine."""

    def __init__(self, rows: Floats, count: int) -> None:
        self.count = min(count, len(rows) - 1)
        self._index = NearestNeighbors(n_neighbors=self.count + 1, algorithm="brute").fit(_unit(rows))

    def graph(self) -> sparse.csr_array:
        """Share of each row's neighbours in its mean, [N, N]: by cosine, where positive, and either has the other."""
        size = self._index.n_samples_fit_
        near, at = self._nearest(None, self.count)
        graph = sparse.csr_array(
            (near.ravel(), at.ravel(), np.arange(0, near.size + 1, self.count)), shape=(size, size)
        )
        graph = graph + graph.T
        total = graph.sum(axis=1)
        alone = (total <= 0).astype(graph.dtype)
        return sparse.csr_array(sparse.diags_array(1 / (total + alone)) @ (graph + sparse.diags_array(alone)))

    def mean(self, rows: Floats, values: Floats) -> Floats:
        """Mean of the pool's values [N] over the neighbours of new rows [n, d]; zero where there is none."""
        near, at = self._nearest(_unit(rows), self.count)
        total = near.sum(axis=1)
        return np.asarray((near * values[at]).sum(axis=1) / np.where(total > 0, total, 1))

    def _nearest(self, rows: Floats | None, count: int) -> tuple[Floats, NDArray[np.intp]]:
        """Cosines of the nearest, negative ones cut to zero, and their places; without rows, the pool's own."""
        distance, at = self._index.kneighbors(rows, n_neighbors=count)
        cosine = 1 - distance**2 / 2
        return np.maximum(cosine, 0).astype(self._index._fit_X.dtype), at


def over(graph: sparse.csr_array, supports: int, spread: float) -> Spreading:
    """Return what mixes the evidence of queries [1, 1, q] with that of their neighbours; a support's own is one."""

    def spreading(evidence: Array) -> Array:
        own = mixed = np.concatenate([np.ones(supports, dtype=graph.dtype), evidence[0, 0]])
        for _ in range(SPREADS if spread else 0):
            mixed = (1.0 - spread) * own + spread * (graph @ mixed)
        return mixed[None, None]

    return spreading


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1))
