"""The program of the process that keeps the state of a review: `python -m sinkshot.review.keeper_main`, see `desk`.

It hears of each decision, has the classifier fitted in a process of its own, writes labels.csv, and makes what the page
shows, as bytes that the server passes on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sinkshot.label import answers as files
from sinkshot.label.decisions import Decision
from sinkshot.review.desk import KeeperSetup
from sinkshot.review.fit_process import FitProcess
from sinkshot.review.parent_pipe import ParentPipe
from sinkshot.review.refit import Refitter, Saver
from sinkshot.review.state import Review

_HISTORY = 200  # decisions in one answer
_PATIENCE = 5.0  # seconds for work in the background to end
_ASKED_AT_ONCE = 2  # questions that are answered at the same time


class Keeping:
    """Keeps the state, and answers what is asked about it.

    Parameters
    ----------
    setup : KeeperSetup
    process : FitProcess
        Not set up yet.
    tell : callable
        Takes the news, as bytes, when there are any.
    """

    def __init__(self, setup: KeeperSetup, process: FitProcess, tell: Callable[[bytes], None]) -> None:
        self.review = Review(setup.items, setup.fitting.features, setup.folder, setup.fitting.unknown, setup.decisions)
        process.setup = setup.fitting
        self.process, self.tell = process, tell
        self.saver = Saver(self.review, self.changed)
        self.refitter = Refitter(self.review, process, self.changed)
        self._news, self._telling = b"", threading.Lock()
        for worker in (self.refitter.worker, self.refitter.seeker, self.saver.worker):
            worker.start()
        self.refitter.worker.ask()
        self.changed()

    def changed(self) -> None:
        """Tell what is new, and have labels.csv written."""
        review = self.review
        with self._telling:
            news = json.dumps({"version": review.version, **review.status}).encode()
            if news != self._news:
                self._news = news
                self.tell(news)
        self.saver.worker.ask()

    def decided(self, decision: Decision) -> None:
        """Take a decision that is on the disk."""
        self.review.decided(decision)
        self.refitter.worker.ask()
        self.changed()

    def state(self) -> bytes:
        """Return what is decided and predicted now."""
        return self.review.columns()

    def item(self, row: int) -> bytes:
        """Return what is known of one item."""
        return json.dumps(self.review.item(row)).encode()

    def search(self, query: str) -> bytes:
        """Return the numbers of the items that contain the words."""
        return json.dumps(self.review.search(query)).encode()

    def history(self, before: int) -> bytes:
        """Return decisions, the newest first."""
        return json.dumps(self.review.history(before, _HISTORY)).encode()

    def finish(self, facts: dict[str, Any]) -> tuple[int, int]:
        """End the work in the background and write the files of `label`; return how many are accepted, and of how many.

        Without predictions there is only labels.csv.
        """
        self.refitter.seeker.stop(0)
        self.refitter.worker.stop(_PATIENCE)
        self.saver.worker.stop(_PATIENCE)
        self.process.close()
        items, answers = self.review.items, self.review.answers()
        if answers.classes:
            files.write(self.review.folder, items, answers, files.summary(items, answers, **facts))
        else:
            self.saver.save()
        return sum(source == "accepted" for source in answers.sources), len(items)


def main() -> None:
    """Answer questions until the input ends."""
    parent = ParentPipe()
    process = FitProcess()  # it imports while the items are read
    keeping = Keeping(parent.setup(), process, parent.tell)
    lane = ThreadPoolExecutor(_ASKED_AT_ONCE)
    views: dict[str, Callable[..., Any]] = {
        "state": keeping.state,
        "item": keeping.item,
        "search": keeping.search,
        "history": keeping.history,
        "draw": keeping.review.draw,
    }
    at_once: dict[str, Callable[..., Any]] = {
        "decided": keeping.decided,
        "finish": keeping.finish,
        "hello": lambda: None,
    }
    for number, what, arguments in parent.questions():
        if what in at_once:
            parent.answer(number, at_once[what], *arguments)
        else:
            lane.submit(parent.answer, number, views[what], *arguments)


if __name__ == "__main__":
    main()
