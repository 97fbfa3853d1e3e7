"""The process in which a review fits, as the server sees it: started early, asked from threads, restarted if it ends.

In the server's own process a fit would hold the interpreter's lock, and answers would wait for it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from numpy.typing import NDArray

import sinkshot

_PROGRAM = "sinkshot.review.fit_main"


@dataclass(frozen=True)
class Setup:
    """What does not change during a review."""

    features: NDArray[Any]  # [n, d]
    method: str
    unknown: float | None
    next_count: int


class ProcessEndedError(Exception):
    """The process ended before it answered."""


class FitProcess:
    """Starts the process at once, so that its imports are done when the items are read.

    `setup` must be set before the first question. `ended` is called, from another thread, with a few words on how the
    process ended, unless that was by `close`. The next question then starts another one.
    """

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.ended: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        self._over = False
        self._run = _Run(self._tell)

    def ask(self, what: str, *arguments: Any) -> Any:
        """Ask for "fit", "groups" or "next" and wait for the answer; at most one question of a kind at a time.

        Raises InputError or RuntimeError as the process did, and ProcessEndedError if it ends.
        """
        with self._lock:
            if self._over:
                raise ProcessEndedError
            if self._run.process.poll() is not None:
                self._run = _Run(self._tell)
            run = self._run
            answer = run.send(self.setup, what, arguments)
        value, error = answer.get()
        if error is not None:
            raise error
        return value

    @property
    def pid(self) -> int:
        """The number of the process that runs now, or ran last."""
        return self._run.process.pid

    def close(self) -> None:
        """End the process, and whatever waits for it."""
        self._over = True
        self._run.process.kill()
        self._run.process.wait()

    def _tell(self, code: int) -> None:
        if not self._over:
            self.ended(_how(code))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Run:
    """One process, with the questions that wait for its answers."""

    def __init__(self, ended: Callable[[int], None]) -> None:
        root = str(Path(sinkshot.__file__).parents[1])  # so that it imports the same sinkshot
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM],  # -P: modules are not looked for in the working folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            **_apart(),
        )
        self._ended, self._is_set_up = ended, False
        self._guard = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[tuple[Any, Exception | None]]] = {}
        self._dead = False
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, setup: Setup | None, what: str, arguments: tuple[Any, ...]) -> queue.SimpleQueue[Any]:
        """Send a question; return where its answer will be."""
        answer: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        with self._guard:
            if self._dead:
                raise ProcessEndedError
            self._waiting[what] = answer
        requests = cast(IO[bytes], self.process.stdin)
        try:
            if not self._is_set_up:
                pickle.dump(setup, requests)
                self._is_set_up = True
            pickle.dump((what, arguments), requests)
            requests.flush()
        except (OSError, ValueError):
            raise ProcessEndedError from None
        return answer

    def _read(self) -> None:
        """Hand out answers until there are no more."""
        answers = cast(IO[bytes], self.process.stdout)
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                what, value, error = pickle.load(answers)
                with self._guard:
                    self._waiting.pop(what).put((value, error))
        code = self.process.wait()
        with self._guard:
            self._dead = True
            for answer in self._waiting.values():
                answer.put((None, ProcessEndedError()))
        self._ended(code)


def _apart() -> dict[str, Any]:
    """Options that shield the process from Ctrl+C, which goes to a whole process group: the server ends it."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def _how(code: int) -> str:
    """Return in a few words how a process ended."""
    if code >= 0:
        return f"with the exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        return f"by {name}" + (", perhaps because memory ran out" if name == "SIGKILL" else "")
    return f"by signal {-code}"
