"""`sinkshot train` through real processes and real image files."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "backbones"))

from command_line import run_program, sinkshot, start_sinkshot
from image_files import folder
from pattern_images import patterns, recipe_file
from PIL import Image

from sinkshot.backbones.datasets import known

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("patterns")
    patterns(root / "set" / "train", 8, 12, 0)
    patterns(root / "set" / "val", 4, 12, 1)
    patterns(root / "set" / "test", 4, 12, 2)
    recipe_file(root)
    return root


@pytest.mark.slow
def test_one_command_trains_on_the_base_classes_and_validates_on_theirs(toy, tmp_path):
    done = sinkshot("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["finished"], answer["steps"]) == (True, 12)
    assert set(answer["validation"]) == {"ncm 1-shot", "ncm 5-shot"}
    assert Path(answer["weights"]).is_file()
    assert answer["images_per_second"] > 0


def test_a_plain_folder_needs_no_splits_and_people_are_told_what_follows(toy, tmp_path):
    words = ("--recipe", toy / "toy.toml", "--epochs", "1", "--set", "stage.train.batch=16", "--seed", "3")
    done = sinkshot("train", toy / "set" / "train", *words, "--out", tmp_path, *CPU)
    assert done.returncode == 0, done.stderr
    assert "trained 6 steps" in done.stdout
    assert "last.safetensors" in done.stdout
    assert "no validation classes (--validation)" in done.stderr
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 3


def test_a_time_limit_says_how_to_go_on_and_resume_does(toy, tmp_path):
    words = ("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU)
    stopped = sinkshot(*words, "--max-seconds", "0.001")
    assert stopped.returncode == 0
    assert "stopped at step 1 of 12" in stopped.stderr
    assert "--resume to continue" in stopped.stderr
    assert sinkshot(*words).returncode == 2
    assert sinkshot(*words, "--resume").returncode == 0


@pytest.mark.slow
def test_an_interrupt_saves_first(toy, tmp_path):
    words = ("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU, "--epochs", "100000")
    process = start_sinkshot(*words, OMP_NUM_THREADS="1")
    metrics, deadline = tmp_path / "metrics.csv", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and len(metrics.read_text().splitlines()) > 2:
            break
        time.sleep(0.02)
    second = sinkshot("train", "nowhere", "--out", tmp_path, "--resume")  # refused before anything is looked at
    assert second.returncode == 2
    assert f"{tmp_path} is trained in by process {process.pid} on" in second.stderr
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopping after this step" in said
    assert "and saved" in said
    assert "Traceback" not in said


FAULTY = """
import os, signal, sys
from sinkshot.cli import main

def fault(event, given):
    if event == "open" and str(given[0]).endswith("train02/003.png") and os.environ.get("LOCAL_RANK") == "1":
        FAULT

sys.addaudithook(fault)
main()
"""


@pytest.mark.long  # `test_processes` has processes that fail and are killed, without training
@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        (
            "raise OSError(5, 'Input/output error')",
            2,
            "error: 1 thing is wrong with the images:\n"
            "  train/train02/003.png: it cannot be read (Input/output error)\n",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            1,
            "failed: process 2 of 2 was killed by signal 9; the system may have run out of memory. Run the same "
            "command with --resume to continue from the last save. SINKSHOT_DEBUG=1 shows the output of all "
            "processes.\n",
        ),
    ],
)
def test_one_of_two_processes_fails_and_one_sentence_is_said(toy, tmp_path, fault, code, sentence):
    pytest.importorskip("lightning_fabric")
    words = ("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU, "--devices", "2")
    done = run_program(sys.executable, "-c", FAULTY.replace("FAULT", fault), *words, OMP_NUM_THREADS="1")
    assert done.stderr == sentence
    assert done.returncode == code
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--recipe", "modrn"), "unknown recipe 'modrn'; did you mean 'modern'"),
        (("--network", "conv5"), "unknown network 'conv5'; did you mean 'conv4'"),
        (("--set", "augment.jiter=0"), "'jiter'; did you mean 'jitter'"),
        (("--set", "rate"), "--set takes KEY=VALUE"),
        (("--devices", "3"), "1, 2, 4 or 8 devices; 3 were asked for"),
        (("--max-seconds", "-1"), "max_seconds must be a number above 0"),
        (("--validation", "nowhere"), "nowhere does not exist"),
    ],
)
def test_bad_input_is_a_sentence(toy, tmp_path, words, answer):
    given = {"--recipe": str(toy / "toy.toml"), "--out": str(tmp_path), "--device": "cpu", **dict([words])}
    done = sinkshot("train", toy / "set", *(word for pair in given.items() for word in pair))
    assert done.returncode == 2
    assert answer in done.stderr


@pytest.mark.slow
def test_base_and_validation_images_are_enough_and_so_are_base_images_alone(toy, tmp_path):
    words = ("--recipe", toy / "toy.toml", "--epochs", "1", "--set", "stage.train.batch=16", "--subset", *CPU)
    for split, word in (("base", "train"), ("validation", "val")):
        lines = ["filename,label"]
        for name in known.get("mini-imagenet").splits[split]:
            folder(tmp_path / "mini" / "images", [name], each=6, size=20)
            lines += [f"{name}/{index:03d}.png,{name}" for index in range(6)]
        (tmp_path / "mini" / f"{word}.csv").write_text("\n".join(lines))
    done = sinkshot("train", tmp_path / "mini", *words, "--out", tmp_path / "two")
    assert "weights: " in done.stdout, done.stderr
    assert "best.safetensors" in done.stdout
    folder(tmp_path / "base", known.get("cifar-fs").splits["base"], each=1, size=20)
    done = sinkshot("train", tmp_path / "base", *words, "--out", tmp_path / "one")
    assert "last.safetensors" in done.stdout, done.stderr
    folder(tmp_path / "novel", known.get("cifar-fs").splits["novel"], each=1, size=20)
    done = sinkshot("train", tmp_path / "novel", *words, "--out", tmp_path / "none")
    assert done.returncode == 2
    assert "holds no images of the split 'base'" in done.stderr


def test_a_run_that_never_began_is_checked_although_it_is_to_go_on(toy, tmp_path):
    images = patterns(tmp_path / "images", 3, 4, 0)
    (images / "empty").mkdir()
    words = ("--recipe", toy / "toy.toml", "--out", tmp_path / "run", "--resume", *CPU)
    assert "class 'empty' has no images" in sinkshot("train", images, *words).stderr


def test_images_of_any_size_are_trained_on(toy, tmp_path):
    photos = patterns(tmp_path / "photos", 3, 8, 0)
    with Image.open(photos / "photos00" / "000.png") as image:
        image.resize((48, 30)).save(photos / "photos00" / "000.png")
    words = ("--recipe", toy / "toy.toml", "--epochs", "1", "--set", "stage.train.batch=16")
    done = sinkshot("train", photos, *words, "--out", tmp_path / "run", *CPU)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_wrong_with_base_and_validation_images_is_told_at_once_and_a_subset_is_allowed(toy, tmp_path):
    for split in ("base", "validation"):
        folder(tmp_path / "set", known.get("cifar-fs").splits[split], each=7, size=20)
    words = ("train", tmp_path / "set", "--recipe", toy / "toy.toml", "--data-set", "cifar-fs", "--epochs", "1")
    words = (*words, "--out", tmp_path / "run", *CPU)
    done = sinkshot(*words)
    assert done.returncode == 2
    assert "80 things are wrong with the images" in done.stderr
    assert "class 'apple' has 7 images, expected 600" in done.stderr
    (tmp_path / "set" / "apple" / "000.png").write_bytes(b"no image")
    (tmp_path / "set" / "otter" / "006.png").write_bytes(b"no image")
    done = sinkshot(*words, "--subset")
    assert "apple/000.png: it is damaged or not an image" in done.stderr
    assert "otter/006.png: it is damaged or not an image" in done.stderr
    for name in ("apple/000.png", "otter/006.png"):
        (tmp_path / "set" / name).unlink()
    assert sinkshot(*words, "--subset").returncode == 0


def test_missing_images_and_images_that_are_none_are_named(toy, tmp_path):
    broken = patterns(tmp_path / "broken", 3, 4, 0)
    (broken / "broken01" / "002.png").write_bytes(b"not an image")
    for place, answer in (
        (broken, "broken01/002.png: it is damaged or not an image"),
        (tmp_path / "nowhere", "does not exist"),
    ):
        done = sinkshot("train", place, "--recipe", toy / "toy.toml", "--out", tmp_path / "run", *CPU)
        assert done.returncode == 2
        assert answer in done.stderr
