"""The pool that a strategy sees, and the registry of strategies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.errors import InputError, unknown_name
from sinkshot.selection import near_twins

Floats = NDArray[np.floating[Any]]
MOST_ROWS = 20_000  # rows that strategies compare with each other; a larger pool is thinned evenly


@dataclass(frozen=True)
class Pool:
    """Rows to choose from, and what is known about them."""

    rows: Floats  # [n, d], of unit length
    labelled: NDArray[np.bool_]  # [n]
    probabilities: Floats | None = None  # [n, way], if there are labels for a classifier
    unknown: Floats | None = None  # [n], probability of belonging to no class
    seed: int = 0
    closed: NDArray[np.bool_] | None = None  # [n], rows that may not be chosen, though they have no label

    @staticmethod
    def of_features(features: Any) -> Pool:
        """Return a pool without labels, its features [n, d] prepared as for `sinkshot`: power, length, centre."""
        values = np.asarray(features, dtype=np.float32)
        steps = preprocess.parse("PE" if values.size and values.min() >= 0 else "E")
        return Pool(centred(np.asarray(preprocess.run(values, steps).x)), np.zeros(len(values), dtype=bool))

    @cached_property
    def candidates(self) -> NDArray[np.int64]:
        """Numbers of the rows that may be chosen."""
        return np.flatnonzero(~self.labelled if self.closed is None else ~(self.labelled | self.closed))

    @cached_property
    def known(self) -> Floats:
        """Probability that each row belongs to a class, [n]."""
        return np.ones(len(self.rows)) if self.unknown is None else 1.0 - self.unknown

    @cached_property
    def doubt(self) -> Floats:
        """One minus the margin between the two most probable classes, [n]; one without class probabilities."""
        if self.probabilities is None or self.probabilities.shape[1] < 2:
            return np.ones(len(self.rows))
        ordered = np.sort(self.probabilities, axis=1)
        return np.asarray(1.0 - (ordered[:, -1] - ordered[:, -2]))

    @cached_property
    def strangers(self) -> NDArray[np.bool_]:
        """Labelled rows that are known to belong to no class, [n]."""
        return self.labelled & (self.known < 0.5)

    @cached_property
    def new_class(self) -> float:
        """Probability that the next label shows a class that has none yet, after Good and Turing; one without labels.

        It is the share of labels whose class has no other label. Labels of strangers do not count.
        """
        if self.probabilities is None:
            return 1.0
        counts = np.bincount(self.probabilities[self.labelled & ~self.strangers].argmax(axis=1))
        return float(np.sum(counts == 1) / counts.sum()) if counts.sum() else 1.0

    @cached_property
    def seen(self) -> NDArray[np.int64]:
        """Numbers of the rows that similarities are computed with."""
        step = -(-len(self.rows) // MOST_ROWS)
        return np.arange(0, len(self.rows), step)


def centred(rows: Floats, centre: Floats | None = None) -> Floats:
    """Return rows [n, d] minus a centre, by default their mean, at unit length; a zero row stays zero."""
    moved = rows - (rows.mean(axis=0) if centre is None else centre)
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.where(length > 0, length, 1))


@dataclass(frozen=True)
class Strategy:
    """A registered strategy."""

    name: str
    function: Callable[[Pool, int], list[int]]
    reference: str

    def choose(self, pool: Pool, count: int, sure: Any = None) -> list[int]:
        """Return `count` different rows without a label, the most useful first; those that are `sure` [n] come last."""
        count = min(count, len(pool.candidates))
        if sure is not None:
            return self._unsure_first(pool, count, np.asarray(sure, dtype=bool))
        if count < 1:
            return []
        chosen = self.function(pool, count)
        if len(set(chosen)) != count or pool.labelled[chosen].any():
            raise InputError(f"the strategy {self.name} chose too few rows, a row twice, or a labelled row.")
        return [int(row) for row in chosen]

    def _unsure_first(self, pool: Pool, count: int, sure: NDArray[np.bool_]) -> list[int]:
        """Choose rows that are not sure, then others, and after both near-twins of labelled or chosen rows.

        Among sure rows the probabilities say nothing: a label there can only find a class that has none, so they are
        chosen as in a pool without a classifier.
        """
        if sure.shape != (len(pool.rows),):
            raise InputError(f"sure has one entry for each of {len(pool.rows)} rows; its shape is {sure.shape}.")
        closed = np.zeros(len(sure), dtype=bool) if pool.closed is None else pool.closed
        labelled, twin = np.flatnonzero(pool.labelled), near_twins.twin_cosine(pool.rows)
        unsure_rows = replace(pool, closed=closed | sure)
        sure_rows = replace(pool, closed=closed | ~sure, probabilities=None)
        order: list[int] = []
        apart: list[int] = []
        twins: list[int] = []
        for some in (unsure_rows, sure_rows):
            if len(apart) < count:
                order += self.choose(some, count)
                apart, twins = near_twins.split(pool.rows, order, labelled, twin)
        return [*apart, *twins][:count]


STRATEGIES: dict[str, Strategy] = {}


def register(name: str, *, reference: str) -> Callable[[Callable[[Pool, int], list[int]]], Any]:
    """Register a strategy."""

    def add(function: Callable[[Pool, int], list[int]]) -> Any:
        if name in STRATEGIES:
            raise InputError(f"a strategy called {name!r} is registered already.")
        STRATEGIES[name] = Strategy(name, function, reference)
        return function

    return add


def get(name: str) -> Strategy:
    """Return a strategy by its name."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]


def highest(score: Floats, pool: Pool, count: int) -> list[int]:
    """Return the candidates with the highest score; ties go to the first."""
    order = np.argsort(-score[pool.candidates], kind="stable")[:count]
    return [int(row) for row in pool.candidates[order]]
