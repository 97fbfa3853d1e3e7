"""SinkShot for one large pool in memory, of 4,000 rows and more: products by features and a sparse graph.

The method sees a pool through inner products and averages over neighbours. Here a product goes through class weights
[way, d] and blocks of rows, which threads share while BLAS has one thread in each, and the graph is a sparse matrix. No
N x N matrix and no copy of the features is ever made. Sums are taken over the same blocks in the same order, so answers
do not depend on the number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.kernels.cells import SMALL_CELLS, cells_wanted, find_cells, sample_of
from sinkshot.kernels.jit import workers
from sinkshot.kernels.landmarks import (
    MOST_CHOOSING,
    LandmarkLinks,
    landmark_places,
    landmarks_wanted,
    most_landmarks,
    one_way,
    random_signs,
    share_returned,
    without_return,
)
from sinkshot.kernels.nearest_rows import Lists, nearest_rows, unit_rows
from sinkshot.kernels.nearest_rows_faiss import has_faiss, nearest_by_cells
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
    landmarks: NDArray[np.int64] | None = None  # numbers of the landmarks; None: all rows are
    _returned: dict[tuple[float, int], Floats] = field(default_factory=dict)

    def smooth(self, values: Floats, spread: float, times: int) -> Floats:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly.

        Beside other rows, landmarks do without what comes back of their own values.
        """
        own = np.ascontiguousarray(values[0].T)  # [N, way]
        mixed = _mixed(self.weights, own, spread, times)
        if self.landmarks is not None:
            mixed = without_return(mixed, own, self._share_returned(self.landmarks, spread, times), spread)
        return np.ascontiguousarray(mixed.T)[None]

    def average(self, values: Floats, spread: float, times: int) -> Floats:
        """Mix values [1, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        own = (values * self.root_degree)[0].T
        return np.asarray(_mixed(self.weights, own, spread, times).T[None] / self.root_degree)

    def _share_returned(self, landmarks: NDArray[np.int64], spread: float, times: int) -> Floats:
        """Return which share of its own value comes back to each landmark, [N, 1]; no other row is read."""
        if (spread, times) not in self._returned:
            signs = random_signs(landmarks).astype(self.weights.dtype)
            mixed = _mixed(self.weights[landmarks][:, landmarks], signs, spread, times)
            found = np.zeros((self.weights.shape[0], 1), self.weights.dtype)
            found[landmarks] = share_returned(mixed, signs, spread)
            self._returned[spread, times] = found
        return self._returned[spread, times]


def _mixed(weights: sparse.csr_array, own: Floats, spread: float, times: int) -> Floats:
    """Mix values [N, way] with those of neighbours, repeatedly."""
    mixed = own
    for _ in range(times):
        mixed = (1.0 - spread) * own + spread * (weights @ mixed)
    return mixed


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

    def graph(self, count: int, sharpness: float, nearest: Lists | None = None) -> SparseGraph:
        """Link rows with their nearest; `nearest` has cosines and numbers of every row's, [N, k], where known."""
        dtype = self.blocks[0].dtype
        if nearest is not None or self.landmarks is None:
            known = self.nearest(count) if nearest is None else (nearest[0][:, :count], nearest[1][:, :count])
            return sparse_graph(known, sharpness, dtype)
        rows = np.ones(sum(len(block) for block in self.blocks), bool)
        rows[self.landmarks] = False
        marks, others = SomeRows(self.blocks, self.landmarks), SomeRows(self.blocks, np.flatnonzero(rows))
        count = min(count, len(self.landmarks) - 1)
        found = nearest_rows(marks.copied(), count, self.pool, self.workers)
        weights, closeness = self._one_way(marks, others, found[0][:, -1], count, sharpness)
        inner = sparse_graph(found, sharpness, dtype)
        closeness += float(np.maximum(found[0], 0).sum(dtype=np.float64))
        return _with_others(inner, weights.astype(dtype), self.landmarks, closeness / (count * len(rows)))

    def nearest(self, count: int) -> Lists:
        """Return cosines and numbers of every row's nearest others, [N, count], or fewer where there are fewer rows."""
        rows = sum(len(block) for block in self.blocks)
        return nearest_rows(self.blocks, min(count, rows - 1), self.pool, self.workers)

    def _one_way(
        self, marks: SomeRows, others: SomeRows, least: Floats, count: int, sharpness: float
    ) -> tuple[sparse.csr_array, float]:
        """Return the weights with which other rows read landmarks, and the sum of their cosines.

        With faiss, nearly all of the nearest are found, and those that would choose a row are looked for among them.
        """
        landmarks = len(least)
        if has_faiss():
            cosines, numbers = nearest_by_cells(marks, others, max(count, MOST_CHOOSING), self.pool)
            choosing = np.where((numbers >= 0) & (cosines > least[numbers]), cosines, 0)
            near = np.where(numbers >= 0, cosines, 0)[:, :count]
            weights = one_way((near, numbers[:, :count]), (choosing, numbers), sharpness, landmarks)
            return weights, float(np.maximum(near, 0).sum(dtype=np.float64))
        _LOG.info("comparing each row with %d others; faiss (pip install 'sinkshot[faiss]') is quicker", landmarks)
        unit = [unit_rows(block) for block in marks]
        starts = np.cumsum([0, *(len(block) for block in marks)])

        def compared(number: int) -> tuple[sparse.csr_array, float]:
            block = others[number]
            links, own, every = LandmarkLinks(len(block), count), unit_rows(block), np.arange(len(block))
            for some, (first, last) in zip(unit, pairwise(starts), strict=True):
                links.compare(own @ some.T, every, int(first), least[first:last])
            return links.weights(sharpness, landmarks), links.closeness

        found = list(self.pool.map(compared, range(len(others))))
        return sparse.vstack([weights for weights, _ in found]).tocsr(), sum(closeness for _, closeness in found)


class SomeRows(Sequence[Floats]):
    """Some rows of a pool, in blocks that are taken from its own as they are asked for: a copy would be as large.

    Parameters
    ----------
    blocks : sequence of arrays of shape (n_i, d)
    numbers : array of shape (n,)
        Rising.
    """

    def __init__(self, blocks: Sequence[Floats], numbers: NDArray[np.int64]) -> None:
        starts = np.cumsum([0, *(len(block) for block in blocks)])
        within = (numbers[slice(*np.searchsorted(numbers, pair))] - pair[0] for pair in pairwise(starts))
        self._taken = [(block, own) for block, own in zip(blocks, within, strict=True) if len(own)]

    def __len__(self) -> int:
        return len(self._taken)

    def __getitem__(self, number: Any) -> Any:
        block, own = self._taken[number]
        return block[own]

    def copied(self) -> list[Floats]:
        """Return all blocks, in one piece of memory, which is freed as a whole."""
        ends = np.cumsum([0, *(len(own) for _, own in self._taken)])
        block = self._taken[0][0]
        whole = np.empty((ends[-1], block.shape[1]), block.dtype)
        pieces = [whole[begin:end] for begin, end in pairwise(ends)]
        for number, piece in enumerate(pieces):
            piece[:] = self[number]
        return pieces


@contextmanager
def large_pool(task: Task) -> Iterator[LargePool]:
    """Hold threads for a batch of one task of NumPy arrays."""
    count = workers()
    parts = (task.support[0], task.query[0])
    blocks = tuple(part[at : at + _BLOCK] for part in parts for at in range(0, len(part), _BLOCK))
    with ONE_BLAS_THREAD, ThreadPoolExecutor(count) as pool:
        yield LargePool(blocks, _landmarks(task, pool), pool, count)


def _landmarks(task: Task, pool: Executor) -> NDArray[np.int64] | None:
    """Return the numbers of the landmarks, supports first, or None where all rows are."""
    wanted = landmarks_wanted(task.supports, task.queries, most_landmarks(task.way))
    if wanted is None:
        return None
    queries = np.sort(landmark_queries(task.query[0], wanted, pool))
    if len(queries) == task.queries:  # labelled rows are many, or the pool is hardly larger than the sample
        return None
    return np.concatenate([np.arange(task.supports), task.supports + queries])


def landmark_queries(rows: Floats, wanted: int, pool: Executor) -> NDArray[np.int64]:
    """Return the numbers of the queries [n, d] that are landmarks: drawn evenly from cells of similar rows."""
    sample = rows[sample_of(len(rows), wanted)].astype(np.float32, copy=False)
    cells = find_cells(sample, cells_wanted(wanted), SMALL_CELLS)
    blocks = (rows[at : at + _BLOCK] for at in range(0, len(rows), _BLOCK))
    small = np.concatenate(list(pool.map(cells.small_of, blocks)))
    places = landmark_places(np.bincount(small, minlength=len(cells.small)), wanted)
    return np.asarray(np.argsort(small, kind="stable")[places])


def sparse_graph(nearest: Lists, sharpness: float, dtype: Any) -> SparseGraph:
    """Link rows with their nearest: weight max(cosine, 0)^sharpness, the mean of both directions.

    Of equally near rows at the end of a list only the first are linked, as many as the list is long.
    """
    cosines, numbers = nearest
    rows, count = cosines.shape
    weight = np.maximum(cosines, 0).astype(dtype) ** sharpness
    graph = sparse.csr_array((weight.ravel(), numbers.ravel(), np.arange(0, rows * count + 1, count)), (rows, rows))
    graph = 0.5 * (graph + graph.T)
    root, alone = _roots(graph, dtype)
    scale = sparse.diags_array(1 / root)
    closeness = np.maximum(cosines, 0).mean(dtype=np.float64, keepdims=True)[0]
    return SparseGraph(sparse.csr_array(scale @ graph @ scale + sparse.diags_array(alone)), root[None, None], closeness)


def _roots(graph: sparse.csr_array, dtype: Any) -> tuple[Floats, Floats]:
    """Return the roots of the degrees, and ones for rows without neighbours, which keep themselves."""
    degree = graph.sum(axis=1)
    return np.sqrt(np.where(degree > 0, degree, 1)).astype(dtype), (degree <= 0).astype(dtype)


def _with_others(
    inner: SparseGraph, weights: sparse.csr_array, numbers: NDArray[np.int64], closeness: float
) -> SparseGraph:
    """Join the graph of the landmarks and the weights [others, landmarks] with which other rows read them."""
    landmarks = np.zeros(sum(weights.shape), bool)
    landmarks[numbers] = True
    root = np.empty(len(landmarks), weights.dtype)
    root[landmarks] = inner.root_degree[0, 0]
    root[~landmarks], alone = _roots(weights, weights.dtype)
    scaled = sparse.diags_array(1 / root[~landmarks]) @ weights @ sparse.diags_array(1 / root[landmarks])
    place = np.argsort(np.argsort(~landmarks, kind="stable"), kind="stable")  # of each row, with landmarks first
    joined = sparse.block_array([[inner.weights, None], [scaled, sparse.diags_array(alone)]], format="csr")
    return SparseGraph(sparse.csr_array(joined[place][:, place]), root[None, None], np.array([closeness]), numbers)
