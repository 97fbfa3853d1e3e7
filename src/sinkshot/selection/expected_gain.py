"""Expected gain: how much doubt a label would remove, seen through the graph over which `sinkshot` spreads labels.

A label at row x reaches row i by K_ix, the mean of two similarities: how much of a random walk on the graph of nearest
neighbours from i passes x, scaled to one at x itself, and a Gaussian of their distance. The gain of x is

    known_x * sum_i weight_i * max(0, K_ix - reached_i),

where `reached_i` is the largest K from row i to a labelled or chosen row, and `known_x` the probability that x belongs
to a class: the label of a stranger says nothing about classes. Where labels have shown strangers, it is less by
(1 - new) times the share of these in the sum of K from x to all labelled rows. The weight of a row shifts with the
labels from covering the pool to resolving doubt:

    weight_i = known_i * (new + (1 - new) * doubt_i),

with `doubt_i` one minus the margin between its two most probable classes, and `new` the probability that the next label
shows a class that has none yet, by the estimate of Good and Turing: the share of labels whose class has no other.
Without labels it is one, and every row counts the same. Twins of labelled or chosen rows come last.

The idea of uncertainty-weighted coverage is that of Bae, Sutherland, Oliveira, "Uncertainty herding", ICLR 2025; graph,
schedule, strangers and twins are this library's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.selection.lazy_greedy import lazy_greedy
from sinkshot.selection.near_twins import TWIN, usual_distance
from sinkshot.selection.registry import Floats, Pool, register
from sinkshot.settings.sinkshot import SETTINGS

WALKS = 0.5  # share of walks in the similarity; docs/next-labels-choice.md has other values of this and the next
SPREAD = 0.9  # probability that a walk goes on at each step
MOST_ROWS = 2_000  # of the graph; a larger pool is thinned evenly
_LEAST = 1e-6  # weight of a row, so that a pool without doubt is still covered


@register("expected-gain", reference="this library")
def expected_gain(pool: Pool, count: int) -> list[int]:
    """Choose the rows whose labels would remove the most doubt."""
    numbers = _thinned(pool)
    rows = pool.rows[numbers]
    cosines = rows @ rows.T  # [m, m]
    usual = usual_distance(cosines)
    reach = WALKS * _walks(cosines, SPREAD) + (1 - WALKS) * np.exp(-np.clip(2 - 2 * cosines, 0, None) / usual)
    twins = np.asarray(2 - 2 * cosines < TWIN * usual)
    labelled = pool.labelled[numbers]
    at = np.flatnonzero(np.isin(numbers, pool.candidates))
    new = pool.new_class
    strange = (1 - new) * _to_strangers(reach, labelled, pool.strangers[numbers])
    known = np.maximum(pool.known[numbers] * (1 - strange), _LEAST)
    weights = np.maximum(known * (new + (1 - new) * pool.doubt[numbers]), _LEAST)
    reached = reach[:, labelled].max(axis=1, initial=0.0)
    asked = np.asarray(twins[:, labelled].any(axis=1))  # such a row is labelled, or has a twin that is

    def gains_of(some: NDArray[np.int64]) -> Floats:
        gains = known[at[some]] * (weights @ np.maximum(reach[:, at[some]] - reached[:, None], 0))
        return np.asarray(np.where(asked[at[some]], gains - 2 * len(rows), gains))

    def choose(one: int) -> None:
        np.maximum(reached, reach[:, at[one]], out=reached)
        np.logical_or(asked, twins[:, at[one]], out=asked)

    chosen = [int(numbers[at[one]]) for one in lazy_greedy(count, len(at), gains_of, choose)]
    rest = pool.candidates[~np.isin(pool.candidates, chosen)]
    return chosen + [int(row) for row in rest[: count - len(chosen)]]


def _thinned(pool: Pool) -> NDArray[np.int64]:
    """Numbers of the rows of the graph: labelled ones and, evenly, others; at most half of a full graph is labelled."""
    labelled, others = np.flatnonzero(pool.labelled), np.flatnonzero(~pool.labelled)
    if len(pool.rows) > MOST_ROWS:
        labelled = labelled[:: -(-len(labelled) // (MOST_ROWS // 2)) or 1]
        others = others[:: -(-len(others) // (MOST_ROWS - len(labelled))) or 1]
    return np.sort(np.concatenate([labelled, others]))


def _walks(cosines: Floats, spread: float) -> Floats:
    """Return K [m, m]: (1 - spread) (I - spread S)^-1 for the graph S of `sinkshot`, scaled to a diagonal of one."""
    m = len(cosines)
    near = min(SETTINGS.neighbours, m - 1)
    others = cosines.copy()
    np.fill_diagonal(others, -np.inf)
    links = np.zeros_like(cosines)
    if near > 0:
        nearest = np.argpartition(-others, near - 1, axis=1)[:, :near]
        kept = np.maximum(np.take_along_axis(cosines, nearest, axis=1), 0) ** SETTINGS.sharpness
        np.put_along_axis(links, nearest, kept, axis=1)
    links = (links + links.T) / 2
    degree = np.sqrt(np.maximum(links.sum(axis=1), 1e-12))
    walks = np.linalg.inv(np.eye(m, dtype=cosines.dtype) - spread * links / degree / degree[:, None])
    passed = np.sqrt(np.diagonal(walks))
    return np.asarray(walks / passed / passed[:, None])


def _to_strangers(reach: Floats, labelled: NDArray[np.bool_], strangers: NDArray[np.bool_]) -> Floats:
    """The share of strangers in the similarity of each row [m] to the labelled rows."""
    if not strangers.any():
        return np.zeros(len(reach))
    return np.asarray(reach[:, strangers].sum(axis=1) / np.maximum(reach[:, labelled].sum(axis=1), 1e-12))
