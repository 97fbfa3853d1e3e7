"""Nearest rows of a pool that is fitted to other labels again and again, as in a review.

A search among all pairs takes most of the time of a fit, and labels change its answer only through the centre from
which rows are seen. So the first fit keeps a few dozen nearest rows of each, seen from the middle of the pool, with
their inner products; later fits rank these as seen from their own centre, which takes no product of features. In the
same way the first fit keeps the whitened pool, of whose matrix labels change little.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess as chain
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.kernels import LARGE_POOL
from sinkshot.kernels.jit import workers
from sinkshot.kernels.landmarks import LANDMARKS
from sinkshot.kernels.nearest_rows import Lists, nearest_rows
from sinkshot.task import Task
from sinkshot.threads import ONE_BLAS_THREAD
from sinkshot.whitening import whitening

Floats = NDArray[np.floating[Any]]
CANDIDATES = 48  # nearest rows that are kept of each row
_BLOCK = 1_024  # rows
_TINY = 1e-12


class PoolNeighbours:
    """Candidates for the nearest rows of one pool; pass the same object to every `fit` of the same rows.

    See Also
    --------
    sinkshot.FewShotClassifier.fit : Takes it as `neighbours`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    >>> cosines, numbers = PoolNeighbours().seen_from(rows, np.zeros(8), np.arange(60))
    >>> unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    >>> bool(np.allclose(cosines[0, 0], np.sort(unit[0] @ unit.T)[-2]))
    True
    """

    def __init__(self) -> None:
        self._of: tuple[tuple[int, ...], float] | None = None
        self.numbers: NDArray[np.int32] | None = None  # [n, candidates], nearest first; None before the first fit
        self._inner: NDArray[np.float64]  # their inner products, [n, candidates]
        self._white: tuple[tuple[tuple[int, ...], float], Floats, PoolNeighbours] | None = None
        self.task_rows: Floats | None = None  # of the last fit after its whole chain, labelled rows first, [n, d]

    def whitened(
        self, rows: Floats, order: NDArray[np.int64], task_wise: chain.Chain, codes: NDArray[np.int64]
    ) -> tuple[PoolNeighbours, Floats, chain.Chain]:
        """Return the pool behind the whitening matrix of the first fit with its neighbours, and the steps left.

        Unit length before a product with a matrix changes nothing where unit length follows, and the product of a
        difference is the difference of products: so Mc, E, W, E is W, Mc, E. Other chains, and small pools, stay.
        """
        if [step.name for step in task_wise] != ["Mc", "E", "W", "E"] or len(rows) < max(LARGE_POOL, rows.shape[1] + 1):
            return self, rows, task_wise
        known = _fingerprint(rows)
        if self._white is None or self._white[0] != known:
            seen = chain.run(rows[order], task_wise[:2], supports=len(codes), labels=codes)
            matrix = whitening(seen.x, task_wise[2].beta)
            self._white = known, np.asarray(rows @ matrix), PoolNeighbours()
        return self._white[2], self._white[1], task_wise[:2]

    def seen_from(self, rows: Floats, centre: Floats, order: NDArray[np.int64]) -> Lists:
        """Return cosines and numbers of each row's candidates, nearest first, [n, candidates] each.

        Parameters
        ----------
        rows : array of shape (n, d)
            The pool, the same in every call.
        centre : array of shape (d,)
            What is subtracted before cosines are taken.
        order : array of shape (n,)
            Row numbers in the order in which the answer has them; its numbers are places in that order.
        """
        near = self._learned(rows)
        along = rows @ centre.astype(rows.dtype)  # [n]
        squares = np.einsum("nd,nd->n", rows, rows)
        distance = float(centre @ centre)
        length = np.sqrt(np.maximum(squares - 2.0 * along + distance, _TINY)).astype(np.float64)
        cosines = (self._inner - along[:, None] - along[near] + distance) / (length[:, None] * length[near])
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        numbers, cosines = place[near[order]], cosines[order]
        ranked = np.argsort(-cosines, axis=1, kind="stable")
        return (
            np.take_along_axis(cosines, ranked, axis=1).astype(np.float32),
            np.take_along_axis(numbers, ranked, axis=1),
        )

    def _learned(self, rows: Floats) -> NDArray[np.int32]:
        """Return the candidates, which the first call finds; another pool is refused."""
        known = _fingerprint(rows)
        if self.numbers is not None:
            if self._of != known:
                raise InputError("neighbours were found for other rows; make a PoolNeighbours for each pool.")
            return self.numbers
        middle = rows.mean(axis=0)
        centred = rows - middle
        blocks = [centred[at : at + _BLOCK] for at in range(0, len(rows), _BLOCK)]
        threads = workers()
        with ONE_BLAS_THREAD, ThreadPoolExecutor(threads) as pool:
            cosines, numbers = nearest_rows(blocks, min(CANDIDATES, len(rows) - 1), pool, threads)
        length = np.sqrt(np.einsum("nd,nd->n", centred, centred)).astype(np.float64)
        along = rows @ middle
        inner = cosines * (length[:, None] * length[numbers]) + along[:, None] + along[numbers] - float(middle @ middle)
        self._of, self.numbers, self._inner = known, numbers, inner
        return numbers


def _fingerprint(rows: Floats) -> tuple[tuple[int, ...], float]:
    return rows.shape, float(rows[:: max(1, len(rows) // 100)].sum(dtype=np.float64))


def known_nearest(
    neighbours: PoolNeighbours | None,
    rows: Floats,
    order: NDArray[np.int64],
    task_wise: chain.Chain,
    done: chain.Prepared,
) -> Lists | None:
    """Return the nearest rows of a task, or None if its method is to find them.

    They are known for a large pool, if the task-wise part of the chain subtracts one centre and takes unit length, and
    if all rows are landmarks.
    """
    found = chain.centring(task_wise)
    if neighbours is None or not LARGE_POOL <= len(rows) <= LANDMARKS or found is None or found.apart:
        return None
    width = rows.shape[1]
    centre = np.reshape(done.statistics[0][0], width) if done.statistics else np.zeros(width)
    return neighbours.seen_from(rows, centre, order)


def task_of(
    neighbours: PoolNeighbours | None,
    rows: Floats,
    codes: NDArray[np.int64],
    task_wise: chain.Chain,
    base: FeatureBank | None,
) -> Task:
    """Return rows [n, d] after the task-wise part of a chain as a task, with its nearest rows where known.

    Rows with a code of 0 or more are the supports; the others are the queries, in their order.
    """
    labelled = codes >= 0
    order, supports, own = np.argsort(~labelled, kind="stable"), int(labelled.sum()), codes[labelled]
    kept, pool, rest = neighbours, rows, task_wise
    if neighbours is not None:
        kept, pool, rest = neighbours.whitened(rows, order, task_wise, own)
    seen = chain.run(pool[order], rest, supports=supports, labels=own)
    ordered = np.asarray(seen.x)
    if neighbours is not None:
        neighbours.task_rows = ordered
    nearest = known_nearest(kept, pool, order, rest, seen)
    return Task(ordered[None, :supports], own[None], ordered[None, supports:], int(own.max()) + 1, base, nearest)
