"""One process at a time holds a lock, and the lock ends with its process."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys

import pytest

from sinkshot.errors import InputError
from sinkshot.locks import alone, must_be_free

WORDS = ("the folder is used", "take another")
HOLD = """
import sys, time
from pathlib import Path
from sinkshot.locks import alone

with alone(Path(sys.argv[1]), "", ""):
    print("held", flush=True)
    time.sleep(600)
"""
TAKE_TURNS = """
import os, sys
from pathlib import Path
from sinkshot.errors import InputError
from sinkshot.locks import alone

lock, inside, turns = Path(sys.argv[1]), sys.argv[1] + ".inside", 0
while turns < 300:
    try:
        with alone(lock, "", ""):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where another is inside
            os.unlink(inside)
            turns += 1
    except InputError:
        pass
"""


def test_the_second_process_is_told_who_holds_it_until_that_one_is_killed(tmp_path):
    lock = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        sentence = (
            f"the folder is used by process {holder.pid} on {socket.gethostname()} right now; let it end or stop it"
        )
        for take in (alone, must_be_free):
            with pytest.raises(InputError, match=sentence), take(lock, *WORDS):
                pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert lock.exists()
    with alone(lock, *WORDS), pytest.raises(InputError, match="the folder is used"):
        must_be_free(lock, *WORDS)
    assert not lock.exists()


@pytest.mark.slow
def test_no_two_are_inside_although_the_file_comes_and_goes(tmp_path):
    words = [sys.executable, "-c", TAKE_TURNS, str(tmp_path / "lock")]
    processes = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()
    assert not list(tmp_path.iterdir())


def test_where_there_are_no_locks_nobody_is_refused(tmp_path, monkeypatch):
    lock = tmp_path / "lock"
    with alone(tmp_path / "nowhere" / "lock", *WORDS):
        pass
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", _refuse)
        with alone(lock, *WORDS), alone(lock, *WORDS):
            pass
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with alone(lock, *WORDS), alone(lock, *WORDS):
        pass


def _refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")
