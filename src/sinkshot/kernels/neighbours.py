"""Spread evidence over the nearest neighbours in one large task, with a sparse graph of rows.

The results equal those of `sinkshot.methods.bms_open.over_neighbours`, which uses a dense graph per small episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from sinkshot.settings.constants import OPEN_SET_SPREADS
from sinkshot.task import Array

Floats = NDArray[np.floating[Any]]


class Neighbours:
    """Rows of a pool, with a search for nearest neighbours by cosine; a zero row neither has nor is a neighbour."""

    def __init__(self, rows: Floats, count: int) -> None:
        self._size, self._dtype = len(rows), rows.dtype
        self._kept = np.flatnonzero(rows.any(axis=1))
        self._count = min(count, len(self._kept) - 1)
        if self._count > 0:
            self._index = NearestNeighbors(n_neighbors=self._count, algorithm="brute").fit(_unit(rows[self._kept]))

    def graph(self) -> sparse.csr_array:
        """Weights of each row's neighbours in its mean, [N, N]: max(cosine, 0) if either row chose the other."""
        graph = sparse.csr_array((self._size, self._size), dtype=self._dtype)
        if self._count > 0:
            near, at = self._nearest(None)
            whose = np.repeat(self._kept, self._count)
            graph = sparse.csr_array((near.ravel(), (whose, at.ravel())), shape=graph.shape)
            graph = graph + graph.T
        total = graph.sum(axis=1)
        alone = (total <= 0).astype(self._dtype)
        return sparse.csr_array(sparse.diags_array(1 / (total + alone)) @ (graph + sparse.diags_array(alone)))

    def mean(self, rows: Floats, values: Floats, own: Floats) -> Floats:
        """Mean of the pool's values [N] over the neighbours of new rows [n, d]; `own` [n] if there are none."""
        if self._count < 1:
            return own
        near, at = self._nearest(_unit(rows))
        near = np.where(rows.any(axis=1, keepdims=True), near, 0)
        total = near.sum(axis=1)
        return np.where(total > 0, (near * values[at]).sum(axis=1) / np.where(total > 0, total, 1), own)

    def _nearest(self, rows: Floats | None) -> tuple[Floats, NDArray[np.intp]]:
        """Cosines of the nearest rows, negative ones set to zero, and their indexes; by default for the pool's rows."""
        distance, at = self._index.kneighbors(rows)
        return np.maximum(1 - distance**2 / 2, 0).astype(self._dtype), self._kept[at]


def over(graph: sparse.csr_array, supports: int, spread: float) -> Callable[[Array], Array]:
    """Return the function that spreads the evidence of queries [1, 1, q] over the graph; supports have evidence one."""

    def spreading(evidence: Array) -> Array:
        own = mixed = np.concatenate([np.ones(supports, dtype=graph.dtype), evidence[0, 0]])
        for _ in range(OPEN_SET_SPREADS if spread else 0):
            mixed = (1.0 - spread) * own + spread * (graph @ mixed)
        return mixed[None, None]

    return spreading


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1))
