"""Landmarks: a sample of a large pool in which all its rows look for their neighbours.

The more rows a pool has, the nearer its neighbours are, and the less an average over six of them says. So above
`LANDMARKS` rows neighbours are looked for in a sample of that size. Among landmarks, supports always among them, the
graph is the symmetric one. Every other row reads its nearest landmarks, with the full weight of each, and is read by
none: as if it had been added to a finished pool. Up to that size every row is a landmark, and nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LANDMARKS = 100_000  # rows


def landmark_queries(supports: int, queries: int, most: int | None = None) -> NDArray[np.int64] | None:
    """Return the numbers of the queries that are landmarks, rising, or None where all rows are.

    The queries are cut into equal stretches, and of each one is drawn, by the number of the stretch alone.

    >>> landmark_queries(5, 1_000, most=10)
    array([161, 361, 503, 657, 810])
    """
    most = LANDMARKS if most is None else most
    if supports + queries <= most:
        return None
    count = min(queries, max(most - supports, most // 2, 1))
    bounds = np.arange(count + 1) * queries // count
    drawn = np.random.default_rng(count).random(count)
    return np.asarray(bounds[:-1] + (drawn * np.diff(bounds)).astype(np.int64))
