"""ProbCover: Yehuda, Dekel, Hacohen, Weinshall, "Active learning through a covering lens", NeurIPS 2022.

Each choice is the row whose ball holds most rows that no ball of a labelled or chosen row holds. The radius is the
largest at which balls rarely mix clusters of the pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.selection.registry import Floats, Pool, register

MOST_ROWS = 3_000  # of the graph of balls; a larger pool is thinned evenly
PURITY = 0.95  # least share of balls whose rows are all of one cluster
_RADII = 20  # tried


@register("probcover", reference="Yehuda et al. 2022")
def probcover(pool: Pool, count: int) -> list[int]:
    """Choose the rows whose balls cover most of what is not covered."""
    step = -(-len(pool.rows) // MOST_ROWS)
    numbers = np.unique(np.concatenate([np.arange(0, len(pool.rows), step), np.flatnonzero(pool.labelled)]))
    rows = pool.rows[numbers]
    squares = np.clip(2 - 2 * (rows @ rows.T), 0, None)
    inside = squares <= _radius(squares, _clusters(pool, rows, count))  # [m, m]
    open_rows = np.isin(numbers, pool.candidates)
    bare = ~inside[:, pool.labelled[numbers]].any(axis=1)  # rows that no ball holds
    chosen: list[int] = []
    for _ in range(min(count, int(open_rows.sum()))):
        held = np.where(open_rows, inside[bare].sum(axis=0) * pool.known[numbers], -1.0)
        best = int(np.argmax(held))
        chosen.append(int(numbers[best]))
        open_rows[best] = False
        bare &= ~inside[:, best]
    rest = pool.candidates[~np.isin(pool.candidates, chosen)]
    return chosen + [int(row) for row in rest[: count - len(chosen)]]


def _clusters(pool: Pool, rows: Floats, count: int) -> NDArray[np.int64]:
    """Clusters of the rows, as many as classes; before these are known, as many as rows to choose."""
    from sklearn.cluster import KMeans  # slow to import

    classes = count if pool.probabilities is None else max(count, pool.probabilities.shape[1])
    found = KMeans(min(classes, 50, len(rows)), n_init=1, random_state=pool.seed).fit_predict(rows)
    return np.asarray(found, dtype=np.int64)


def _radius(squares: Floats, clusters: NDArray[np.int64]) -> float:
    """The largest squared radius at which enough balls hold rows of one cluster."""
    other = np.where(clusters[:, None] != clusters, squares, np.inf).min(axis=1)  # to the nearest of another cluster
    radii = np.quantile(squares, np.linspace(0, 0.5, _RADII + 1)[1:])
    pure = [radius for radius in radii if np.mean(other > radius) >= PURITY]
    return float(pure[-1] if pure else max(np.quantile(other, 1 - PURITY), 1e-6))
