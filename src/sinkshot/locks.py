"""Lock files: one process at a time; the system releases the lock when its process ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from sinkshot.errors import InputError
from sinkshot.foreign import limits, texts

TRIES = 100  # to take a lock whose file goes away in that moment


@contextlib.contextmanager
def alone(file: Path, what: str, otherwise: str) -> Iterator[None]:
    """Hold the lock `file`, or refuse at once where another process does; it is removed at the end.

    The refusal reads: `what` by process 12 on host; let it end or stop it, or `otherwise`. Where there are no locks (on
    Windows, on some network file systems, in folders that cannot be written) nobody is kept apart.
    """
    handle = _taken(file, what, otherwise)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                file.unlink()  # before it is free, so that nobody waits for a file without a name
            os.close(handle)


def must_be_free(file: Path, what: str, otherwise: str) -> None:
    """Refuse where another process holds the lock: for commands that do long work before they take it."""
    with alone(file, what, otherwise):
        pass


def _taken(file: Path, what: str, otherwise: str) -> int | None:
    """Return the open file, locked; None where that cannot be done."""
    try:
        import fcntl
    except ImportError:
        return None
    for _ in range(TRIES):
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # the writer reports it
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                _sign(handle)
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise InputError(f"{what} by {_holder(file)} right now; let it end or stop it, or {otherwise}.") from error
        except FileNotFoundError:  # its last holder took the name away after we had opened it
            pass
        except OSError:
            os.close(handle)
            return None
        os.close(handle)
    return None


def _sign(handle: int) -> None:
    """Leave word of who holds the lock."""
    with contextlib.suppress(OSError):  # on a full disk it is held without a word
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())


def _holder(file: Path) -> str:
    try:
        told = texts.json_object(texts.text(file, limits.JSON))
        return f"process {told['process']} on {told['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has only begun, or just ended
        return "another process"
