"""How a command ends: one sentence on standard error, an exit code, and never a traceback.

    0  done                 2  input that cannot be used
    1  failed               128 + n  ended by signal n, after what was finished was kept and said

What the system refuses (memory, files, threads, a full disk) is a failure with its reason. Anything else is a bug.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sinkshot.cli import _signals
from sinkshot.errors import InputError, printable, printable_lines

DONE, FAILED, BAD_INPUT = 0, 1, 2
LEAST_ADDRESS_SPACE = 1 << 30  # bytes; with less, the linear algebra under NumPy may hang

_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Cannot allocate memory",
)  # of other libraries
_THREADS = "can't start new thread"


def say(message: str) -> None:
    """Print a message on standard error; a terminal that has gone away is not a failure."""
    try:
        print(printable_lines(message), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _discard(2)


def check_surroundings() -> None:
    """Open what is closed of the standard streams, and refuse surroundings in which nothing can work."""
    closed = [number for number in range(3) if not _is_open(number)]
    for number in closed:
        _discard(number)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without "±" still gets its table
    if 1 in closed or sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        raise InputError("standard output is closed; results have nowhere to go. Send it to a file or to /dev/null.")
    try:
        Path.cwd()
    except OSError:
        raise InputError("the working folder does not exist any more; change to one that does.") from None
    _check_address_space()


def _check_address_space() -> None:
    try:
        import resource
    except ImportError:
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise InputError(
            f"this process may take {limit / 1e6:,.0f} MB of address space (ulimit -v); "
            f"allow {LEAST_ADDRESS_SPACE >> 30} GB or more."
        )


def ending(error: BaseException) -> int:
    """Say why a command ends, and return its exit code."""
    if isinstance(error, SystemExit) and error.code == 128 + signal.SIGINT and _signals.exit_code() != error.code:
        error = KeyboardInterrupt()  # a signal that reached the parser of options, which takes all for Ctrl-C
    ctrl_c = isinstance(error, KeyboardInterrupt) or getattr(error, "code", None) == 128 + signal.SIGINT
    if ctrl_c and _signals.reader_has_gone():
        error = BrokenPipeError()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else DONE if error.code is None else FAILED
    if isinstance(error, InputError):
        say(f"error: {error}")
        return BAD_INPUT
    if isinstance(error, KeyboardInterrupt):
        say("interrupted")
        return _signals.exit_code()
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone
        _discard(1)
        return FAILED
    if (reason := _refusal(error)) is not None:
        say(f"failed: {printable(reason)}")
        return FAILED
    if os.environ.get("SINKSHOT_DEBUG"):
        raise error
    say(f"failed: {type(error).__name__}: {printable(str(error))}")
    say("This is a bug in SinkShot; please report it. SINKSHOT_DEBUG=1 shows the traceback.")
    return FAILED


def _refusal(error: BaseException) -> str | None:
    """Say what the system refused, if that is the reason of an error."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in _MEMORY):
        return "memory ran out; close other programs, allow more (ulimit -v), or ask for less at a time."
    if isinstance(error, RuntimeError) and _THREADS in str(error):
        return "the system starts no more threads; close other programs, or allow more (ulimit -u)."
    if isinstance(error, ImportError):
        return f"a library cannot be loaded: {error}."
    if isinstance(error, OSError):
        place = "" if error.filename is None else f" ({os.fsdecode(error.filename)})"
        return f"{error.strerror or error}{place}."
    return None


def flushed(code: int) -> int:
    """Write out what is left of the results; return the exit code, which says so if that fails."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        _discard(1)
        if not isinstance(error, BrokenPipeError):
            say(f"failed: standard output cannot be written: {getattr(error, 'strerror', None) or error}.")
        return code or FAILED
    return code


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _discard(number: int) -> None:
    """Send a standard stream to nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
