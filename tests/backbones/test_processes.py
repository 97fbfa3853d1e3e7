"""A run of several processes: whichever fails, there is one error message and no process is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys, time
import typer
from pathlib import Path
from sinkshot.backbones import processes
from sinkshot.cli._console import guarded
from sinkshot.errors import InputError

processes.GRACE = 0.3
here = Path(sys.argv[1])

@guarded
def run():
    processes.be_silent()
    with processes.together(2):
        if processes.is_first(2) and "LOCAL_RANK" not in os.environ:
            processes.launch(2)
        (here / os.environ["LOCAL_RANK"]).write_text(str(os.getpid()))
        while not (here / "0").exists() or not (here / "1").exists():
            time.sleep(0.01)
        exec(sys.argv[2 + int(os.environ["LOCAL_RANK"])])

try:
    run()
except typer.Exit as end:
    sys.exit(end.exit_code)
"""
WAIT = "time.sleep(600)"  # as in a collective operation that never ends
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


KILLED = "failed: process 2 of 2 was killed by signal 9; the system may have run out of memory."
GO_ON = (
    "Run the same command with --resume to continue from the last save. SINKSHOT_DEBUG=1 shows the output of all "
    "processes."
)


def started(tmp_path, first, second):
    """Run two processes that do what is given once both have started."""
    for name in ("meeting", "temporary"):
        (tmp_path / name).mkdir()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "meeting"), first, second]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)


def gone(tmp_path, rank):
    """Whether the process of this rank has ended, within a while."""
    number, patience = int((tmp_path / "meeting" / str(rank)).read_text()), time.monotonic() + 20
    while time.monotonic() < patience:
        try:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:  # not every container has somebody who reaps
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("first", "second", "code", "sentence"),
    [
        (WAIT, "raise InputError('the disk is gone.')", 2, "error: the disk is gone."),
        ("raise InputError('the disk is full.')", WAIT, 2, "error: the disk is full."),
        (
            WAIT,
            KILL,
            1,
            f"{KILLED} {GO_ON}",
        ),
        (WAIT, "raise ValueError('odd')", 1, "failed: ValueError: odd"),
        (WAIT, "os._exit(7)", 1, f"failed: process 2 of 2 ended with exit code 7. {GO_ON}"),
        (WAIT, "raise KeyboardInterrupt", 130, "interrupted"),
    ],
)
def test_whoever_fails_one_sentence_is_said_and_all_end(tmp_path, first, second, code, sentence):
    process = started(tmp_path, first, second)
    _, said = process.communicate(timeout=60)
    assert said == sentence + "\n"
    assert process.returncode == code
    assert gone(tmp_path, 1)
    assert not list((tmp_path / "temporary").iterdir())


def test_an_error_that_came_of_anothers_end_is_not_what_is_told(tmp_path):
    first = "processes._others[0].wait(); raise RuntimeError('connection closed by peer')"
    process = started(tmp_path, first, "raise InputError('the disk is gone.')")
    assert process.communicate(timeout=60)[1] == "error: the disk is gone.\n"
    assert process.returncode == 2


def test_when_the_first_is_killed_the_others_end(tmp_path):
    process = started(tmp_path, KILL, WAIT)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGKILL
    assert gone(tmp_path, 1)
