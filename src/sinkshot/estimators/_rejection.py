"""BMS with rejection for one pool in which some rows belong to no class, and for later rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.neighbours import Neighbours, over
from sinkshot.methods.algebra import by_query, rows_of, softmax
from sinkshot.methods.bms import unit
from sinkshot.methods.bms_open import solve
from sinkshot.methods.oslo import sigmoid
from sinkshot.settings.bms import BMSSettings
from sinkshot.task import Task

Floats = NDArray[np.floating[Any]]


class Rejection:
    """A solved task: class weights, labels and unknown probabilities of its rows, and predictions for new rows.

    Constants are the defaults of the method `bms-open`.

    Attributes
    ----------
    weights : array of shape (way, d)
    assignment : array of shape (q, way)
        Probabilities of the classes for each query.
    unknown : array of shape (q,)
        The probability that each query belongs to none of the classes.
    threshold : float
        Rows with a higher unknown probability are rejected.
    """

    def __init__(self, task: Task, settings: BMSSettings, hyper: dict[str, Any], threshold: float) -> None:
        self.threshold = threshold
        self._lam, self._spread, self._cut = settings.lam, hyper["spread"], (hyper["threshold"], hyper["width"])
        rows, x = rows_of(task), np.concatenate([task.support[0], task.query[0]])  # [N, d]
        self._neighbours = Neighbours(x, hyper["neighbours"]) if task.queries else None  # without queries, no pool
        if self._neighbours is None:
            self.weights = np.asarray(unit(rows.means(), rows)[0][0] @ x)
            self.assignment, self.unknown = np.empty((0, task.way), x.dtype), np.empty(0, x.dtype)
            self._judges, self._evidence = (self.weights, self.weights), np.ones(len(x), x.dtype)
            return
        spreading = over(self._neighbours.graph(), task.supports, self._spread)
        found = solve(rows, settings, hyper["lambda_inlier"], spreading, self._cut)
        self.weights, self.assignment = np.asarray(found.weights[0] @ x), np.asarray(by_query(found.assignment)[0])
        self.unknown = np.asarray(found.unknown[0, 0, task.supports :])
        first, judge = (np.asarray(a[0] @ x) for a in found.judges)
        self._judges, self._evidence = (first, judge), np.asarray(found.evidence[0, 0])

    def of_new(self, rows: Floats) -> Floats:
        """Return the probability that new rows [n, d] are unknown, each independent of the others."""
        by_supports, by_pool = (_cosines(rows, judge) for judge in self._judges)  # [n, way]
        own = by_supports.sum(axis=1) + (softmax(self._lam * by_supports, axis=-1) * by_pool).sum(axis=1)
        around = own if self._neighbours is None else self._neighbours.mean(rows, self._evidence, own)
        evidence = (1 - self._spread) * own + self._spread * around
        return np.asarray(sigmoid((self._cut[0] - evidence) / self._cut[1]))


def _cosines(rows: Floats, weights: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True) * np.linalg.norm(weights, axis=1)
    return np.asarray(rows @ weights.T / np.where(length > 0, length, 1))
