"""The program of the process that fits during a review: `python -m sinkshot.review.fit_main`, started by `fit_process`.

Fits and the search for what to label next run at the same time, since the search may take longer than a fit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.label.classifier import Answers, classify, what_to_label_next
from sinkshot.label.items import OUTSIDER, Items
from sinkshot.review.fit_process import Setup
from sinkshot.review.likeness import Likeness
from sinkshot.review.parent_pipe import ParentPipe
from sinkshot.selection import first_rows

if TYPE_CHECKING:
    from sinkshot.estimators.pool_neighbours import PoolNeighbours

Labels = tuple[str | None, ...]


class Work:
    """Answers requests about one pool.

    Parameters
    ----------
    setup : Setup
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._neighbours: PoolNeighbours | None = None
        self.newest: Answers | None = None
        self._likeness: Likeness | None = None

    def fit(self, labels: Labels, accepted: NDArray[np.bool_]) -> Answers:
        """Return the answers for all items, without the classifier, which stays here."""
        from sinkshot.estimators.pool_neighbours import PoolNeighbours

        setup, self._neighbours = self.setup, self._neighbours or PoolNeighbours()
        items = Items("embeddings", ("",) * len(labels), labels, accepted)
        self.newest = classify(
            items,
            setup.features,
            method=setup.method,
            unknown=setup.unknown,
            next_count=0,
            neighbours=self._neighbours,
        )
        return replace(self.newest, model=None)

    def groups(self, rows: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
        """Return rows in groups of alike ones."""
        if self._likeness is None:
            self._likeness = Likeness(self.setup.features)
        return tuple(map(tuple, self._likeness.groups(rows)))

    def next(self, labels: Labels) -> tuple[int, ...] | None:
        """Return the rows to label next; None before the first fit to labels."""
        features, count, newest = self.setup.features, self.setup.next_count, self.newest
        if all(label in (None, OUTSIDER) for label in labels):
            return tuple(first_rows(features, min(count, len(features))))
        if newest is None or newest.model is None:
            return None
        return tuple(what_to_label_next(newest.model, labels, count, newest.probabilities))


def main() -> None:
    """Answer questions until the input ends."""
    parent = ParentPipe()
    fits, searches = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    fits.submit(_import_what_is_slow)  # meanwhile this thread sees the end of the input
    work = Work(parent.setup())
    lanes: dict[str, tuple[ThreadPoolExecutor, Callable[..., Any]]]
    lanes = {"fit": (fits, work.fit), "groups": (fits, work.groups), "next": (searches, work.next)}
    for number, what, arguments in parent.questions():
        lane, does = lanes[what]
        lane.submit(parent.answer, number, does, *arguments)


def _import_what_is_slow() -> None:
    import sinkshot.estimators.few_shot
    import sinkshot.label.second_opinion  # noqa: F401


if __name__ == "__main__":
    main()
