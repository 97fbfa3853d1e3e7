"""What a child of `sinkshot.review.child_process` uses: questions on its standard input, answers on its output.

The process ends when its input does, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sinkshot.errors import InputError


class ParentPipe:
    """The way to and from the parent; make it before anything is printed."""

    def __init__(self) -> None:
        self._requests, self._answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # what a library prints must not get into the answers
        self._writing = threading.Lock()

    def setup(self) -> Any:
        """Return what the parent says first, once it is there."""
        return self._read()

    def questions(self) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
        """Yield the number of each question, what it is about, and its arguments."""
        while True:
            yield self._read()

    def _read(self) -> Any:
        try:
            return pickle.load(self._requests)
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)  # the parent has ended: its work is no longer needed

    def answer(self, number: int, does: Callable[..., Any], *arguments: Any) -> None:
        """Do what was asked, and write its value, or the error if there was one."""
        value: Any = None
        error: Exception | None = None
        try:
            value = does(*arguments)
        except InputError as one:
            error = InputError(str(one))
        except Exception as one:  # a fault must not end a review
            error = RuntimeError(f"{type(one).__name__}: {one}")
        self._send(number, value, error)

    def tell(self, value: Any) -> None:
        """Send a message that answers no question."""
        self._send(0, value, None)

    def _send(self, *message: Any) -> None:
        with self._writing, contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._answers)
            self._answers.flush()
