"""The leaderboard's tool for a GPU shares the work among processes, and continues what a call has left."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from sinkshot.studies.chunks import CHUNK

TOOL = Path(__file__).parent.parent / "tools" / "gpu_leaderboard.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("gpu_leaderboard", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_leaderboard"] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_leaderboard"]


@pytest.fixture
def where(tool, tmp_path):
    return tool.Where(tmp_path, "cpu")


def test_slow_cells_are_cut_into_chunks_and_cheap_ones_stay_whole(tool, where):
    tasks, notes = tool.tasks_of(["adaptive-manifold", "ncm", "openmax"], 10 * CHUNK, where)
    slow = [task for task in tasks if task.method == "adaptive-manifold"]
    cheap = [task for task in tasks if task.method == "ncm"]
    banks = len({task.cell.bank for task in cheap})  # those at hand
    assert len(cheap) == 6 * banks  # a task for each column
    assert {task.count for task in cheap} == {10 * CHUNK}
    assert len(slow) > 2 * len(cheap)
    assert sum(task.count for task in slow) == 6 * banks * 10 * CHUNK
    assert any("openmax needs at least 2 supports" in note for note in notes)


def test_parts_do_not_reach_over_chunks_that_are_stored(tool, where):
    ((found, *_), *_) = ([*tool.resolved("ncm", bank, 5 * CHUNK, "cpu")[0].values()] for bank in tool.BANKS)
    lacking = tool.missing_chunks(found, {CHUNK: CHUNK})
    assert list(tool.parts(lacking, 1e-6)) == [(0, CHUNK), (2 * CHUNK, 3 * CHUNK)]
    assert list(tool.parts(lacking, 1.0)) == [(first * CHUNK, CHUNK) for first in (0, 2, 3, 4)]


def test_a_process_keeps_its_method_and_then_takes_what_has_most_left(tool, where):
    tasks, _ = tool.tasks_of(["adaptive-manifold", "distribution-calibration", "ncm"], 10 * CHUNK, where)
    waiting = tool.Waiting(tasks)
    assert waiting.take(Counter(), 2).method == "adaptive-manifold"
    busy = Counter({"adaptive-manifold": 2})
    assert waiting.take(busy, 2).method == "distribution-calibration"
    assert waiting.take(busy, 2, before="ncm").method == "ncm"
    assert waiting.take(busy, 2, before="adaptive-manifold").method == "distribution-calibration"
    waiting.drop("distribution-calibration")
    waiting.drop("ncm")
    assert waiting.take(busy, 2).method == "adaptive-manifold"  # nothing else is left


def test_every_task_is_taken_once(tool, where):
    tasks, _ = tool.tasks_of(["adaptive-manifold", "ncm"], 2 * CHUNK, where)
    waiting, taken = tool.Waiting(tasks), []
    while waiting:
        taken.append(waiting.take(Counter(), 3))
    assert Counter(map(str, taken)) == Counter(map(str, tasks))
    assert max(Counter(map(str, taken)).values()) == 1


def test_what_a_call_has_stored_is_not_done_again(tool, where, monkeypatch):
    monkeypatch.setattr(tool, "BANKS", tool.BANKS[:1])
    tasks, _ = tool.tasks_of(["ncm"], 20, where)
    for task in tasks[:-1]:
        tool.do(task, 20, where)
    left, _ = tool.tasks_of(["ncm"], 20, where)
    assert left == tasks[-1:]
    assert tool.finished(["ncm"], 20, where) == []
    tool.do(left[0], 20, where)
    assert tool.finished(["ncm"], 20, where) == [("ncm", tool.BANKS[0])]
    outcome = tool.measured([("ncm", tool.BANKS[0])], 20, where)
    assert {result.episodes for result in outcome.results.values()} == {20}


def test_the_time_of_all_calls_is_added_up(tool, where, capsys):
    for seconds in (3.0, 4.5):
        tool.conclude(tool.Board(where, 20, 2, 0.0), [], [], seconds)
    assert "in all calls: 3 + 4 = 8 s" in capsys.readouterr().out
    assert json.loads((where.out / "summary.json").read_text())["seconds"] == 7.5
