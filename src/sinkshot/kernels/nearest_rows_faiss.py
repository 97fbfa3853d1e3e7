"""Nearest landmarks by cosine in one very large pool, nearly all of them: faiss's inverted lists (extra [faiss]).

Landmarks are put into cells around k-means centres, and a row is compared with those of the cells nearest to it. Each
call to faiss has a single thread and a fixed seed, and our threads share blocks of rows: what is found does not depend
on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from importlib.util import find_spec
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


def nearest_by_cells(blocks: Sequence[Floats], others: Sequence[Floats], count: int, pool: Executor) -> Lists:
    """Return nearly the `count` nearest rows of `blocks` for every row of `others`; a missing one has number -1."""
    import faiss

    rows, width = sum(len(block) for block in blocks), blocks[0].shape[1]
    cells = max(1, min(int(_CELLS * rows**0.5), rows // _TRAINED_ON))

    def build() -> Any:
        faiss.omp_set_num_threads(1)  # of the thread that calls
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.seed, index.nprobe = _ROUNDS, 0, min(_SEARCHED, cells)
        every = max(1, rows // (cells * _TRAINED_ON))
        index.train(_joined(blocks, every))
        for block in blocks:
            index.add(unit_rows(block))
        return index

    index = pool.submit(build).result()

    def search(number: int) -> Lists:
        faiss.omp_set_num_threads(1)
        values, numbers = index.search(unit_rows(others[number]), count)
        return values, numbers.astype(np.int32)

    found = list(pool.map(search, range(len(others))))
    return np.concatenate([values for values, _ in found]), np.concatenate([numbers for _, numbers in found])


def _joined(blocks: Sequence[Floats], every: int) -> NDArray[np.float32]:
    """Return some rows of each block, of unit length, without a second copy of them."""
    sizes = [len(range(0, len(block), every)) for block in blocks]
    rows = np.empty((sum(sizes), blocks[0].shape[1]), np.float32)
    end = 0
    for block, size in zip(blocks, sizes, strict=True):
        rows[end : end + size] = unit_rows(block[::every])
        end += size
    return rows
