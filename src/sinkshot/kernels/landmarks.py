"""Landmarks: a sample of a large pool in which all its rows look for their neighbours.

The more rows a pool has, the nearer its neighbours are, and the less an average over six of them says. So above
`LANDMARKS` rows neighbours are looked for in a sample of that size. Among landmarks, supports always among them, the
graph is the symmetric one. Every other row is linked as if it alone had been added to a pool of the landmarks: it reads
its nearest landmarks and those to which it is nearer than the last of their own, each with half its weight. It is read
by none. Up to that size every row is a landmark. The size was chosen on blends of validation rows
(`tools/choose_landmarks.py`); where there are many classes it grows with them.

They are drawn evenly from small cells of similar rows (`sinkshot.kernels.cells`), some five from each: answers are
better than with landmarks by chance (docs/scale.md).

With repeated averages, part of a landmark's own first guess returns to it through its neighbours; other rows are not
affected. On validation rows 0.3 to 0.5 points fewer landmarks are right (docs/scale.md), and they are 40 % of a pool of
100,000 but 1 % of one of five million. So what comes back is taken out again (`without_return`). How much that is, the
diagonal of a polynomial of the graph, is estimated from averages of random signs, which are a function of the row's
number alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.counter_random import GOLDEN, mix
from sinkshot.kernels.nearest_rows import Lists, keep_nearest, no_rows

Floats = NDArray[np.floating[Any]]

LANDMARKS = 40_000  # rows, for up to ...
CLASSES = 40  # ... so many classes; for more of them in proportion, up to ...
MOST_TIMES = 2.5  # ... so many times as many rows
MOST_CHOOSING = 64  # landmarks that would choose a row, the nearest, so that equal rows take no more memory


def most_landmarks(way: int) -> int:
    """Return in how many rows of a pool of so many classes neighbours are looked for.

    >>> most_landmarks(20), most_landmarks(60), most_landmarks(500)
    (40000, 60000, 100000)
    """
    return round(LANDMARKS * min(max(way / CLASSES, 1.0), MOST_TIMES))


def landmarks_wanted(supports: int, queries: int, most: int) -> int | None:
    """Return how many of the queries are landmarks, about, or None where all rows are.

    >>> landmarks_wanted(5, 1_000, most=10), landmarks_wanted(5, 5, most=10)
    (5, None)
    """
    return None if supports + queries <= most else min(queries, max(most - supports, most // 2, 1))


def landmark_places(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the places of landmarks in an order of the queries by small cells, rising.

    Of each cell its share of `count` is drawn, rounded up or down by chance, one row from each stretch of the cell. A
    cell's draws are a function of its number and size: where another has a row more or less, they do not change.

    >>> landmark_places(np.array([100, 0, 60, 3]), count=20)
    array([  3,   7,  22,  23,  32,  39,  51,  54,  68,  71,  82,  88,  96,
           103, 112, 120, 133, 141, 149, 158, 162])
    """
    cells = np.arange(len(sizes), dtype=np.uint64)
    wanted = np.floor(sizes * (count / sizes.sum()) + _shares(cells)).astype(np.int64)  # [S]
    own = np.repeat(np.arange(len(sizes)), wanted)
    first = np.concatenate([[0], np.cumsum(wanted)])[:-1]
    number = np.arange(len(own)) - first[own]  # of a landmark in its cell
    begin, end = (sizes[own] * at // wanted[own] for at in (number, number + 1))
    drawn = begin + (_shares(own.astype(np.uint64) << np.uint64(32) | (number + 1).astype(np.uint64)) * (end - begin))
    return np.asarray((np.cumsum(sizes) - sizes)[own] + drawn.astype(np.int64))


def _shares(counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1) that look random, by counters."""
    return np.asarray((mix(counters * GOLDEN + GOLDEN) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def random_signs(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return 64 random signs [n, 64] for each of some rows, by their numbers in the task: supports, then queries."""
    words = mix(numbers.astype(np.uint64) * GOLDEN + GOLDEN).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    return 2 * bits.astype(np.float32) - 1


def share_returned(mixed: Floats, signs: Floats, spread: float) -> Floats:
    """Return which share of its own value comes back to each row, [n, 1], from averages of random signs [n, 64].

    The mean of a row's signs, each times its average, is the row's own weight in its average, up to noise.
    """
    own = np.mean(mixed * signs, axis=1, keepdims=True)
    return np.asarray(np.maximum(own - (1.0 - spread), 0), dtype=mixed.dtype)


def without_return(mixed: Floats, own: Floats, returned: Floats, spread: float) -> Floats:
    """Take from averages [n, way] what came back of rows' own values; at least their own share stays."""
    return np.asarray(np.maximum(mixed - returned * own, (1.0 - spread) * own))


class LandmarkLinks:
    """Lists of some rows: the nearest landmarks, and those that would choose a row."""

    def __init__(self, rows: int, count: int) -> None:
        self.nearest, self.choosing = no_rows(rows, count), no_rows(rows, MOST_CHOOSING)

    def compare(
        self, cosines: NDArray[np.float32], rows: NDArray[np.int64], first: int, least: NDArray[np.float32]
    ) -> None:
        """Enter cosines [m, c] of some rows to landmarks numbered from `first`; `least` [c] is their last neighbour."""
        keep_nearest(cosines, rows, -1 << 40, first, *self.nearest)
        keep_nearest(np.where(cosines > least, cosines, np.float32(-2)), rows, -1 << 40, first, *self.choosing)

    @property
    def closeness(self) -> float:
        """Sum of the cosines to the nearest."""
        return float(np.maximum(self.nearest[0], 0).sum(dtype=np.float64))

    def weights(self, sharpness: float, landmarks: int) -> sparse.csr_array:
        """Return the weights [n, landmarks] with which the rows read landmarks."""
        return one_way(self.nearest, self.choosing, sharpness, landmarks)


def one_way(nearest: Lists, choosing: Lists, sharpness: float, landmarks: int) -> sparse.csr_array:
    """Return the weights [n, landmarks] of rows that read landmarks: half of each of two lists, where positive."""
    there = [cosines > 0 for cosines, _ in (nearest, choosing)]
    rows = np.concatenate([np.nonzero(some)[0] for some in there])
    columns = np.concatenate([nearest[1][there[0]], choosing[1][there[1]]])
    weights = 0.5 * np.concatenate([nearest[0][there[0]], choosing[0][there[1]]]) ** sharpness
    shape: Any = (len(nearest[0]), landmarks)
    return sparse.coo_array((weights.astype(np.float32), (rows, columns)), shape).tocsr()
