"""Nearest rows by cosine in one very large pool, nearly all of them: faiss's inverted lists, from the extra [faiss].

Rows are put into cells around k-means centres, and each row is compared with the rows of the cells nearest to it. Each
call to faiss has a single thread and a fixed seed, and our threads share blocks of rows: what is found does not depend
on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.nearest_rows import Lists, unit_rows

Floats = NDArray[np.floating[Any]]

_CELLS = 4.0  # times the root of the number of rows
_SEARCHED = 64  # cells for each row: on real features 99.9 % of the neighbours are found
_TRAINED_ON = 40  # rows for each cell
_ROUNDS = 8  # of k-means


def has_faiss() -> bool:
    """Whether faiss is installed."""
    return find_spec("faiss") is not None


def nearest_rows_by_cells(
    blocks: Sequence[Floats], count: int, pool: Executor, landmarks: NDArray[np.int64] | None = None
) -> Lists:
    """Return nearly the `count` nearest other rows of every row, nearest first; see `nearest_rows.nearest_rows`.

    With `landmarks`, rising numbers of rows, they are looked for among these alone. Where fewer are found, the others
    have a cosine of zero and the row's own number.
    """
    import faiss

    starts = np.cumsum([0, *(len(block) for block in blocks)])
    chosen = np.arange(starts[-1]) if landmarks is None else landmarks
    within = [chosen[slice(*np.searchsorted(chosen, pair))] - pair[0] for pair in pairwise(starts)]  # of each block
    rows, width = len(chosen), blocks[0].shape[1]
    cells = max(1, min(int(_CELLS * rows**0.5), rows // _TRAINED_ON))

    def build() -> Any:
        faiss.omp_set_num_threads(1)  # of the thread that calls
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.seed, index.nprobe = _ROUNDS, 0, min(_SEARCHED, cells)
        every = max(1, rows // (cells * _TRAINED_ON))
        some = [block[numbers[::every]] for block, numbers in zip(blocks, within, strict=True)]
        index.train(np.concatenate([unit_rows(rows_of) for rows_of in some]))
        for block, numbers in zip(blocks, within, strict=True):
            index.add(unit_rows(block[numbers]))
        return index

    index = pool.submit(build).result()

    def search(start: int, block: Floats) -> Lists:
        faiss.omp_set_num_threads(1)
        found: Lists = index.search(unit_rows(block), count + 1)
        values, numbers = found[0], np.where(found[1] < 0, -1, chosen[found[1]])
        return _without_itself(values, numbers, int(start))

    found = list(pool.map(search, starts, blocks))
    return np.concatenate([values for values, _ in found]), np.concatenate([numbers for _, numbers in found])


def _without_itself(values: Floats, numbers: NDArray[Any], start: int) -> Lists:
    """Drop each row from its own list; a row that is not in it, as among many equal ones, drops the last."""
    own = np.arange(start, start + len(numbers))[:, None]
    dropped = numbers == own
    dropped[~dropped.any(axis=1), -1] = True
    shape = (len(numbers), numbers.shape[1] - 1)
    values, numbers = values[~dropped].reshape(shape), numbers[~dropped].reshape(shape)
    missing = numbers < 0
    return np.where(missing, 0, values).astype(np.float32), np.where(missing, own, numbers).astype(np.int32)
