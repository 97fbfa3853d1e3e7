"""How signals end a command: what was finished is kept and said, and the exit code is 128 and the signal's number."""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOOK_EVERY = 0.2  # seconds between two looks at who reads our output

_received: list[int] = []
_reader_gone = threading.Event()


class Terminated(KeyboardInterrupt):
    """The system, or a person elsewhere, asks this process to end."""


class ReaderGone(KeyboardInterrupt):
    """Nobody reads our output any more.

    A class of its own: where a plain KeyboardInterrupt leaves an `exec` of a string, as imports have them, Python ends
    itself by SIGINT later, though the interrupt was handled.
    """


def accept() -> None:
    """Let SIGTERM, and SIGHUP of a terminal that closes, end a command as Ctrl-C does, unless they are ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, _frame: Any) -> None:
    receive(number)
    raise Terminated


def receive(number: int) -> None:
    """Remember a signal that ends this command."""
    _received.append(number)


def exit_code() -> int:
    """Return the exit code of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def reader_has_gone() -> bool:
    """Whether an interrupt came from `while_read`, however late it arrived."""
    return _reader_gone.is_set()


@contextmanager
def while_read() -> Iterator[None]:
    """Stop computing what nobody will read: raise a BrokenPipeError soon after the reader of our output has gone.

    Only where standard output is a pipe; a system without `poll` learns it when it prints.
    """
    watched = _is_pipe(sys.stdout) and hasattr(select, "poll")
    if not watched or threading.current_thread() is not threading.main_thread():
        yield
        return
    inside, over = [True], threading.Event()

    def interrupt(_number: int, _frame: Any) -> None:
        if inside[0]:  # what is over is not interrupted: printing will tell
            raise ReaderGone

    before = signal.signal(signal.SIGPIPE, interrupt)
    watcher = threading.Thread(target=_watch, args=(sys.stdout.fileno(), over), daemon=True)
    try:
        watcher.start()
        yield
    except KeyboardInterrupt:
        if reader_has_gone():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise
    finally:
        inside[0] = False
        over.set()
        watcher.join()
        signal.signal(signal.SIGPIPE, before)


def _is_pipe(stream: Any) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _watch(output: int, over: threading.Event) -> None:
    """Interrupt the main thread when nobody holds the other end of the pipe."""
    poll = select.poll()
    poll.register(output, 0)  # errors alone
    while not over.wait(LOOK_EVERY):
        if poll.poll(0):
            _reader_gone.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)
            return
