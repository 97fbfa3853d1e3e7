"""Rows so similar that one label is enough for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
TWIN = 0.05  # squared distance of twins, over the usual one
_SAMPLE = 2_000  # rows that the usual distance is taken from


def usual_distance(cosines: Floats) -> float:
    """The median squared distance of rows to their tenth nearest neighbour, from their cosines [m, m]."""
    rank = min(10, len(cosines) - 1)
    near = 2 - 2 * np.partition(cosines, len(cosines) - 1 - rank, axis=1)[:, len(cosines) - 1 - rank]
    return max(float(np.median(near)), 1e-6)


def twin_cosine(rows: Floats) -> float:
    """The cosine above which two rows [n, d] of unit length are twins."""
    sample = rows[:: -(-len(rows) // _SAMPLE)]
    return 1 - TWIN * usual_distance(sample @ sample.T) / 2


def split(rows: Floats, order: Sequence[int], asked: NDArray[np.int64], twin: float) -> tuple[list[int], list[int]]:
    """Split an order of rows: those far from the rows before them and from those asked about, and near-twins of these.

    Parameters
    ----------
    rows : array of shape (n, d)
        Of unit length.
    order : sequence of int
        Row numbers.
    asked : array of int
        Rows whose labels are known.
    twin : float
        The cosine above which rows are twins.
    """
    taken = rows[np.concatenate([asked, np.asarray(order, dtype=np.int64)])]
    near = rows[list(order)] @ taken.T > twin  # [order, asked + order]
    apart: list[int] = []
    twins: list[int] = []
    for place, row in enumerate(order):
        (twins if near[place, : len(asked) + place].any() else apart).append(int(row))
    return apart, twins
