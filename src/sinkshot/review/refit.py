"""Background work of a review: the classifier learns from decisions, and labels.csv follows them.

Decisions that come while a fit runs, or shortly after each other, share the next fit. What to label next is sought
after it, since that may take longer than a fit, and is put off while decisions wait. Both are computed in a process of
their own; the threads here, which are in the process that keeps the state, wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.review.child_process import ProcessEndedError
from sinkshot.review.fit_process import FitProcess
from sinkshot.review.state import Fit, Review

QUIET = 0.15  # seconds without a decision before a fit begins
LATEST = 0.6  # seconds after which it begins anyway
SAVE_QUIET, SAVE_LATEST = 0.5, 2.0  # the same before labels.csv is written: 10,000 lines take 30 ms of the processor
MOST_ENDS = 3  # ends of the process in a row after which it starts again only with the next decision
FEWEST_NEXT = 3  # items to label next that are left before new ones are sought while decisions wait


class Worker(threading.Thread):
    """Does its work when asked, after a short wait that merges further requests.

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
        """End after the current work; wait for it at most that many seconds."""
        self._over = True
        self._asked.set()
        self.join(patience)

    def run(self) -> None:
        """Wait and work until stopped."""
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


class Refitter:
    """Fits the classifier to what was decided.

    Parameters
    ----------
    review : Review
    process : FitProcess
        With its setup.
    changed : callable
        Called after the review has something new to show.
    """

    def __init__(self, review: Review, process: FitProcess, changed: Callable[[], None]) -> None:
        self.review, self.process, self.changed = review, process, changed
        self.worker = Worker(self._work, QUIET, LATEST)
        self.seeker = Worker(self._seek, QUIET, LATEST)
        self.ends = 0  # of the process, in a row
        process.ended = self._ended

    def _work(self) -> None:
        review = self.review
        review.busy = True
        self.changed()
        try:
            self._fit()
            review.trouble, self.ends = "", 0
        except InputError as error:
            review.trouble = str(error)
        except ProcessEndedError:
            pass  # `_ended` tells
        except Exception as error:  # a fault of the classifier must not end a review
            review.trouble = f"the classifier failed ({error}); your decisions are kept."
        finally:
            review.busy = False
            self.changed()

    def _fit(self) -> None:
        review, begin = self.review, time.monotonic()
        with review.guard:
            items, decided, before = review.items, len(review.decisions), review.fit
        if not items.classes:
            review.amend(decided=decided)
            self.seeker.ask()
            return
        answers = self.process.ask("fit", items.labels, items.accepted)
        left = tuple(row for row in before.next_rows if items.labels[row] is None)
        review.publish(Fit(before.number + 1, decided, answers, left, before.groups, time.monotonic() - begin))
        self.changed()
        rejected = np.flatnonzero([not label for label in review.answers().labels])
        review.amend(groups=self.process.ask("groups", rejected))
        self.seeker.ask()

    def _seek(self) -> None:
        """Find what to label next, unless enough is left and decisions wait for a fit."""
        review = self.review
        with review.guard:
            items, fit = review.items, review.fit
        left = [row for row in fit.next_rows if items.labels[row] is None]
        if (not fit.answers.classes and left) or (self.worker.waiting and len(left) >= FEWEST_NEXT):
            return
        review.seeking = True
        self.changed()
        try:
            rows = self.process.ask("next", items.labels)
            if rows is not None:
                review.amend(next_rows=rows)
        except ProcessEndedError:
            pass  # `_ended` tells
        except Exception as error:  # suggestions are not worth a review
            review.trouble = f"the search for what to label next failed ({error})."
        finally:
            review.seeking = False
            self.changed()

    def _ended(self, how: str) -> None:
        """Report that the process has ended, and restart it, unless it keeps ending."""
        self.ends += 1
        again = self.ends < MOST_ENDS
        then = "it starts again" if again else "predictions stay as they are until your next decision"
        self.review.trouble = (
            f"the process that fits the classifier has ended {how}; {then}. All that you decided is saved."
        )
        if again:
            self.worker.ask()
        self.changed()


class Saver:
    """Replaces labels.csv after decisions and fits.

    Parameters
    ----------
    review : Review
    changed : callable
        Called when the file could not be written, and once it could be again; it asks for another try.
    """

    def __init__(self, review: Review, changed: Callable[[], None] = lambda: None) -> None:
        self.review, self.changed = review, changed
        self._saved: tuple[int, int] | None = None
        self.worker = Worker(self.save, SAVE_QUIET, SAVE_LATEST)

    def save(self) -> None:
        """Write labels.csv as it stands now, unless it is the same as the last one."""
        review = self.review
        version = len(review.decisions), review.fit.number
        if version == self._saved:
            return
        try:
            content = review.labels_csv()
            with replacing(review.folder / "labels.csv") as temporary:
                temporary.write_bytes(content)
            self._saved, trouble = version, ""
        except InputError as error:
            trouble = f"{error} It is tried again; every decision is in decisions.jsonl."
        if review.unwritten or trouble:
            review.unwritten = trouble
            self.changed()
