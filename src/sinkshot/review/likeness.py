"""Which items are alike: the nearest labelled ones of an item, and groups of the unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
MOST_LINKED = 2_000  # items that are compared with each other; the others join the nearest group
_CUT = 0.8  # of the mean distance: groups are joined below it, or below a clear gap
_GAP = 1.5  # a gap is clear if distances of merges grow by this factor across it
_MOST_GROUPS = 30  # that a gap may leave
_FLOOR = 0.1  # added to both sides of a gap: between twins every factor is large


class Likeness:
    """Cosines between items, as seen from the middle of the pool.

    Parameters
    ----------
    features : array of shape (n, d)
    """

    def __init__(self, features: Any) -> None:
        rows = np.asarray(features, dtype=np.float32)
        rows = rows - rows.mean(axis=0)
        length = np.sqrt(np.vecdot(rows, rows))[:, None]
        self.rows: Floats = rows / np.where(length > 0, length, 1)  # [n, d]

    def nearest(self, row: int, among: NDArray[np.bool_], count: int) -> list[tuple[int, float]]:
        """Return the items of a mask that are nearest to an item, with their cosines; never the item itself."""
        others = np.flatnonzero(among)
        others = others[others != row]
        cosines = self.rows[others] @ self.rows[row]
        best = np.argsort(-cosines, kind="stable")[:count]
        return [(int(others[one]), float(cosines[one])) for one in best]

    def groups(self, rows: NDArray[np.int64]) -> list[list[int]]:
        """Group items by average linkage of their cosine distances, the largest group first, typical items first."""
        from scipy.cluster.hierarchy import fcluster, linkage  # slow to import

        if len(rows) < 3:
            return [[int(row) for row in rows]] if len(rows) else []
        chosen = rows[:: -(-len(rows) // MOST_LINKED)]
        distances = 1 - self.rows[chosen] @ self.rows[chosen].T
        flat = np.clip(distances[np.triu_indices(len(chosen), 1)], 0, None)
        merges = linkage(flat, "average")
        codes = fcluster(merges, _cut(merges[:, 2], float(flat.mean())), "distance") - 1
        count = int(codes.max()) + 1
        centres = np.stack([self.rows[chosen[codes == code]].mean(axis=0) for code in range(count)])
        cosines = self.rows[rows] @ centres.T  # [n, groups]
        group = cosines.argmax(axis=1)
        group[np.searchsorted(rows, chosen)] = codes
        found = []
        for code in range(count):
            inside = np.flatnonzero(group == code)
            order = inside[np.argsort(-cosines[inside, code], kind="stable")]
            found.append([int(rows[one]) for one in order])
        return sorted((one for one in found if one), key=lambda one: (-len(one), one[0]))


def _cut(heights: Floats, mean: float) -> float:
    """Return the distance below which groups are joined, from the distances of the merges, ascending.

    It is a share of the mean distance, or less: a clear gap between two merges below that, which leaves groups of three
    items on average, is where groups end.
    """
    share = _CUT * max(mean, 1e-6)
    most = min(_MOST_GROUPS, (len(heights) + 1) // 3)
    last = heights[-most:] if most > 1 else heights[:0]  # a cut below the k-th from the end leaves k + 1 groups
    growth = (last[1:] + _FLOOR) / (last[:-1] + _FLOOR) * (last[:-1] < share)
    if not len(growth) or growth.max() < _GAP:
        return share
    widest = int(growth.argmax())
    return min(share, float(last[widest] + last[widest + 1]) / 2)
