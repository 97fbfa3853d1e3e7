"""Learn from known outsiders: rows that are known to belong to none of the classes.

Outsiders are of several kinds, which nobody has named: two are of one kind if they are as near to each other as
labelled rows of one class are. Each kind becomes a class of its own, and the method runs a second time with these
classes beside the others. What it gives to them is the probability of being of a known kind of outsider. Joined with
the probability of belonging to no class (the mean of both runs, in log odds), that is the answer. The probabilities of
the classes are those of the first run, so outsiders never make a row change its class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess as chain
from sinkshot.estimators.label_input import Labels
from sinkshot.estimators.prototype_head import PrototypeHead, fit_head
from sinkshot.estimators.stranger_share import on_scale_of_pool, tells_enough
from sinkshot.estimators.unknown_head import logit, sigmoid
from sinkshot.methods import Method
from sinkshot.methods.sinkshot import sinkshot_of_pool
from sinkshot.task import Scores, Task

Floats = NDArray[np.floating[Any]]
DOUBT = 2.0
"""By so much over the labels per class are the log odds of being of a known kind lowered. With few labels, rows of the
classes are taken for outsiders too easily. `tools/choose_outsiders.py` compares values."""
APART = 0.5  # cosine below which outsiders are of two kinds, where no class has two labelled rows
MOST_KINDS = 50
_MOST_COMPARED = 1_000  # outsiders that are compared with each other; the others go to the nearest kind


@dataclass(frozen=True)
class Taught:
    """What is known of the unlabelled rows [q], known outsiders among them."""

    others: Floats  # probability of belonging to no class, by both runs
    kin: Floats  # probability of being of a known kind of outsider

    def joined(self, others: Floats, unlabelled: NDArray[np.bool_]) -> Floats:
        """Return the probability [n] of being an outsider of any kind, from that of unknown kinds."""
        found = others.copy()
        found[unlabelled] = joined(others[unlabelled], self.kin)
        return found


def joined(others: Floats, kin: Floats) -> Floats:
    """Return the probability of being an outsider of a known or of an unknown kind."""
    return np.asarray(1 - (1 - others) * (1 - kin), dtype=others.dtype)


def scores_of(method: Method, task: Task, hyper: dict[str, Any]) -> Scores:
    """Run a method on a single task, unless no row is unlabelled."""
    if task.queries == 0:
        return Scores(np.empty((1, 0, task.way), dtype=task.support.dtype), np.empty((1, 0)))
    if method.name != "sinkshot":
        return method(task, **hyper)
    return on_scale_of_pool(replace(method, function=sinkshot_of_pool)(task, **hyper), task)


def codes_with_kinds(task: Task, labels: Labels) -> NDArray[np.int64] | None:
    """Return the codes of labelled rows and, as further classes, of outsiders by their kind, [n]; None without any.

    `task` has the same rows after the chain, labelled ones first.
    """
    if not labels.outsiders.any():
        return None
    codes = labels.codes.copy()
    outside = np.asarray(task.query[0])[labels.outsiders[~labels.labelled]]
    codes[labels.outsiders] = task.way + kinds_of(np.asarray(task.support[0]), np.asarray(task.labels[0]), outside)
    return codes


def taught_by(method: Method, task: Task, first: Scores, labels: Labels, hyper: dict[str, Any]) -> Taught:
    """Run the method with kinds of outsiders as classes.

    Parameters
    ----------
    method : Method
    task : Task
        Of `codes_with_kinds`: its supports are the labelled rows and the outsiders.
    first : Scores
        Of the method without outsiders' say, for all rows without a class.
    labels : Labels
    hyper : dict
        Hyper-parameters of the method.
    """
    outside, way = labels.outsiders[~labels.labelled], len(labels.classes)
    kin = np.zeros(len(outside), task.query.dtype)
    others = kin if first.unknown is None else np.array(first.unknown[0])
    scores = scores_of(method, task, hyper)
    of_kinds = np.asarray(scores.probabilities[0])[:, way:].sum(axis=-1)
    kin[~outside] = doubted(of_kinds, int(labels.labelled.sum()) / way)
    one_scale = tells_enough(way, len(outside)) == tells_enough(task.way, task.queries)
    if method.rejects and scores.unknown is not None and one_scale:
        others[~outside] = sigmoid(0.5 * (logit(others[~outside]) + logit(np.asarray(scores.unknown[0]))))
    return Taught(others, kin)


def doubted(kin: Floats, shots: float) -> Floats:
    """Return the probability [n] of being of a known kind, lowered by the doubt at so many labels per class."""
    return np.asarray(sigmoid(logit(kin) - DOUBT / shots), dtype=kin.dtype)


def kinds_of(labelled: Floats, codes: NDArray[np.int64], outsiders: Floats) -> NDArray[np.int64]:
    """Return the kind [o] of each outsider, counted from 0, by average linkage of cosines.

    Parameters
    ----------
    labelled : array of shape (l, d)
    codes : array of int of shape (l,)
        Their classes. The median cosine of two rows of one class is what two outsiders of one kind need.
    outsiders : array of shape (o, d)
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(outsiders) == 1:
        return np.zeros(1, dtype=np.int64)
    unit = _unit(outsiders)
    compared = np.unique(np.linspace(0, len(unit) - 1, min(len(unit), _MOST_COMPARED)).astype(np.int64))
    distances = np.maximum(1 - unit[compared] @ unit[compared].T, 0)
    tree = linkage(squareform(distances, checks=False), "average")
    found = fcluster(tree, max(1 - _within(labelled, codes), 1e-6), "distance")
    if found.max() > MOST_KINDS:
        found = fcluster(tree, MOST_KINDS, "maxclust")
    _, found = np.unique(found, return_inverse=True)
    means = _unit(np.stack([unit[compared][found == kind].mean(axis=0) for kind in range(int(found.max()) + 1)]))
    kinds = np.asarray((unit @ means.T).argmax(axis=1))
    kinds[compared] = found
    return kinds


def _within(labelled: Floats, codes: NDArray[np.int64]) -> float:
    """Median cosine of two labelled rows of one class."""
    unit, cosines = _unit(labelled), []
    for code in np.unique(codes):
        own = unit[codes == code]
        cosines.append((own @ own.T)[np.triu_indices(len(own), 1)])
    every = np.concatenate(cosines)
    return float(np.median(every)) if len(every) else APART


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


@dataclass(frozen=True)
class OutsiderRule:
    """What known outsiders teach, as a rule for single rows: for pools in parts, of which the method sees a sample."""

    head: PrototypeHead  # of the classes and of the kinds of outsiders behind them
    way: int
    shots: float  # labels per class
    others: float | None = None  # usual log odds of being of a further kind, where no row seems to be of one

    @classmethod
    def fit(cls, method: Method, rows: Floats, codes: NDArray[np.int64], outsiders: int, centred: bool) -> OutsiderRule:
        """Learn from a sample of the pool.

        Parameters
        ----------
        method : Method
        rows : array of shape (n, d)
            After the chain: labelled rows, then outsiders, then some rows of the pool.
        codes : array of int of shape (l,)
            Classes of the labelled rows.
        outsiders : int
            How many rows after the labelled ones are known outsiders.
        centred : bool
            Whether the chain subtracts the mean of class means. Kinds of outsiders are classes, so it is done again.
        """
        marked, way = len(codes) + outsiders, int(codes.max()) + 1
        every = np.concatenate([codes, way + kinds_of(rows[: len(codes)], codes, rows[len(codes) : marked])])
        seen = np.asarray(chain.run(rows, chain.parse("McE" if centred else "E"), supports=marked, labels=every).x)
        task = Task(seen[None, :marked], every[None], seen[None, marked:], int(every.max()) + 1)
        scores = method(task)  # as pools in parts are labelled
        belongs = np.concatenate([np.eye(task.way)[every], np.asarray(scores.probabilities[0])])
        head = fit_head(rows, belongs.astype(rows.dtype), belongs).head
        return cls(head, way, len(codes) / way, _if_none_is_left(method, scores, task))

    def __call__(self, rows: Floats, unknown: Floats) -> Floats:
        """Return `unknown` [n] of rows [n, d], updated."""
        kin = self.head.probabilities(rows)[:, self.way :].sum(axis=-1)
        if self.others is not None:  # the mean of both runs, nearly as in memory
            unknown = sigmoid(0.5 * (logit(unknown) + self.others)).astype(unknown.dtype)
        return joined(unknown, doubted(kin, self.shots))


def _if_none_is_left(method: Method, scores: Scores, task: Task) -> float | None:
    """Median log odds of being a stranger once kinds of outsiders are classes; None if any row still looks like one."""
    if method.name != "sinkshot" or not task.queries:
        return None
    unknown = np.asarray(on_scale_of_pool(scores, task).unknown)
    return None if (unknown > 0.5).any() else float(np.median(logit(unknown)))
