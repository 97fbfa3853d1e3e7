"""TypiClust: Hacohen, Dekel, Weinshall, "Active learning on a budget: opposite strategies suit high and low budgets",
ICML 2022.

The pool is clustered into as many clusters as there will be labels. From each of the largest clusters without a label
the most typical row is chosen: the one with the smallest mean distance to its neighbours.
"""

from __future__ import annotations

import numpy as np

from sinkshot.selection.registry import Pool, register

MOST_CLUSTERS = 500
NEIGHBOURS = 20
_SMALL = 5  # smaller clusters are skipped while there are others


@register("typiclust", reference="Hacohen, Dekel, Weinshall 2022")
def typiclust(pool: Pool, count: int) -> list[int]:
    """Choose the most typical row of each of the largest clusters that have no label."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # slow to import

    clusters = min(int(pool.labelled.sum()) + count, MOST_CLUSTERS, len(pool.rows))
    kind = KMeans if len(pool.rows) <= 5_000 else MiniBatchKMeans
    found = kind(clusters, n_init=1, random_state=pool.seed).fit_predict(pool.rows)
    sizes = np.bincount(found, minlength=clusters)
    labels = np.bincount(found[pool.labelled], minlength=clusters).astype(np.int64)
    chosen: list[int] = []
    free = np.isin(np.arange(len(pool.rows)), pool.candidates)
    for _ in range(count):
        possible = np.flatnonzero(np.bincount(found[free], minlength=clusters) > 0)
        order = np.lexsort((-sizes[possible], sizes[possible] < _SMALL, labels[possible]))
        cluster = int(possible[order[0]])
        inside = np.flatnonzero((found == cluster) & free)
        row = int(inside[np.argmax(_typicality(pool, inside))])
        chosen.append(row)
        labels[cluster] += 1
        free[row] = False
    return chosen


def _typicality(pool: Pool, inside: np.ndarray) -> np.ndarray:
    """One over the mean distance of each row to its nearest neighbours in the cluster."""
    rows = pool.rows[inside[:2_000]]
    squares = np.clip(2 - 2 * (rows @ rows.T), 0, None)
    near = np.sort(squares, axis=1)[:, 1 : NEIGHBOURS + 1]
    if not near.shape[1]:
        return np.ones(1)
    typical = 1 / (np.sqrt(near).mean(axis=1) + 1e-12)
    return np.asarray(np.pad(typical, (0, len(inside) - len(typical))) * pool.known[inside])
