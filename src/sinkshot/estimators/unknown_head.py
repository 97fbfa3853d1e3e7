"""Detect rows of no class among those that come after `fit`.

A method gives each row of its pool a probability of belonging to no class. The head learns to predict it for new rows
from two features: the cosine to the nearest prototype, and the method's probabilities for the nearest rows of the pool.
Coefficients come from a logistic regression on the pool, so they fit its scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
NEIGHBOURS = 10  # nearest rows of the pool used for a new row
CHECKED = 5  # unlabelled rows nearest to a labelled one; ten reach beyond small classes
MOST_REFERENCES = 5_000  # rows of the pool that are kept
MOST_DOUBT = 0.4
"""Largest mean over the neighbours of labelled rows. Some of these are strangers where half of the pool is; with 0.15,
a quarter to a half of what the method would reject was kept."""
USUAL_DOUBT = 0.03  # what a larger mean is lowered to
_RIDGE = 1.0  # pseudo-rows that pull a slope to zero
_FEW = 128  # labelled rows compared with a whole pool at once
_BLOCK = 1_024  # rows compared with the references at once
_LOGIT_LIMIT = 12.0


@dataclass(frozen=True)
class UnknownHead:
    """Reference rows of the pool, and a logistic regression on their evidence."""

    references: Floats  # [m, d], centred and of unit length
    unknown: Floats  # [m], their probability of belonging to no class
    coefficients: Floats  # [3]: of the nearest prototype's cosine, of the neighbours' logit, and the intercept

    @property
    def fitted(self) -> UnknownHead:
        """Return the head itself."""
        return self

    def probabilities(self, rows: Floats, cosines: Floats) -> Floats:
        """Return the probability [n] of belonging to no class.

        Parameters
        ----------
        rows : array of shape (n, d)
            Centred and of unit length, as the references are.
        cosines : array of shape (n, way)
            Their cosines to the prototypes.
        """
        around = _around(rows, self.references, self.unknown, itself=None)
        return sigmoid(_evidence(cosines, around) @ self.coefficients).astype(rows.dtype)


@dataclass
class LateUnknownHead:
    """A head that is fitted when it is first needed: by new rows, not by the pool itself."""

    rows: Floats  # [n, d]
    cosines: Floats  # [n, way]
    unknown: Floats  # [n]

    @cached_property
    def fitted(self) -> UnknownHead:
        """Fit the head, once."""
        return fit_unknown_head(self.rows, self.cosines, self.unknown)


AnyUnknownHead = UnknownHead | LateUnknownHead


def fit_unknown_head(rows: Floats, cosines: Floats, unknown: Floats) -> UnknownHead:
    """Learn to predict `unknown` [n] from rows [n, d] and their cosines [n, way] to the prototypes."""
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_REFERENCES)).astype(np.int64))
    references, of_references = rows[kept], unknown[kept]
    around = _around(references, references, of_references, itself=np.arange(len(kept)))
    evidence = _evidence(cosines[kept], around)
    return UnknownHead(references, of_references, _logistic_regression(evidence, of_references, penalised=2))


def trusted_by_labels(
    rows: Floats,
    unknown: Floats,
    labelled: NDArray[np.bool_],
    candidates: NDArray[np.int32] | None = None,
    most_doubt: float = MOST_DOUBT,
) -> Floats:
    """Return `unknown` [n], lowered if it would reject the labelled rows too.

    Labelled rows belong to a class, so the unlabelled rows nearest to them should have low values. If their mean is
    above `most_doubt`, the scale of `unknown` is wrong, not the labels: its log odds are lowered until the mean is
    `USUAL_DOUBT`. The order of the rows does not change. `candidates` [n, k] are the nearest of all rows, if known, as
    seen from their mean, nearest first.
    """
    pool = np.flatnonzero(~labelled)
    wanted = min(CHECKED, len(pool))
    if not wanted or not labelled.any():
        return unknown
    near = _nearest_in_pool(rows, labelled, wanted, candidates)  # [l, wanted], numbers of rows
    shift = shift_by_labels(unknown[near], most_doubt)
    if not shift:
        return unknown
    weaker = unknown.copy()
    weaker[pool] = sigmoid(logit(unknown[pool]) - shift)
    return weaker


def shift_by_labels(of_neighbours: Floats, most_doubt: float = MOST_DOUBT) -> float:
    """Return by how much log odds of being unknown are to be lowered, from those of the labelled rows' neighbours."""
    if not of_neighbours.size or of_neighbours.mean() <= most_doubt:
        return 0.0
    odds = logit(of_neighbours)
    low, high = 0.0, 2 * _LOGIT_LIMIT
    for _ in range(40):  # the mean falls with the shift
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sigmoid(odds - middle).mean() > USUAL_DOUBT else (low, middle)
    return high


def _nearest_in_pool(
    rows: Floats, labelled: NDArray[np.bool_], wanted: int, candidates: NDArray[np.int32] | None
) -> NDArray[np.int64]:
    """Numbers [l, wanted] of the unlabelled rows nearest to each labelled one, by cosine after centring.

    Cosines are computed from inner products, so that a large pool is not copied, and only for labelled rows without
    enough unlabelled candidates.
    """
    numbers = np.flatnonzero(labelled)
    found = np.empty((len(numbers), wanted), dtype=np.int64)
    missing = np.ones(len(numbers), dtype=bool)
    if candidates is not None:
        free = ~labelled[candidates[numbers]]  # [l, k]
        missing = free.sum(axis=1) < wanted
        first = np.argsort(~free[~missing], axis=1, kind="stable")[:, :wanted]
        found[~missing] = np.take_along_axis(candidates[numbers[~missing]], first, axis=1)
    if not missing.any():
        return found
    centre = rows.mean(axis=0)
    along = rows @ centre  # [n]
    lengths = np.sqrt(np.maximum(np.einsum("nd,nd->n", rows, rows) - 2 * along + centre @ centre, 1e-12))
    left = np.flatnonzero(missing)
    for at in range(0, len(left), _FEW):
        some = left[at : at + _FEW]
        cosines = (rows[numbers[some]] @ rows.T - along) / lengths  # up to a factor per row: the order stays
        cosines[:, labelled] = -np.inf
        found[some] = np.argpartition(-cosines, wanted - 1, axis=1)[:, :wanted]
    return found


def _evidence(cosines: Floats, around: Floats) -> Floats:
    return np.column_stack([cosines.max(axis=1), logit(around), np.ones(len(around))]).astype(np.float64)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, first + _BLOCK) for first in range(0, count, _BLOCK))


def _around(rows: Floats, references: Floats, unknown: Floats, itself: NDArray[np.int64] | None) -> Floats:
    """Mean of `unknown` over the nearest references of each row [n]; `itself` numbers a row among the references."""
    wanted = min(NEIGHBOURS, len(references) - (itself is not None))
    if wanted < 1:
        return np.full(len(rows), 0.5)
    around = np.empty(len(rows))
    for block in _blocks(len(rows)):
        cosines = rows[block] @ references.T
        if itself is not None:
            cosines[np.arange(len(cosines)), itself[block]] = -2.0
        nearest = np.argpartition(-cosines, wanted - 1, axis=1)[:, :wanted]
        around[block] = unknown[nearest].mean(axis=1)
    return around


def _logistic_regression(evidence: Floats, target: Floats, penalised: int, steps: int = 30) -> Floats:
    """Coefficients of a logistic regression on soft targets by Newton's method; the first `penalised` have a ridge."""
    ridge = np.where(np.arange(evidence.shape[1]) < penalised, _RIDGE, 1e-3)
    coefficients = np.zeros(evidence.shape[1])
    for _ in range(steps):
        probability = sigmoid(evidence @ coefficients)
        gradient = evidence.T @ (probability - target) + ridge * coefficients
        curvature = (evidence * (probability * (1 - probability))[:, None]).T @ evidence
        step = np.linalg.solve(curvature + np.diag(ridge), gradient)
        coefficients = coefficients - step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return coefficients


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(x))))


def logit(probability: Floats) -> Floats:
    """Return the log odds, between -12 and 12."""
    least = float(sigmoid(np.asarray(-_LOGIT_LIMIT)))
    clipped = np.clip(np.asarray(probability, dtype=np.float64), least, 1 - least)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))
