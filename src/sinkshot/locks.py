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

TRIES = 100  # attempts to take a lock whose file is being removed


@contextlib.contextmanager
def alone(file: Path, what: str, otherwise: str, at: str = "") -> Iterator[None]:
    """Hold the lock `file`, or raise at once if another process holds it; the file is removed at the end.

    The error reads: `what` by process 12 on host; let it end or stop it, or `otherwise`. A holder that can be reached
    somewhere gives its address in `at`, which the error tells too. Without locks (on Windows, on some network file
    systems, in read-only folders) other processes are not excluded.
    """
    handle = _taken(file, what, otherwise, at)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                file.unlink()  # before the lock is released, so that nobody locks a file that has no name
            os.close(handle)


def must_be_free(file: Path, what: str, otherwise: str) -> None:
    """Raise if another process holds the lock: for commands that do long work before they take it."""
    with alone(file, what, otherwise):
        pass


def _taken(file: Path, what: str, otherwise: str, at: str) -> int | None:
    """Return the open file, locked; None if that is not possible."""
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
                _sign(handle, at)
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise InputError(f"{what} by {_holder(file)} right now; let it end or stop it, or {otherwise}.") from error
        except FileNotFoundError:  # its last holder removed the file after we had opened it
            pass
        except OSError:
            os.close(handle)
            return None
        os.close(handle)
    return None


def _sign(handle: int, at: str) -> None:
    """Write into the file which process holds the lock."""
    told = {"process": os.getpid(), "host": socket.gethostname()} | ({"at": at} if at else {})
    with contextlib.suppress(OSError):  # on a full disk the holder is not recorded
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(told).encode())


def _holder(file: Path) -> str:
    try:
        told = texts.json_object(texts.text(file, limits.JSON))
        at = f" ({told['at']})" if "at" in told else ""
        return f"process {told['process']} on {told['host']}{at}"
    except (OSError, ValueError, KeyError, TypeError):  # the holder has just started or just ended
        return "another process"
