"""A run that was stopped or killed and resumed ends with the same weights."""

from __future__ import annotations

import csv
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pattern_images import patterns, recipe_file

from sinkshot.backbones import recipes, state
from sinkshot.backbones.datasets import load
from sinkshot.backbones.train import must_be_free, train
from sinkshot.errors import InputError

QUIET = {"device": "cpu", "progress_seconds": None, "deterministic": True}
PROGRAM = """
import sys, torch
from sinkshot.backbones import recipes
from sinkshot.backbones.datasets import load
from sinkshot.backbones.train import must_be_free, train

torch.set_num_threads(1)
base, other, recipe, run = sys.argv[1:]
print("ready", flush=True)
train(load(base), recipes.read(recipe), run, validation=load(other), device="cpu", deterministic=True, save_seconds=0)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("patterns")
    patterns(root / "base", 8, 16, 0)
    patterns(root / "other", 4, 12, 1)
    recipe_file(root, "options = { channels = 4 }\n[stage.train]\nepochs = 30\n")
    return root


@pytest.fixture(scope="module")
def undisturbed(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    train(load(toy / "base"), recipe(toy), folder, validation=load(toy / "other"), **QUIET)
    return folder


def recipe(toy, **changes):
    return recipes.read(toy / "other.toml", changes)


def same_weights(a, b):
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("last.safetensors", "best.safetensors"))


@pytest.mark.long
def test_a_run_killed_at_a_random_step_ends_with_the_same_weights(toy, undisturbed, tmp_path):
    """While it lives, no other process trains in its folder."""
    words = [sys.executable, "-c", PROGRAM, *map(str, (toy / "base", toy / "other", toy / "other.toml", tmp_path))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    target, metrics = random.SystemRandom().randrange(4, 100), tmp_path / "metrics.csv"
    try:
        while process.poll() is None and _last_step(metrics) < target:
            time.sleep(0.01)
        with pytest.raises(InputError, match=f"is trained in by process {process.pid} on .* take another folder"):
            must_be_free(tmp_path)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    facts, _ = state.load(tmp_path / state.FILE)
    assert target - 4 <= facts["step"] < 120  # written after its row of metrics, of which there is one in four steps
    outcome = train(load(toy / "base"), recipe(toy), tmp_path, validation=load(toy / "other"), resume=True, **QUIET)
    assert outcome.finished
    assert same_weights(tmp_path, undisturbed)
    steps = [int(row["step"]) for row in csv.DictReader(metrics.open())]
    assert steps == list(range(4, 121, 4))  # none twice, none missing
    assert not (tmp_path / "run.lock").exists()


def _last_step(metrics):
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return int(lines[-1].split(",")[0]) if len(lines) > 1 and lines[-1].split(",")[0].isdigit() else 0


@pytest.mark.slow
def test_stopping_again_and_again_changes_nothing(toy, undisturbed, tmp_path):
    base, other, calls = load(toy / "base"), load(toy / "other"), 0
    for steps in (1, 6, 31, 7, 1000):  # between two rows of metrics, too
        left = iter([False] * (steps - 1) + [True])
        outcome = train(
            base, recipe(toy), tmp_path, validation=other, resume=True, stop=lambda left=left: next(left, True), **QUIET
        )
        calls += steps
        assert outcome.step == min(120, calls)
    assert outcome.finished
    assert same_weights(tmp_path, undisturbed)
    again = train(base, recipe(toy), tmp_path, validation=other, resume=True, **QUIET)
    assert again.finished
    assert again.best == outcome.best
    assert same_weights(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_time_limit_saves_and_stops(toy, undisturbed, tmp_path):
    base, other = load(toy / "base"), load(toy / "other")
    first = train(base, recipe(toy), tmp_path, validation=other, max_seconds=0.001, **QUIET)
    assert (first.finished, first.step) == (False, 1)
    assert train(base, recipe(toy), tmp_path, validation=other, resume=True, **QUIET).finished
    assert same_weights(tmp_path, undisturbed)


@pytest.mark.slow
def test_both_stages_of_the_published_recipe_resume_exactly(toy, tmp_path):
    changes = {"network": "wrn-28-10", "options": {"depth": 10, "widen": 1, "dropout": 0.3}, "size": 16, "stored": 20}
    short = {"stage.rotation.epochs": 2, "stage.mixup.epochs": 2, "stage.mixup.batch": 32, "ema": 0.9}
    chosen = recipes.read("s2m2", {**changes, **short})
    base = load(toy / "base")
    train(base, chosen, tmp_path / "whole", **QUIET)
    for steps in (2, 5, 100):  # within the first stage, within the second
        left = iter([False] * (steps - 1) + [True])
        done = train(base, chosen, tmp_path / "parts", resume=True, stop=lambda left=left: next(left, True), **QUIET)
    assert (done.finished, done.steps) == (True, 4 + 8)
    assert (tmp_path / "parts/last.safetensors").read_bytes() == (tmp_path / "whole/last.safetensors").read_bytes()


@pytest.mark.slow
def test_streamed_images_train_as_held_ones_do(toy, undisturbed, tmp_path):
    train(load(toy / "base"), recipe(toy), tmp_path, validation=load(toy / "other"), hold="no", **QUIET)
    assert same_weights(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_fitted_length_is_decided_once(toy, tmp_path):
    base, chosen = load(toy / "base"), recipe(toy, seconds=1.5)
    first = train(base, chosen, tmp_path, max_seconds=0.001, **QUIET)
    second = train(base, chosen, tmp_path, resume=True, **QUIET)
    assert first.steps == second.steps == second.step


def test_another_recipe_other_images_or_a_forgotten_flag_are_refused(toy, tmp_path):
    base = load(toy / "base")
    train(base, recipe(toy), tmp_path, max_seconds=0.001, **QUIET)
    with pytest.raises(InputError, match="already holds a run"):
        train(base, recipe(toy), tmp_path, **QUIET)
    with pytest.raises(InputError, match=r"a different recipe \(stage.train.rate = 0.05 there and 0.1 here\)"):
        train(base, recipe(toy, **{"stage.train.rate": 0.1}), tmp_path, resume=True, **QUIET)
    with pytest.raises(InputError, match="other images or classes"):
        train(load(toy / "other"), recipe(toy), tmp_path, resume=True, **QUIET)
    with pytest.raises(InputError, match="other images or classes"):  # as many, of the same classes
        train(base.only(np.r_[1, 1 : len(base)]), recipe(toy), tmp_path, resume=True, **QUIET)
    (tmp_path / state.FILE).write_bytes(b"broken")
    with pytest.raises(InputError, match="not the state of a training run"):
        train(base, recipe(toy), tmp_path, resume=True, **QUIET)
