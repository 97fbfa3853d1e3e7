"""Landmarks: a sample of a large pool in which all its rows look for their neighbours.

The more rows a pool has, the nearer its neighbours are, and the less an average over six of them says. So above
`LANDMARKS` rows neighbours are looked for in a sample of that size. Among landmarks, supports always among them, the
graph is the symmetric one. Every other row is linked as if it alone had been added to a pool of the landmarks: it reads
its nearest landmarks and those to which it is nearer than the last of their own, each with half its weight. It is read
by none. Up to that size every row is a landmark. The size was chosen on blends of validation rows
(`tools/choose_landmarks.py`); where there are many classes it grows with them.

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


def landmark_queries(supports: int, queries: int, most: int) -> NDArray[np.int64] | None:
    """Return the numbers of the queries that are landmarks, rising, or None where all rows are.

    The queries are cut into equal stretches, and of each one is drawn, by the number of the stretch alone.

    >>> landmark_queries(5, 1_000, most=10)
    array([161, 361, 503, 657, 810])
    """
    if supports + queries <= most:
        return None
    count = min(queries, max(most - supports, most // 2, 1))
    bounds = np.arange(count + 1) * queries // count
    drawn = np.random.default_rng(count).random(count)
    return np.asarray(bounds[:-1] + (drawn * np.diff(bounds)).astype(np.int64))


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
