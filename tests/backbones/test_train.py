"""Training: features transfer to new classes, the best weights are kept, and impossible settings are refused."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from pattern_images import patterns, recipe_file

from sinkshot.backbones import checkpoints, networks, recipes
from sinkshot.backbones.backbone import normalised
from sinkshot.backbones.datasets import load
from sinkshot.backbones.devices import Alone, start
from sinkshot.backbones.learner import Learner, Mixing, exchanged, losses, weighted
from sinkshot.backbones.recipes import Head, Loss, Validation
from sinkshot.backbones.state import Average
from sinkshot.backbones.train import train
from sinkshot.backbones.validate import accuracies, features_of
from sinkshot.errors import InputError
from sinkshot.progress import duration

MARGIN_OVER_UNTRAINED = 0.2
MARGIN_OVER_CHANCE = 0.6
QUIET = {"device": "cpu", "progress_seconds": None}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("patterns")
    return load(patterns(root / "base", 16, 16, 0)), load(patterns(root / "other", 8, 16, 1)), root


def few_shot(network, images, mean, std):
    pixels = torch.from_numpy(images.pixels(np.arange(len(images))))
    how = Validation(episodes=300, methods=("ncm",), shots=(1,))
    return accuracies(features_of(network, pixels, mean, std, nullcontext()), images.labels, how)["ncm 1-shot"]


@pytest.mark.slow
def test_few_shot_accuracy_on_new_classes_rises_well_above_chance(toy, tmp_path):
    base, other, root = toy
    changes = {"options.channels": 24, "stage.train.epochs": 12, "validation.every": 4, "validation.episodes": 100}
    recipe = recipes.read(recipe_file(root), changes)
    outcome = train(base, recipe, tmp_path / "run", validation=other, **QUIET)
    assert outcome.finished
    assert outcome.weights.name == "best.safetensors"
    trained = checkpoints.load(outcome.weights)

    torch.manual_seed(0)
    untrained = networks.build("conv4", channels=24, size=16)
    shown = load(root / "other", size=16)
    pixels = torch.from_numpy(shown.pixels(np.arange(len(shown))))
    with torch.no_grad():
        for _ in range(30):  # its batch norms see the images at least
            untrained.train()(normalised(pixels, trained.mean, trained.std))
    after = few_shot(trained.network, shown, trained.mean, trained.std)
    before = few_shot(untrained, shown, trained.mean, trained.std)
    assert after > 0.2 + MARGIN_OVER_CHANCE
    assert after > before + MARGIN_OVER_UNTRAINED


def test_a_run_leaves_metrics_recipe_and_weights_that_can_be_loaded(toy, tmp_path):
    base, other, root = toy
    recipe = recipes.read(recipe_file(root))
    outcome = train(base, recipe, tmp_path, validation=other, tensorboard=True, **QUIET)
    assert {p.suffix for p in tmp_path.iterdir()} >= {".csv", ".json", ".safetensors"}
    assert list(tmp_path.glob("events.out.tfevents.*"))
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [int(row["step"]) for row in rows] == [8, 16, 24, 32]  # 256 images, 32 a step, 4 epochs
    assert [row["validation ncm 1-shot"] != "" for row in rows] == [False, True, False, True]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    for name in ("best", "last"):
        found = checkpoints.load(tmp_path / f"{name}.safetensors")
        assert (found.name, found.size, found.width) == ("conv4", 16, 8)
        assert found.meta["step"].endswith("of 32")
    assert outcome.best >= sum(outcome.validation.values()) / 2


def test_the_published_two_stages_run_on_any_images(toy, tmp_path):
    base, _, _ = toy
    small = {"network": "conv4", "options.channels": 4, "size": 16, "stored": 20}
    short = {"stage.rotation.epochs": 1, "stage.mixup.epochs": 1, "stage.mixup.batch": 64}
    outcome = train(base, recipes.read("s2m2", {**small, **short}), tmp_path, **QUIET)
    assert (outcome.finished, outcome.steps, outcome.best) == (True, 4 + 4, None)
    assert outcome.weights.name == "last.safetensors"
    stages = [row["stage"] for row in csv.DictReader((tmp_path / "metrics.csv").open())]
    assert stages == ["rotation", "mixup"]


@pytest.mark.slow
def test_epochs_can_be_fitted_to_a_time(toy, tmp_path):
    base, _, root = toy
    recipe = recipes.read(recipe_file(root), {"seconds": 2.0, "stage.train.epochs": 1000})
    outcome = train(base, recipe, tmp_path, **QUIET)
    assert outcome.finished
    assert 1 < outcome.steps < 8000


@pytest.mark.timing
def test_a_training_fitted_to_a_time_takes_about_that_time(toy, tmp_path):
    base, _, root = toy
    recipe = recipes.read(recipe_file(root), {"seconds": 2.0, "stage.train.epochs": 1000})
    assert train(base, recipe, tmp_path, **QUIET).seconds < 30  # a busy machine may slow down meanwhile


def test_mixing_in_the_learner_is_the_networks_own_and_so_is_its_gradient():
    torch.manual_seed(0)
    network = networks.build("resnet12", first=4)
    learner = Learner(network, 3, Head()).eval()
    images, lam = torch.randn(6, 3, 32, 32), torch.rand(6)
    partner = torch.tensor([2, 1, 0, 4, 3, 5])
    for depth in range(network.blocks + 1):
        found = []
        for by_learner in (True, False):
            learner.zero_grad()
            mix = (depth, partner, lam)
            turns = learner(images, *mix)[1] if by_learner else learner.turns(network(images, mix))
            turns.square().sum().backward()
            found.append((turns.detach(), network.layers[0].conv1.weight.grad.clone()))
        (ours, our_gradient), (theirs, their_gradient) = found
        assert torch.allclose(ours, theirs, atol=1e-5)
        assert torch.allclose(our_gradient, their_gradient, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_mixing_is_right():
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    lam, partner = torch.rand(5, dtype=torch.float64), torch.tensor([4, 3, 2, 1, 0])
    assert torch.autograd.gradcheck(lambda x: Mixing.apply(x, partner, lam, exchanged), (x,))


def test_losses_are_those_of_their_views():
    torch.manual_seed(0)
    logits, turns = torch.randn(6, 3), torch.randn(6, 4)
    labels, turn = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 0, 0, 0, 3, 1])
    partner, lam = torch.tensor([1, 0, 2, 3, 4, 5]), torch.tensor([0.25, 0.5, 1, 1, 1, 1])
    found = losses((logits, turns), labels, turn, partner, lam, mixed=2, plain=2)
    logs, turn_logs = logits.log_softmax(1), turns.log_softmax(1)
    mixed = -(0.25 * logs[0, 0] + 0.75 * logs[0, 1] + 0.5 * logs[1, 1] + 0.5 * logs[1, 0]) / 2
    assert found["mixed"].item() == pytest.approx(mixed.item(), rel=1e-5)
    assert found["label"].item() == pytest.approx(-logs[range(2, 6), labels[2:]].mean().item(), rel=1e-5)
    assert found["rotation"].item() == pytest.approx(-(turn_logs[4, 3] + turn_logs[5, 1]).item() / 2, rel=1e-5)
    total = weighted(found, Loss(mixed=1, label=0.5, rotation=0.25))
    assert total.item() == pytest.approx((found["mixed"] + found["label"] / 2 + found["rotation"] / 4).item(), rel=1e-5)


def test_an_average_follows_the_weights_and_forgets_them_slowly():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    average = Average(module, 0.9)
    torch.nn.init.ones_(module.weight)
    for step in range(1, 200):
        average.update(step)
        if step == 1:
            assert average.values["weight"].item() == pytest.approx(1 - 2 / 11)
    assert average.values["weight"].item() == pytest.approx(1, abs=1e-3)
    assert module.weight.item() == 1


def test_one_device_needs_no_fabric(toy, tmp_path, monkeypatch):
    base, _, root = toy
    recipe = recipes.read(recipe_file(root))
    train(base, recipe, tmp_path / "fabric", **QUIET)
    there = importlib.util.find_spec
    hidden = lambda name, *more: None if name == "lightning_fabric" else there(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    assert isinstance(start("cpu", 1, "auto"), Alone)
    train(base, recipe, tmp_path / "alone", **QUIET)
    assert (tmp_path / "alone/last.safetensors").read_bytes() == (tmp_path / "fabric/last.safetensors").read_bytes()
    with pytest.raises(InputError, match="several devices need lightning-fabric"):
        start("cpu", 2, "auto")


def test_bf16_trains_too(toy, tmp_path):
    base, other, root = toy
    recipe = recipes.read(recipe_file(root), {"precision": "bf16"})
    outcome = train(base, recipe, tmp_path, validation=other, **QUIET)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert outcome.finished
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert checkpoints.load(outcome.weights).network.layers[0][0].weight.dtype == torch.float32


def test_what_cannot_work_is_refused_before_anything_is_written(toy, tmp_path):
    base, other, root = toy
    recipe = recipes.read(recipe_file(root))
    with pytest.raises(InputError, match="the class 'base00' is used for both training and validation"):
        train(base, recipe, tmp_path / "a", validation=base, **QUIET)
    with pytest.raises(InputError, match="at least two classes"):
        train(base.only([0, 1]), recipe, tmp_path / "a", **QUIET)
    with pytest.raises(InputError, match="more than 5 images each"):
        train(base, recipe, tmp_path / "a", validation=other.only([0, 1, 20, 21]), **QUIET)
    changed = recipes.read(recipe_file(root), {"validation.methods": ["bmz"]})
    with pytest.raises(InputError, match="unknown method 'bmz'; did you mean 'bms'"):
        train(base, changed, tmp_path / "a", validation=other, **QUIET)
    changed = recipes.read(recipe_file(root), {"validation.preprocess": "PEMbE"})
    with pytest.raises(InputError, match="needs a mean of the base classes"):
        train(base, changed, tmp_path / "a", validation=other, **QUIET)
    with pytest.raises(InputError, match="save_seconds must be a number of at least 0; nan was given"):
        train(base, recipe, tmp_path / "c", save_seconds=float("nan"), **QUIET)
    with pytest.raises(InputError, match="1, 2, 4 or 8 devices; 3 were asked for"):
        train(base, recipe, tmp_path / "b", devices=3, **QUIET)
    with pytest.raises(InputError, match="device must be auto, cpu or cuda"):
        train(base, recipe, tmp_path / "b", device="gpu")
    assert not (tmp_path / "a").exists()


FULL = """
import resource, sys
sys.dont_write_bytecode = True  # it would be truncated, and fail in other processes
from sinkshot.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
main()
"""


@pytest.mark.slow
def test_a_disk_that_is_full_is_said_in_a_sentence(toy, tmp_path):
    _, _, root = toy
    words = ("train", root / "base", "--recipe", recipe_file(root), "--out", tmp_path / "run", "--device", "cpu")
    script = [sys.executable, "-c", FULL, *map(str, words)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stderr
    assert re.search(r"error: .*state.safetensors cannot be written: .*File too large", done.stderr)


def test_a_rate_that_is_too_high_is_said(toy, tmp_path):
    base, _, root = toy
    recipe = recipes.read(recipe_file(root), {"stage.train.rate": 1e20, "stage.train.weight_decay": 1.0})
    with pytest.raises(InputError, match=r"the loss is not finite at step \d+; lower the rate of the recipe"):
        train(base, recipe, tmp_path, **QUIET)


def test_times_read_as_clocks_do():
    assert (duration(3725.4), duration(62), duration(0)) == ("1:02:05", "1:02", "0:00")
