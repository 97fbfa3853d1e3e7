"""Direct connections to workers: results in order, a worker that dies, errors, and strangers who connect."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sinkshot import InputError
from sinkshot.parted import direct_lines
from sinkshot.parted.direct_lines import DirectLines
from sinkshot.workers import crew

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow  # starts processes


@pytest.fixture
def lines() -> Iterator[DirectLines]:
    """Return lines to two processes."""
    with crew(2) as client:
        made = DirectLines(client)
        yield made
        made.close()


def who(job: int) -> tuple[int, int]:
    """Return the job and the process."""
    return job, os.getpid()


def fatal(job: tuple[Path, int]) -> int:
    """Kill the process of the first job that gets here; return the number of the job."""
    try:
        job[0].touch(exist_ok=False)
    except FileExistsError:
        return job[1]
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


def refused(job: int) -> int:
    """Refuse job 3 with a sentence."""
    if job == 3:
        raise InputError("job 3 is refused")
    return job


def broken(job: int) -> int:
    """Fail unexpectedly on job 2."""
    return 1 // (job - 2)


def test_results_come_in_order_from_all_workers(lines: DirectLines) -> None:
    """Jobs are divided among both workers, pass after pass, without the scheduler."""
    for _ in range(20):
        found = lines.map(who, range(7))
        assert [job for job, _ in found] == list(range(7))
        assert len({process for _, process in found} - {os.getpid()}) == 2
    assert len(lines.map(who, [5])) == 1
    assert not lines.client.futures, "no job went by way of the scheduler"


def test_jobs_of_a_worker_that_dies_are_done_again(lines: DirectLines, tmp_path: Path) -> None:
    """The pass in which it dies is complete, and a new worker takes part later."""
    before = {process for _, process in lines.map(who, range(4))}
    assert lines.map(fatal, [(tmp_path / "dead", number) for number in range(6)]) == list(range(6))
    deadline, after = time.monotonic() + 60, set[int]()
    while (len(after) < 2 or after == before) and time.monotonic() < deadline:
        after = {process for _, process in lines.map(who, range(4))}
    assert len(after) == 2
    assert len(after & before) == 1


def test_errors_are_those_of_the_jobs(lines: DirectLines) -> None:
    """A sentence is passed on; an unexpected error is raised as it was; the lines live on."""
    with pytest.raises(InputError, match="job 3 is refused"):
        lines.map(refused, range(6))
    with pytest.raises(ZeroDivisionError):
        lines.map(broken, range(6))
    assert lines.map(refused, [7, 8]) == [7, 8]


def test_who_does_not_know_the_token_is_not_served(lines: DirectLines) -> None:
    """A worker hangs up on others, unread, and waits on for the command."""
    token = b"t" * 32
    worker, port = next(iter(lines.client.run(direct_lines.listen, token).items()))
    host = worker.split("//")[1].split(":")[0]
    with socket.create_connection((host, port), timeout=10) as stranger:
        stranger.sendall(b"x" * 32)
        assert not _received(stranger)
    with socket.create_connection((host, port), timeout=10) as known:
        message = direct_lines.pickle.dumps((who, [1, 2]))
        known.sendall(token + direct_lines._HEAD.pack(len(message), 1, 2) + message)
        answer: Any = direct_lines._read_message(known)
        assert direct_lines.pickle.loads(answer[2])[0][0] == 2


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""
