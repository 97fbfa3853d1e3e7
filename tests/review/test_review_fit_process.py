"""The process in which a review fits: it answers as `classify` does, outlives nobody, and a review outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from review_server import PATIENCE, labels_of

from sinkshot.errors import InputError
from sinkshot.label.classifier import classify
from sinkshot.label.items import Items
from sinkshot.review import desk, fit_process
from sinkshot.review.child_process import ProcessEndedError
from sinkshot.review.fit_process import FitProcess, Setup
from sinkshot.review.likeness import Likeness
from sinkshot.review.refit import MOST_ENDS, Refitter, Worker
from sinkshot.review.state import Review

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
ROWS = 90


def pool():
    """Features of three classes, of which each has four labels."""
    codes = np.arange(ROWS) % 3
    features = np.random.default_rng(0).gamma(1.0 + 5.0 * (codes[:, None] == np.arange(12) % 3)).astype(np.float32)
    labels = tuple("abc"[code] if row < 12 else None for row, code in enumerate(codes))
    return features, labels


@pytest.fixture(scope="module")
def process():
    with FitProcess() as running:
        running.setup = Setup(pool()[0], "sinkshot", 0.5, 5)
        yield running


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def children(pid):
    """Numbers of the processes that a process started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
def test_it_answers_as_the_same_functions_do_here(process):
    features, labels = pool()
    accepted = np.zeros(ROWS, dtype=bool)
    found = process.ask("fit", labels, accepted)
    here = classify(Items("embeddings", ("",) * ROWS, labels, accepted), features, next_count=5)
    np.testing.assert_allclose(found.probabilities, here.probabilities, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.left_out, here.model.left_out_distributions_, rtol=0, atol=1e-6)
    assert (found.labels, found.sources, found.suspicious) == (here.labels, here.sources, here.suspicious)
    assert found.model is None
    assert found.report.leave_one_out == here.report.leave_one_out
    assert process.ask("next", labels) == here.next_rows
    rows = np.arange(20, 60)
    assert process.ask("groups", rows) == tuple(map(tuple, Likeness(features).groups(rows)))


@pytest.mark.slow
def test_it_starts_again_after_its_end_and_says_how_it_ended(process):
    _, labels = pool()
    told = []
    process.ended = told.append
    before = process.ask("fit", labels, np.zeros(ROWS, dtype=bool))
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: told)
    assert told == ["by SIGKILL, perhaps because memory ran out"]
    assert process.ask("next", labels) is None  # nothing is fitted yet in the new process
    again = process.ask("fit", labels, np.zeros(ROWS, dtype=bool))
    np.testing.assert_array_equal(before.probabilities, again.probabilities)


@pytest.mark.slow
def test_errors_come_back_as_sentences_and_it_goes_on(process):
    features, labels = pool()
    accepted = np.zeros(ROWS, dtype=bool)
    with pytest.raises(RuntimeError, match="IndexError"):
        process.ask("groups", np.array([5, 6, 7, ROWS + 5]))
    with FitProcess() as other:
        other.setup = Setup(features, "no-such-method", 0.5, 5)
        with pytest.raises(InputError, match="no-such-method"):
            other.ask("fit", labels, accepted)
    with pytest.raises(ProcessEndedError):
        other.ask("fit", labels, accepted)
    assert process.ask("fit", labels, accepted).classes == ("a", "b", "c")


def test_a_process_that_always_ends_is_left_alone_until_the_next_decision(process, tmp_path):
    features, labels = pool()
    items = Items("embeddings", tuple(map(str, range(ROWS))), labels, np.zeros(ROWS, dtype=bool))
    review = Review(items, features, tmp_path)
    refitter = Refitter(review, process, lambda: None)
    for ends in range(1, MOST_ENDS + 1):
        refitter.worker = Worker(lambda: None, 0.1, 0.1)
        process.ended("by SIGKILL")
        assert refitter.worker.waiting == (ends < MOST_ENDS)
    assert review.trouble.endswith("stay as they are until your next decision. All that you decided is saved.")


@pytest.mark.slow
@linux
def test_it_ends_with_a_killed_server_at_once():
    program = "from sinkshot.review.fit_process import FitProcess as F; print(F().pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        fitting = int(server.stdout.readline())
        assert Path(f"/proc/{fitting}").exists()
        server.kill()
    until(lambda: not Path(f"/proc/{fitting}").exists())


def processes_of(server):
    """Numbers of the process that keeps the state, and of the one that fits."""
    (keeping,) = children(server.process.pid)
    until(lambda: children(keeping))
    (fitting,) = children(keeping)
    return keeping, fitting


@linux
@pytest.mark.slow
def test_a_review_outlives_its_processes_and_ends_them_after_ctrl_c(photos, tmp_path, start):
    """First the process that fits is killed, then the one that keeps the state; decisions made meanwhile count."""
    server = start(photos, tmp_path / "labels")
    before = server.fitted()
    keeping, fitting = processes_of(server)
    priority = os.getpriority(os.PRIO_PROCESS, server.process.pid)
    for process, lower in ((keeping, desk.NICE), (fitting, desk.NICE + fit_process.NICE)):
        threads = [int(path.name) for path in Path(f"/proc/{process}/task").iterdir()]
        assert len(threads) > 2  # also those that a library began when it was imported
        assert {os.getpriority(os.PRIO_PROCESS, one) for one in threads} == {min(19, priority + lower)}
    os.kill(fitting, signal.SIGKILL)
    row = before["label"].index(0, before["source"].index(0))
    assert server.decide("label", items=[row], label="red")[0] == 200
    said = []
    until(lambda: said.append(server.state()["trouble"]) or said[-1])
    assert "it starts again. All that you decided is saved." in said[-1]
    after = server.fitted(1)
    assert after["fit"]["number"] > before["fit"]["number"]
    assert after["trouble"] == ""
    keeping, fitting = processes_of(server)
    os.kill(keeping, signal.SIGKILL)
    assert server.decide("label", items=[row + 1], label="new class")[0] == 200
    until(lambda: server.ask("state")[0] == 200)
    assert server.fitted(2)["counts"]["accepted"] == 2
    until(lambda: not Path(f"/proc/{fitting}").exists())
    ended = processes_of(server)
    code, told = server.interrupt()
    assert (code, "Traceback" in told) == (0, False)
    assert not any(Path(f"/proc/{number}").exists() for number in ended)
    labels = list(labels_of(tmp_path / "labels").values())
    assert labels[row : row + 2] == [("red", "accepted"), ("new class", "accepted")]
