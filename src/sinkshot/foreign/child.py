"""Work in a separate process, which is ended when it takes too long or too much memory."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign import worker
from sinkshot.foreign.limits import VARIABLE, amount, max_memory
from sinkshot.foreign.worker import receive, send

_LOOK = 0.02  # seconds between checks of the memory of the process
_START = 120.0  # seconds in which the process must start, even on a slow machine

Answer = tuple[dict[str, Any], Any]


class Child:
    """A process that answers requests; it ends with this object at the latest."""

    def __init__(self, library: str) -> None:
        command = [sys.executable, "-P", str(Path(worker.__file__)), library]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)
        self.lock = threading.Lock()
        self.end = weakref.finalize(self, _end, self.process)
        self.memory = self._answer(None, None, _START, None)[0].get("peak", 0)  # before its first request

    def ask(self, facts: dict[str, Any], array: NDArray[Any] | None, seconds: float, memory: int) -> Answer:
        """Return the answer to a request, or end the process and raise an error that names the exceeded limit.

        `memory` is the number of bytes allowed beyond those at its start; the user's own limit replaces it.
        """
        with self.lock:
            if self.process.poll() is not None:
                raise InputError("the process that runs it has already ended.")
            given = max_memory()
            return self._answer(facts, array, seconds, self.memory + (memory if given is None else given))

    def _answer(self, facts: dict[str, Any] | None, array: Any, seconds: float, memory: int | None) -> Answer:
        answers: queue.Queue[Answer | None] = queue.Queue()
        arguments = (self.process, facts, array, answers)
        threading.Thread(target=_exchange, args=arguments, daemon=True).start()
        began = time.monotonic()
        while True:
            try:
                answer = answers.get(timeout=_LOOK)
            except queue.Empty:
                self._look(time.monotonic() - began > seconds, seconds, memory)
                continue
            except BaseException:  # an interrupt
                self.end()
                raise
            if answer is None:
                self.end()
                raise InputError("the process that ran it ended without an answer; it crashed, or memory ran out.")
            return answer

    def _look(self, late: bool, seconds: float, memory: int | None) -> None:
        if late:
            self.end()
            raise InputError(f"it did not answer within {seconds:.0f} seconds, and was ended.")
        if memory is not None and _memory_of(self.process.pid) > memory:
            self.end()
            raise InputError(
                f"it took more than {amount(memory)} of memory, and was ended. If you trust it, allow more with "
                f"--max-memory (or {VARIABLE}) and an amount such as 8G."
            )


def _exchange(process: subprocess.Popen[bytes], facts: Any, array: Any, answers: queue.Queue[Answer | None]) -> None:
    answer = None
    with contextlib.suppress(OSError, ValueError, MemoryError):  # the process has ended, or been ended
        if process.stdin is not None and process.stdout is not None:
            if facts is not None:
                send(process.stdin, facts, array)  # type: ignore[arg-type]
            answer = receive(process.stdout)  # type: ignore[arg-type]
    answers.put(answer)


def _memory_of(process: int) -> int:
    """Return the memory of a process in bytes; 0 if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def as_float32(array: Any, rows: int) -> NDArray[np.float32]:
    """Return the answer as float32 rows, or raise an error if it is not an array."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 2 or len(array) != rows:
        raise InputError("its answer is not an array of features.")
    return array
