"""A run that is killed repeatedly ends with the results of an undisturbed one, except times."""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import sqlite3
import time

import psutil
import pytest
from command_line import sinkshot, start_sinkshot
from toy_studies import save

WORDS = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "report", "--workers", "2")
STUDY = """
title = "Toys"
kind = "curve"
where = "Figure 0"

[defaults]
data_set = "toy"
backbone = "net"
way = 5
query = 10
episodes = 2_000

[[sheets]]
label = "toys"
axis = "lambda"

[sheets.sweep]
set.lam = [2, 8, 20]

[[sheets.rows]]
label = "BMS"
method = "bms"
shot = 2
set.epochs = 10

[[sheets.rows]]
label = "BMS*"
method = "bms-star"
shot = 2
set.epochs = 10

[[claims]]
text = "The optimum lies in the middle."
rule = "optimum-between"
low = 4
high = 10
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="kills groups of processes")]


@pytest.fixture
def folder(tmp_path, blobs):
    def make(name):
        home = tmp_path / name
        (home / "banks").mkdir(parents=True)
        save(blobs, home / "banks")
        (home / "toys.toml").write_text(STUDY)
        return home

    return make


def start(home):
    return start_sinkshot(*WORDS, cwd=home)


def finish(home):
    run = start(home)
    output, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    return output


def finish_here(home):
    """Run the command in this process, without workers: quicker, and results do not depend on it."""
    done = sinkshot(*WORDS[:-1], "1", cwd=home)
    assert done.returncode == 0, done.stderr


def stored(home):
    with sqlite3.connect(home / "report" / "results.sqlite") as database:
        cells = "settings, seed, bank, engine, cells.version, first, count, accuracy, auroc, aupr, fpr95"
        return database.execute(
            f"SELECT {cells} FROM chunks JOIN cells ON cells.id = cell ORDER BY settings, first"
        ).fetchall()


def reported(home):
    """The files of a report, without times."""
    report = home / "report"
    page = re.sub(r"<time.*?</time>", "", (report / "index.html").read_text(), flags=re.DOTALL)
    with (report / "cells.csv").open(newline="") as file:
        cells = [{k: v for k, v in row.items() if k not in ("seconds", "finished")} for row in csv.DictReader(file)]
    return page, cells, (report / "tables.tex").read_text()


def chunks(home):
    store = home / "report" / "results.sqlite"
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(store) as database:
            return database.execute("SELECT count(*) FROM chunks").fetchone()[0]
    except sqlite3.OperationalError:  # it has no tables yet
        return 0


def until_stored(run, home, count):
    """Wait until this many chunks are stored; fail if the run ends before."""
    while chunks(home) < count:
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)


@pytest.mark.long
def test_the_report_after_a_kill_is_that_of_an_undisturbed_run(folder):
    calm, harmed = folder("calm"), folder("harmed")
    finish_here(calm)
    run = start(harmed)
    until_stored(run, harmed, 3)
    kill(run)
    assert chunks(harmed) >= 3  # nothing that was stored is lost
    assert chunks(harmed) < chunks(calm)
    finish_here(harmed)
    assert stored(harmed) == stored(calm) != []
    assert reported(harmed) == reported(calm)


@pytest.mark.long
def test_the_report_after_many_kills_at_random_moments_is_that_of_an_undisturbed_run(folder):
    calm, harmed = folder("calm"), folder("harmed")
    began = time.monotonic()
    finish(calm)
    whole = time.monotonic() - began
    chance = random.Random(os.environ.get("SINKSHOT_SEED", "kills"))
    progress = []
    for _ in range(10):
        run = start(harmed)
        time.sleep(chance.uniform(0.1, 0.6) * whole)
        kill(run)
        progress.append(chunks(harmed))
    assert progress == sorted(progress)
    finish(harmed)
    assert stored(harmed) == stored(calm) != []
    assert reported(harmed) == reported(calm)


def kill(run):
    """Kill a run and its workers."""
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()


def test_workers_do_not_outlive_a_run_that_is_killed_alone(folder):
    home = folder("alone")
    run = start(home)
    until_stored(run, home, 1)
    family = psutil.Process(run.pid).children(recursive=True)
    assert len(family) >= 2
    run.kill()
    run.communicate()
    psutil.wait_procs(family, timeout=10)
    assert not any(map(lives, family))


def lives(process):
    """Whether a process still runs; a zombie does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interrupt_keeps_what_is_finished_and_says_so(folder):
    home = folder("interrupted")
    run = start(home)
    until_stored(run, home, 2)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert re.fullmatch(
        r"([0-6] of 6 cells done, .*\n)*"  # a slow machine tells how far it is
        r"interrupted; [0-5] of 6 cells are done and kept in report/results.sqlite. "
        "Run the same command to continue. No report was written.\n",
        errors,
    )
    assert chunks(home) >= 2
    assert not (home / "report" / "index.html").exists()
