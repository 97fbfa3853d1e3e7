"""The command `sinkshot` in tests: in this process, which is quick, or in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

# A process that was started in the background or by nohup ignores Ctrl-C or a hang-up, and so do its children. A
# program that a test sends such a signal begins with this line.
ACCEPT_SIGNALS = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "hasattr(signal, 'SIGHUP') and signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
)


def sinkshot(*words: object, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """Run `sinkshot WORDS` in this process."""
    from sinkshot.cli.app import app

    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def sinkshot_process(*words: object, cwd: Any = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `sinkshot WORDS` in a process of its own, as a person does."""
    return run_program(sys.executable, "-m", "sinkshot", *words, cwd=cwd, **environment)


def run_program(*words: object, cwd: Any = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output as text."""
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=240,
        check=False,
    )


def start_sinkshot(*words: object, before: str = "", cwd: Any = None, **environment: str) -> subprocess.Popen[str]:
    """Start `sinkshot WORDS` as a process group leader that receives signals, wherever tests are run.

    `before` is a program that runs first, in the same process.
    """
    program = ACCEPT_SIGNALS + before + "from sinkshot.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
    )
