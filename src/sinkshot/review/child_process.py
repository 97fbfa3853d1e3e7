"""A Python process that answers questions, as its parent sees it: started early, asked from threads, restarted.

The child runs a module of this package that uses `sinkshot.review.parent_pipe`. Questions and answers are pickled;
threads of the parent write and read them, so that nobody who asks waits for a pipe.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import sinkshot


class ProcessEndedError(Exception):
    """The process ended before it answered."""


class ChildProcess:
    """Starts the process at once, so that its imports are done when it is needed.

    `ended` is called, from another thread, with a few words on how the process ended, unless that was by `close`. The
    next question then starts another one. `told` is called with messages that the process sends by itself.

    Parameters
    ----------
    program : str
        The module that the process runs.
    nice : int
        How much lower the priority of the process is than that of this one.
    """

    def __init__(self, program: str, nice: int = 0) -> None:
        self.ended: Callable[[str], None] = lambda _: None
        self.told: Callable[[Any], None] = lambda _: None
        self._program, self._nice = program, nice
        self._lock, self._over = threading.Lock(), False
        self._run = self._started()

    def current_setup(self) -> Any:
        """Return what a process must know before its first question."""
        raise NotImplementedError  # each process has its own

    def send(self, what: str, *arguments: Any) -> Future[Any]:
        """Ask, and return where the answer will be: its value, the error of the process, or ProcessEndedError."""
        with self._lock:
            if self._over:
                answer: Future[Any] = Future()
                answer.set_exception(ProcessEndedError())
                return answer
            if self._run.process.poll() is not None:
                self._run = self._started()
            return self._run.send(self.current_setup, what, arguments)

    def ask(self, what: str, *arguments: Any) -> Any:
        """Ask and wait for the answer."""
        return self.send(what, *arguments).result()

    @property
    def pid(self) -> int:
        """The number of the process that runs now, or ran last."""
        return self._run.process.pid

    def close(self) -> None:
        """End the process, and whatever waits for it."""
        self._over = True
        self._run.process.kill()
        self._run.process.wait()

    def _started(self) -> _Run:
        return _Run(self._program, self._nice, lambda value: self.told(value), self._tell)

    def _tell(self, code: int) -> None:
        if not self._over:
            self.ended(_how(code))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Run:
    """One process, with the questions that wait for its answers."""

    def __init__(self, program: str, nice: int, told: Callable[[Any], None], ended: Callable[[int], None]) -> None:
        root = str(Path(sinkshot.__file__).parents[1])  # so that it imports the same sinkshot
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", program],  # -P: modules are not looked for in the working folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            **_apart(),
        )
        _lower_priority(self.process.pid, nice)
        self._told, self._ended, self._is_set_up = told, ended, False
        self._numbers = itertools.count(1)
        self._guard = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._dead = False
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True).start()

    def send(self, setup: Callable[[], Any], what: str, arguments: tuple[Any, ...]) -> Future[Any]:
        """Send a question, after the setup if it is the first; return where its answer will be."""
        answer: Future[Any] = Future()
        with self._guard:
            if self._dead:
                answer.set_exception(ProcessEndedError())
                return answer
            number = next(self._numbers)
            self._waiting[number] = answer
        if not self._is_set_up:
            self._outgoing.put(setup())
            self._is_set_up = True
        self._outgoing.put((number, what, arguments))
        return answer

    def _write(self) -> None:
        """Send queued questions until the process ends."""
        requests = cast(IO[bytes], self.process.stdin)
        with contextlib.suppress(OSError, ValueError):
            while (one := self._outgoing.get()) is not None:
                pickle.dump(one, requests)
                requests.flush()

    def _read(self) -> None:
        """Hand out answers until there are no more."""
        answers = cast(IO[bytes], self.process.stdout)
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                number, value, error = pickle.load(answers)
                if not number:
                    self._told(value)
                    continue
                with self._guard:
                    answer = self._waiting.pop(number)
                if error is None:
                    answer.set_result(value)
                else:
                    answer.set_exception(error)
        code = self.process.wait()
        self._outgoing.put(None)
        with self._guard:
            self._dead = True
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            answer.set_exception(ProcessEndedError())
        self._ended(code)


def _apart() -> dict[str, Any]:
    """Options that shield the process from Ctrl+C, which goes to a whole process group: its parent ends it."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _lower_priority(process: int, nice: int) -> None:
    """Lower the priority of a process that has just begun: threads that it starts, for BLAS say, inherit it.

    Linux may share the processor among sessions first (autogroups), so the process's own session is lowered too.
    """
    if not nice or sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        lower = min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice)
        os.setpriority(os.PRIO_PROCESS, process, lower)
        Path(f"/proc/{process}/autogroup").write_text(str(lower))


def _how(code: int) -> str:
    """Return how a process ended, in a few words."""
    if code >= 0:
        return f"with the exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        return f"by {name}" + (", perhaps because memory ran out" if name == "SIGKILL" else "")
    return f"by signal {-code}"
