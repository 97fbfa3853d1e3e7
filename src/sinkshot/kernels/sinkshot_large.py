"""SinkShot for one large pool, a practitioner's 5,000 to 100,000 rows: products by features and a sparse graph.

The method sees a pool through inner products and averages over neighbours. Here a product goes through class weights
[way, d] and blocks of rows, which threads share while BLAS has one thread in each, and the graph is a sparse matrix. No
N x N matrix and no copy of the features is ever made. Sums are taken over the same blocks in the same order, so answers
do not depend on the number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.kernels.jit import workers
from sinkshot.kernels.nearest_rows import Lists, nearest_rows
from sinkshot.kernels.nearest_rows_faiss import has_faiss, nearest_rows_by_cells
from sinkshot.task import Task
from sinkshot.threads import ONE_BLAS_THREAD

Floats = NDArray[np.floating[Any]]

_LOG = logging.getLogger("sinkshot")
_BLOCK = 1_024  # rows
EXACT = 100_000  # rows up to which all pairs are compared, and beyond without faiss


@dataclass(frozen=True)
class SparseGraph:
    """Weights between neighbours as `sinkshot.methods._graph.DenseGraph` has them, S = D^-1/2 A D^-1/2, of one pool."""

    weights: sparse.csr_array  # S, [N, N]
    root_degree: Floats  # D^1/2, [1, 1, N]
    closeness: Floats  # mean cosine of rows and their neighbours, [1]

    def smooth(self, values: Floats, spread: float, times: int) -> Floats:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly."""
        own = np.ascontiguousarray(values[0].T)  # [N, way]; S is symmetric
        mixed = own
        for _ in range(times):
            mixed = (1.0 - spread) * own + spread * (self.weights @ mixed)
        return np.ascontiguousarray(mixed.T)[None]

    def average(self, values: Floats, spread: float, times: int) -> Floats:
        """Mix values [1, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        return np.asarray(self.smooth(values * self.root_degree, spread, times) / self.root_degree)


@dataclass(frozen=True)
class LargePool:
    """The rows of one task, supports first, in blocks that threads share."""

    blocks: tuple[Floats, ...]  # [n_i, d] each
    pool: Executor
    workers: int

    def product(self, a: Floats) -> Floats:
        """Return a X X^T, [1, way, N], of coefficients [1, way, N]."""
        starts = np.cumsum([0, *(len(block) for block in self.blocks)])
        scores = np.empty_like(a)

        def weighted(start: int, block: Floats) -> Floats:
            return np.asarray(a[0, :, start : start + len(block)] @ block)

        def scored(start: int, block: Floats) -> None:
            scores[0, :, start : start + len(block)] = (block @ weights.T).T

        weights: Floats = np.sum(list(self.pool.map(weighted, starts, self.blocks)), axis=0)  # [way, d]
        list(self.pool.map(scored, starts, self.blocks))
        return scores

    def squares(self) -> Floats:
        """Return the squared lengths of the rows, [1, N]."""
        return np.concatenate([np.einsum("nd,nd->n", block, block) for block in self.blocks])[None]

    def nearest(self, count: int) -> Lists:
        """Return cosines and numbers of every row's nearest others, [N, count], or fewer where there are fewer rows.

        They are exact up to `EXACT` rows, and beyond where faiss is not installed.
        """
        rows = sum(len(block) for block in self.blocks)
        count = min(count, rows - 1)
        if rows > EXACT and has_faiss():
            return nearest_rows_by_cells(self.blocks, count, self.pool)
        if rows > EXACT:
            _LOG.info("comparing all pairs of %d rows; with faiss (pip install 'sinkshot[faiss]') it is quicker", rows)
        return nearest_rows(self.blocks, count, self.pool, self.workers)


@contextmanager
def large_pool(task: Task) -> Iterator[LargePool]:
    """Hold threads for a batch of one task of NumPy arrays."""
    count = workers()
    parts = (task.support[0], task.query[0])
    blocks = tuple(part[at : at + _BLOCK] for part in parts for at in range(0, len(part), _BLOCK))
    with ONE_BLAS_THREAD, ThreadPoolExecutor(count) as pool:
        yield LargePool(blocks, pool, count)


def sparse_graph(nearest: Lists, sharpness: float, dtype: Any) -> SparseGraph:
    """Link rows with their nearest: weight max(cosine, 0)^sharpness, the mean of both directions.

    Of equally near rows at the end of a list only the first are linked, as many as the list is long.
    """
    cosines, numbers = nearest
    rows, count = cosines.shape
    weight = np.maximum(cosines, 0).astype(dtype) ** sharpness
    graph = sparse.csr_array((weight.ravel(), numbers.ravel(), np.arange(0, rows * count + 1, count)), (rows, rows))
    graph = 0.5 * (graph + graph.T)
    degree = graph.sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1)).astype(dtype)
    scale = sparse.diags_array(1 / root)
    alone = sparse.diags_array((degree <= 0).astype(dtype))  # a row without neighbours keeps itself
    closeness = np.maximum(cosines, 0).mean(dtype=np.float64, keepdims=True)[0]
    return SparseGraph(sparse.csr_array(scale @ graph @ scale + alone), root[None, None], closeness)
