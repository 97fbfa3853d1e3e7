"""Background work of a review: the classifier learns from decisions, and labels.csv follows them.

Decisions that come while a fit runs, or shortly after each other, share the next fit. What to label next is sought in a
thread of its own, since it may take longer than a fit, and is put off while decisions wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from sinkshot.errors import InputError
from sinkshot.estimators.pool_neighbours import PoolNeighbours
from sinkshot.files import replacing
from sinkshot.label.classifier import classify, what_to_label_next
from sinkshot.review.state import Fit, Review
from sinkshot.selection import first_rows

QUIET = 0.15  # seconds without a decision before a fit begins
LATEST = 0.6  # seconds after which it begins anyway
_NICE = 5
FEWEST_NEXT = 3  # items to label next that are left before new ones are sought while decisions wait


class Worker(threading.Thread):
    """Does its work once it is asked, after a moment in which further asking is taken together.

    Parameters
    ----------
    work : callable
        What to do.
    quiet, latest : float
        Seconds without being asked before work begins, and after which it begins anyway.
    """

    def __init__(self, work: Callable[[], None], quiet: float, latest: float) -> None:
        super().__init__(daemon=True)
        self.work, self.quiet, self.latest = work, quiet, latest
        self._asked, self._over = threading.Event(), False

    def ask(self) -> None:
        """Have the work done soon."""
        self._asked.set()

    @property
    def waiting(self) -> bool:
        """Whether the work was asked for since it began."""
        return self._asked.is_set()

    @property
    def over(self) -> bool:
        """Whether no more work will begin."""
        return self._over

    def stop(self, patience: float) -> None:
        """End after the work at hand; wait for it so many seconds."""
        self._over = True
        self._asked.set()
        self.join(patience)

    def run(self) -> None:
        """Wait and work until stopped."""
        _let_others_go_first()
        while True:
            self._asked.wait()
            begin = time.monotonic()
            while not self._over:
                self._asked.clear()
                if not self._asked.wait(self.quiet) or time.monotonic() - begin > self.latest:
                    break
            if self._over:
                return
            self._asked.clear()
            self.work()


def _let_others_go_first() -> None:
    """Lower the priority of this thread and of those that it starts, where the system can: answers come first."""
    with contextlib.suppress(OSError, AttributeError):
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Refitter:
    """Fits the classifier to what was decided.

    Parameters
    ----------
    review : Review
    method : str
        A registered method.
    next_count : int
        How many items to suggest for labelling next.
    changed : callable
        Called after the review has something new to show.
    """

    def __init__(self, review: Review, method: str, next_count: int, changed: Callable[[], None]) -> None:
        self.review, self.method, self.next_count, self.changed = review, method, next_count, changed
        self.neighbours = PoolNeighbours()
        self.worker = Worker(self._work, QUIET, LATEST)
        self.seeker = Worker(self._seek, QUIET, LATEST)

    def _work(self) -> None:
        review = self.review
        review.busy = True
        self.changed()
        try:
            self._fit()
            review.trouble = ""
        except InputError as error:
            review.trouble = str(error)
        except Exception as error:  # a fault of the classifier must not end a review
            review.trouble = f"the classifier failed ({type(error).__name__}: {error}); what you decide is kept."
        finally:
            review.busy = False
            self.changed()

    def _fit(self) -> None:
        review, begin = self.review, time.monotonic()
        with review.guard:
            items, decided, before = review.items, review.decided, review.fit
        if not items.classes:
            review.amend(decided=decided)
            self.seeker.ask()
            return
        answers = classify(
            items,
            review.features,
            method=self.method,
            unknown=review.unknown,
            next_count=0,
            neighbours=self.neighbours,
        )
        left = tuple(row for row in before.next_rows if items.labels[row] is None)
        review.publish(Fit(before.number + 1, decided, answers, left, before.groups, time.monotonic() - begin))
        self.changed()
        rejected = np.flatnonzero([not label for label in review.answers().labels])
        review.amend(groups=tuple(map(tuple, review.likeness.groups(rejected))))
        self.seeker.ask()

    def _seek(self) -> None:
        """Find what to label next, unless enough is left and decisions wait for a fit."""
        review = self.review
        with review.guard:
            items, fit = review.items, review.fit
        left = [row for row in fit.next_rows if items.labels[row] is None]
        model = fit.answers.model
        if (model is None and left) or (self.worker.waiting and len(left) >= FEWEST_NEXT):
            return
        review.seeking = True
        self.changed()
        try:
            if model is None:
                rows = first_rows(review.features, min(self.next_count, len(items)))
            else:
                rows = what_to_label_next(model, items.labels, self.next_count)
            review.amend(next_rows=tuple(rows))
        except Exception as error:  # suggestions are not worth a review
            review.trouble = f"what to label next could not be found ({type(error).__name__}: {error})."
        finally:
            review.seeking = False
            self.changed()


class Saver:
    """Replaces labels.csv after decisions and fits.

    Parameters
    ----------
    review : Review
    """

    def __init__(self, review: Review) -> None:
        self.review = review
        self.worker = Worker(self.save, 0.1, 0.5)

    def save(self) -> None:
        """Write labels.csv as it stands now."""
        try:
            content = self.review.labels_csv()
            with replacing(self.review.folder / "labels.csv") as temporary:
                temporary.write_bytes(content)
        except InputError as error:
            self.review.trouble = str(error)
