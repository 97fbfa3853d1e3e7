"""Cells of a run in a file, which all its workers read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from sinkshot.kernels.cells import Cells

_KINDS = "coarse", "fine", "starts", "small", "small_starts"


def write_cells(path: Path, cells: Cells) -> None:
    """Write cells to a file, for all workers."""
    with path.open("wb") as file:
        np.savez(file, **{kind: getattr(cells, kind) for kind in _KINDS})


def read_cells(path: Path) -> Cells:
    """Read cells from a file; each process reads it once."""
    return _cells_at(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _cells_at(path: Path, _written: int) -> Cells:
    with np.load(path, allow_pickle=False) as found:
        return Cells(*(found[kind] for kind in _KINDS))
