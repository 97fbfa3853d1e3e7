"""A run measures each cell once; numbers do not depend on which process computed them or on interruptions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading

import numpy as np
import pytest
from command_line import ACCEPT_SIGNALS, run_program
from toy_studies import KEY, cell, measured, numbers, query, save

import sinkshot
from sinkshot import FeatureBank, threads
from sinkshot.errors import InputError
from sinkshot.studies.processes import in_processes
from sinkshot.studies.run import RunStopped
from sinkshot.studies.study import BankKey, Measure

SOME = (cell(), cell("bms", shot=5), cell("kmeans", protocol="dirichlet"), cell(protocol="open-set", seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_numbers_are_those_of_one_evaluation(place, blobs, catalogue, workers):
    outcome = measured(place, catalogue, *SOME, workers=workers)
    assert set(outcome.results) == set(SOME)
    for one, stored in outcome.results.items():
        alone = sinkshot.evaluate(blobs, one.recipe, method=one.method)
        np.testing.assert_array_equal(stored.per_episode, alone.per_episode)
        assert (stored.engine, stored.preprocess, stored.recipe) == (alone.engine, alone.preprocess, alone.recipe)
        assert stored.hyper == alone.hyper
        if one.recipe.protocol == "open-set":
            np.testing.assert_array_equal(stored.auroc_per_episode, alone.auroc_per_episode)


@pytest.mark.slow
def test_what_is_there_is_not_measured_again_unless_asked(place, catalogue):
    measured(place, catalogue, *SOME, workers=1)
    query(place, "UPDATE chunks SET finished = 'before'")
    measured(place, catalogue, *SOME, workers=1)
    assert {when for (when,) in query(place, "SELECT finished FROM chunks")} == {"before"}
    measured(place, catalogue, *SOME, workers=1, fresh=True)
    assert "before" not in {when for (when,) in query(place, "SELECT finished FROM chunks")}


def test_more_episodes_cost_only_what_is_missing(tmp_path, place, catalogue):
    measured(place, catalogue, cell(episodes=2500), workers=1)
    query(place, "UPDATE chunks SET finished = 'before'")
    more = measured(place, catalogue, cell(episodes=4000), workers=1)
    parts = query(place, "SELECT first, count, finished = 'before' FROM chunks ORDER BY first")
    assert parts == [(0, 1000, 1), (1000, 1000, 1), (2000, 1000, 0), (3000, 1000, 0)]
    alone = measured(tmp_path / "alone.sqlite", catalogue, cell(episodes=4000), workers=1)
    assert numbers(more) == numbers(alone)


def test_cells_that_settle_alike_are_measured_once(place, catalogue):
    alike = (cell("bms"), cell("bms", preprocess="PEMnE"), cell("bms", hyper={"lam": 8.5}, episodes=700))
    outcome = measured(place, catalogue, *alike)
    assert query(place, "SELECT first, count FROM chunks") == [(0, 1000), (1000, 500)]
    assert [outcome.results[one].episodes for one in alike] == [1500, 1500, 700]


def test_a_missing_bank_is_said_and_the_rest_is_measured(place, catalogue):
    there, missing = cell(episodes=50), cell(key=BankKey("tiered", ("resnet18",)), episodes=50)
    outcome = measured(place, catalogue, missing, there)
    assert list(outcome.results) == [there]
    (sentence,) = outcome.missing
    assert "tiered-imagenet_resnet18_novel.safetensors is missing" in sentence
    assert "--banks DIR" in sentence


def test_a_damaged_bank_is_said_and_the_rest_is_measured(tmp_path, place, blobs):
    (tmp_path / "broken_net_novel.safetensors").write_bytes(b"no tensors")
    outcome = measured(place, save(blobs, tmp_path), cell(key=BankKey("broken", ("net",))), cell(episodes=50))
    assert len(outcome.results) == 1
    assert "broken_net_novel.safetensors" in outcome.missing[0]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_that_cannot_be_measured_does_not_stop_the_others(tmp_path, place, blobs, workers):
    signed = FeatureBank(np.array(blobs.features) - 1, blobs.labels, blobs.class_names)
    too_many = cell(shot=39, episodes=50)
    negative, fine = cell(preprocess="PE", episodes=2500), cell(preprocess="E", episodes=50)
    outcome = measured(place, save(signed, tmp_path), too_many, negative, fine, workers=workers)
    assert list(outcome.results) == [fine]
    assert "39 shots and 5 queries need 44" in outcome.missing[0]
    assert "needs features >= 0" in outcome.missing[1]
    assert len(outcome.missing) == 2


def test_facts_about_features_are_measured_and_kept(place, catalogue):
    what = Measure(KEY, "gaussianity")
    first = measured(place, catalogue, measures=[what])
    assert first.facts[what]
    query(place, "UPDATE facts SET answer = '{\"kept\": 1}'")
    assert measured(place, catalogue, measures=[what]).facts[what] == {"kept": 1}
    assert measured(place, catalogue, measures=[what], fresh=True).facts == first.facts


# --- processes ------------------------------------------------------------------------------------------------------

LONG = tuple(cell("bms", shot=2, hyper={"epochs": 10, "lam": float(lam)}, episodes=2000) for lam in range(5, 8))


@pytest.mark.slow
def test_workers_share_the_cores_out_among_them():
    answers = [str(error) for _, error in in_processes([CoresOfWorker(), CoresOfWorker()], 2)]
    assert answers == 2 * [str(max(1, threads.cores() // 2))]


class CoresOfWorker:
    """In place of a chunk: its worker answers how many cores it has."""

    @property
    def resolved(self):
        raise InputError(str(threads.cores()))


class Unforeseen(CoresOfWorker):
    """In place of a chunk: its worker meets an error that cannot be sent."""

    @property
    def resolved(self):
        raise type("Local", (Exception,), {})("only here")


@pytest.mark.slow
def test_an_unforeseen_error_in_a_worker_comes_home():
    with pytest.raises(RuntimeError, match="Local: only here"):
        list(in_processes([Unforeseen(), Unforeseen()], 2))


INTERRUPTED = f"""{ACCEPT_SIGNALS}
import os, subprocess, sys
from sinkshot.studies.processes import _signals_held_back

try:
    with _signals_held_back():
        signal.raise_signal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        child = subprocess.run([sys.executable, "-c", "import signal; signal.raise_signal(signal.SIGINT)"])
        print("still here", child.returncode)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_while_a_worker_starts_is_not_lost_and_not_seen_by_the_worker():
    assert run_program(sys.executable, "-c", INTERRUPTED).stdout.split("\n") == ["still here 0", "interrupted", ""]


@pytest.fixture(scope="module")
def calm(tmp_path_factory, blobs):
    """The numbers of an undisturbed run of `LONG`."""
    folder = tmp_path_factory.mktemp("calm")
    return numbers(measured(folder / "calm.sqlite", save(blobs, folder), *LONG, workers=1))


def alter(file, how, other):
    if how == "deleted":
        file.unlink()
    elif how == "cut short":
        os.truncate(file, file.stat().st_size // 2)
    else:
        other.save(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "workers"),
    [
        ("deleted", 2),
        ("cut short", 1),
        ("replaced", 1),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in (("deleted", 1), ("cut short", 2), ("replaced", 2))),
    ],
)
def test_a_bank_that_changes_ends_the_run_in_a_sentence_and_what_is_done_is_kept(
    tmp_path, place, blobs, calm, how, workers
):
    catalogue = save(blobs, tmp_path)
    file = tmp_path / "toy_net_novel.safetensors"
    other = FeatureBank(np.array(blobs.features) + 1, blobs.labels, blobs.class_names)

    def meddle(state):
        if state.episodes_left < 5000 and not altered:
            altered.append(alter(file, how, other))

    altered = []
    with pytest.raises(InputError, match=r"novel.safetensors was (deleted|changed) while .* of 3 cells are finished"):
        measured(place, catalogue, *LONG, workers=workers, progress=meddle)
    assert multiprocessing.active_children() == []
    kept = query(place, "SELECT cell, first FROM chunks")
    assert 2 <= len(kept) < 6
    query(place, "UPDATE chunks SET finished = 'before'")
    blobs.save(file)
    after = measured(place, catalogue, *LONG, workers=1)
    assert len(query(place, "SELECT * FROM chunks WHERE finished = 'before'")) == len(kept)
    assert numbers(after) == calm


def test_a_bank_that_is_written_again_with_the_same_features_does_not_end_a_run(tmp_path, place, blobs):
    catalogue = save(blobs, tmp_path)
    file = tmp_path / "toy_net_novel.safetensors"
    outcome = measured(place, catalogue, *LONG, workers=1, progress=lambda _: blobs.save(file))
    assert len(outcome.results) == 3


@pytest.mark.slow
def test_a_killed_worker_is_survived(place, catalogue, calm):
    killed = []

    def kill_once(state):
        if state.episodes_left < 6000 and not killed:
            worker = multiprocessing.active_children()[0]
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)

    disturbed = measured(place, catalogue, *LONG, workers=2, progress=kill_once)
    assert killed
    assert numbers(disturbed) == calm


def test_workers_that_are_always_killed_end_in_a_sentence(place, catalogue):
    over = threading.Event()

    def kill_all():
        while not over.wait(0.01):
            for child in multiprocessing.active_children():
                child.kill()

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(InputError, match="killed 3 times"):
            measured(place, catalogue, *LONG, workers=2)
    finally:
        over.set()
        killer.join()


@pytest.mark.slow
def test_workers_of_an_interrupted_run_are_gone_and_its_chunks_are_kept(place, catalogue, calm):
    def interrupt(state):
        if state.episodes_left < 5000:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped) as stopped:
        measured(place, catalogue, *LONG, workers=2, progress=interrupt)
    assert multiprocessing.active_children() == []
    assert stopped.value.done < stopped.value.cells == 3
    kept = query(place, "SELECT cell, first FROM chunks")
    assert len(kept) >= 2
    query(place, "UPDATE chunks SET finished = 'before'")
    after = measured(place, catalogue, *LONG, workers=1)
    assert len(query(place, "SELECT * FROM chunks WHERE finished = 'before'")) == len(kept)
    assert numbers(after) == calm


def test_what_another_run_stored_meanwhile_is_not_measured(place, catalogue):
    met = []

    def let_another_be_faster(state):
        if not met:
            met.append(state)
            measured(place, catalogue, *LONG, workers=1)
            query(place, "UPDATE chunks SET finished = 'before'")

    measured(place, catalogue, *LONG, workers=1, progress=let_another_be_faster)
    assert met[0].episodes_left == 6000
    assert {when for (when,) in query(place, "SELECT finished FROM chunks")} == {"before"}


def test_progress_counts_cells_and_foretells_time(place, catalogue):
    states = []
    measured(place, catalogue, *LONG, workers=1, progress=states.append)
    assert [states[0].done, states[-1].done, states[-1].episodes_left] == [0, 3, 0]
    assert sorted(state.episodes_left for state in states)[::-1] == [state.episodes_left for state in states]
    assert states[0].seconds_left is None
    assert all(state.seconds_left > 0 for state in states[1:-1])
    assert states[1].current == "bms, 2-shot"


def test_the_number_of_workers_must_be_sensible(place, catalogue):
    with pytest.raises(InputError, match="at least 1"):
        measured(place, catalogue, workers=0)
