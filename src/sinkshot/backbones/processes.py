"""Several processes of one run: only the first prints; when one fails, all end and the first failure is reported."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JSM_NAMESPACE_RANK", "LOCAL_RANK")
"""What tells a process its number among all, by who launched it: torchrun, Slurm, MPI, LSF; the last is ours."""
FIRST, REPORT = "SINKSHOT_FIRST", "SINKSHOT_REPORT"  # the first process's id; the file that says what failed first
GRACE = 5.0  # seconds for a process to notice by itself that another has gone
INTERRUPTED = (130, -signal.SIGINT)

_SET = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", FIRST, REPORT)

_others: list[subprocess.Popen[bytes]] = []


class Ended(RuntimeError):
    """A process of the run ended without a report, for example because it was killed."""


def is_first(count: int) -> bool:
    """Whether this is rank 0, which prints and writes."""
    ranks = RANKS[-1:] if REPORT in os.environ else RANKS if "LOCAL_RANK" in os.environ else RANKS[1:]
    return count == 1 or next((os.environ[key] for key in ranks if key in os.environ), "0") == "0"


def be_silent() -> None:
    """Silence stderr on non-zero ranks."""
    if not is_first(2) and REPORT in os.environ and not os.environ.get("SINKSHOT_DEBUG"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def launch(count: int) -> None:
    """Start this command again for each further device; environment variables give the ranks."""
    folder = tempfile.mkdtemp(prefix="sinkshot-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "NODE_RANK": "0"}
    ours = {"LOCAL_RANK": "0", "WORLD_SIZE": str(count), FIRST: str(os.getpid()), REPORT: f"{folder}/failure.json"}
    os.environ.update({**where, **ours})
    command = [sys.executable, *sys.orig_argv[1:]]
    ranks = map(str, range(1, count))
    _others.extend(subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": rank}) for rank in ranks)


@contextlib.contextmanager
def together(count: int) -> Iterator[None]:
    """End all `count` processes when one fails; rank 0 raises the first failure.

    Processes that something else has launched (torchrun, Slurm) are left to it.
    """
    over = threading.Event()
    if count > 1:
        threading.Thread(target=_watch, args=(over,), daemon=True).start()
    try:
        yield
    except BaseException as error:
        over.set()
        if count == 1 or REPORT not in os.environ:
            raise
        if not _others:
            _report(error)
            raise
        cause = _cause(error)
        _end_others()
        if cause is error:
            raise
        raise cause from error
    finally:
        over.set()


def _report(error: BaseException) -> bool:
    """Say why this process fails, unless another has failed before; return whether it was the first."""
    kind = "input" if isinstance(error, InputError) else "interrupt" if isinstance(error, KeyboardInterrupt) else ""
    report, words = Path(os.environ[REPORT]), f"{error}" if kind else f"{type(error).__name__}: {error}"
    draft = report.with_name(f"{os.getpid()}.json")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps({"kind": kind, "words": words, "process": os.getpid()}))
        os.link(draft, report)  # whole, and only if there is none
    return bool(_reported().get("process") == os.getpid())


def _reported() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(os.environ[REPORT]).read_text())
    except OSError:
        return {}
    return found


def _cause(error: BaseException | None) -> BaseException:
    """Return what failed first: `error`, which the first process has met, or what another has met before.

    An error that is nobody's fault may come of another process's end, so a while is given to learn of that.
    """
    own = isinstance(error, InputError | KeyboardInterrupt) and _report(error)
    if error is not None and not own:
        patience = time.monotonic() + GRACE
        while not _reported().get("kind") and not _ended() and time.monotonic() < patience:
            time.sleep(0.02)
    report, ended = _reported(), _ended()
    if error is not None and (own or not (report or ended)):
        return error
    if report.get("kind") == "input":
        return InputError(*report["words"].split("\n  "))
    if report.get("kind") == "interrupt" or any(code in INTERRUPTED for code in ended.values()):
        return KeyboardInterrupt()
    for number, code in ended.items():
        if code < 0 or not report:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            memory = "; the system may have run out of memory" if code == -signal.SIGKILL else ""
            return Ended(
                f"process {number} of {len(_others) + 1} {how}{memory}. Run the same command with --resume to "
                "continue from the last save. SINKSHOT_DEBUG=1 shows the output of all processes."
            )
    return RuntimeError(report["words"])


def _ended() -> dict[int, int]:
    """Return the exit codes of the other processes that have failed, by number, the first process being 1."""
    return {number: code for number, other in enumerate(_others, 2) if (code := other.poll())}


def _end_others() -> None:
    for other in _others:
        other.kill()
        other.wait()
    _others.clear()
    shutil.rmtree(Path(os.environ[REPORT]).parent, ignore_errors=True)
    for key in _SET:  # so that another run of this program may launch its own
        os.environ.pop(key, None)


def _watch(over: threading.Event) -> None:
    """End a process that would wait forever for a dead one in a collective operation."""
    launched = os.name == "posix" and FIRST in os.environ and not is_first(2)
    while not over.wait(0.2):
        if launched and os.getppid() != int(os.environ[FIRST]):
            os._exit(1)
        if _ended() and not over.wait(GRACE):
            cause = _cause(None)
            _end_others()
            code, word = (2, "error: ") if isinstance(cause, InputError) else (1, "failed: ")
            if isinstance(cause, KeyboardInterrupt):
                code, word = 130, "interrupted"
            shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a bar of progress hides the cursor
            print(f"{shown}{word}{cause}", file=sys.stderr, flush=True)
            os._exit(code)
