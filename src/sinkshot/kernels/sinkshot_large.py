"""SinkShot for one large pool in memory, of 4,000 rows and more: products by features and a sparse graph.

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
from sinkshot.kernels.landmarks import landmark_queries
from sinkshot.kernels.nearest_rows import Lists, nearest_of, nearest_rows
from sinkshot.kernels.nearest_rows_faiss import has_faiss, nearest_rows_by_cells
from sinkshot.task import Task
from sinkshot.threads import ONE_BLAS_THREAD

Floats = NDArray[np.floating[Any]]

_LOG = logging.getLogger("sinkshot")
_BLOCK = 1_024  # rows


@dataclass(frozen=True)
class SparseGraph:
    """Weights between neighbours as `sinkshot.methods._graph.DenseGraph` has them, S = D^-1/2 A D^-1/2, of one pool.

    S is symmetric between landmarks; other rows read these and are read by none.
    """

    weights: sparse.csr_array  # S, [N, N]
    root_degree: Floats  # D^1/2, [1, 1, N]
    closeness: Floats  # mean cosine of rows and their neighbours, [1]

    def smooth(self, values: Floats, spread: float, times: int) -> Floats:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly."""
        own = np.ascontiguousarray(values[0].T)  # [N, way]
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
    landmarks: NDArray[np.int64] | None  # numbers of rows in which neighbours are looked for; None: all
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
        """Return cosines and numbers of every row's nearest landmarks, [N, count], or fewer where there are fewer.

        They are exact where all rows are landmarks, and beyond where faiss is not installed.
        """
        rows = sum(len(block) for block in self.blocks)
        if self.landmarks is None:
            return nearest_rows(self.blocks, min(count, rows - 1), self.pool, self.workers)
        count = min(count, len(self.landmarks) - 1)
        if has_faiss():
            return nearest_rows_by_cells(self.blocks, count, self.pool, self.landmarks)
        _LOG.info("comparing %d rows with %d; faiss (pip install 'sinkshot[faiss]') is quicker",
                  rows, len(self.landmarks))  # fmt: skip
        return nearest_of(self.blocks, self.landmarks, count, self.pool)


@contextmanager
def large_pool(task: Task) -> Iterator[LargePool]:
    """Hold threads for a batch of one task of NumPy arrays."""
    count = workers()
    parts = (task.support[0], task.query[0])
    blocks = tuple(part[at : at + _BLOCK] for part in parts for at in range(0, len(part), _BLOCK))
    with ONE_BLAS_THREAD, ThreadPoolExecutor(count) as pool:
        yield LargePool(blocks, _landmarks(task), pool, count)


def _landmarks(task: Task) -> NDArray[np.int64] | None:
    """Return the numbers of the landmarks, supports first, or None where all rows are."""
    queries = landmark_queries(task.supports, task.queries)
    return None if queries is None else np.concatenate([np.arange(task.supports), task.supports + queries])


def sparse_graph(
    nearest: Lists, sharpness: float, dtype: Any, landmarks: NDArray[np.int64] | None = None
) -> SparseGraph:
    """Link rows with their nearest: weight max(cosine, 0)^sharpness, the mean of both directions between landmarks.

    Other rows read the landmarks in their lists with full weight. Of equally near rows at the end of a list only the
    first are linked, as many as the list is long.
    """
    cosines, numbers = nearest
    rows, count = cosines.shape
    weight = np.maximum(cosines, 0).astype(dtype) ** sharpness
    graph = sparse.csr_array((weight.ravel(), numbers.ravel(), np.arange(0, rows * count + 1, count)), (rows, rows))
    if landmarks is None:
        graph = 0.5 * (graph + graph.T)
    else:
        half = np.ones(rows, dtype)
        half[landmarks] = 0.5
        back = np.where(half < 1, half, 0)  # of links that are read in both directions
        graph = sparse.diags_array(half) @ graph + (sparse.diags_array(back) @ graph).T
    degree = graph.sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1)).astype(dtype)
    scale = sparse.diags_array(1 / root)
    alone = sparse.diags_array((degree <= 0).astype(dtype))  # a row without neighbours keeps itself
    closeness = np.maximum(cosines, 0).mean(dtype=np.float64, keepdims=True)[0]
    return SparseGraph(sparse.csr_array(scale @ graph @ scale + alone), root[None, None], closeness)
