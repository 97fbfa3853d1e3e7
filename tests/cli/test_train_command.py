"""`sinkshot train`, as a person meets it: real processes, real image files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "backbones"))

from patterns import patterns, recipe_file
from typer.testing import CliRunner

from sinkshot.cli.app import app

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("patterns")
    patterns(root / "set" / "train", 8, 12, 0)
    patterns(root / "set" / "val", 4, 12, 1)
    patterns(root / "set" / "test", 4, 12, 2)
    recipe_file(root)
    return root


def sinkshot(*words):
    """The command in this process: its exit code, standard output and standard error."""
    return CliRunner().invoke(app, [str(word) for word in words])


def test_one_command_trains_on_the_base_classes_and_validates_on_theirs(toy, tmp_path):
    done = sinkshot("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["finished"], answer["steps"]) == (True, 12)
    assert set(answer["validation"]) == {"ncm 1-shot", "ncm 5-shot"}
    assert Path(answer["weights"]).is_file()
    assert answer["images_per_second"] > 0


def test_a_plain_folder_needs_no_splits_and_people_are_told_what_follows(toy, tmp_path):
    words = ("--recipe", toy / "toy.toml", "--epochs", "1", "--set", "stage.train.batch=16", "--seed", "3")
    done = sinkshot("train", toy / "set" / "train", *words, "--out", tmp_path, *CPU)
    assert done.exit_code == 0, done.output
    assert "trained 6 steps" in done.stdout
    assert "last.safetensors" in done.stdout
    assert "no validation classes are given" in done.stderr
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 3


def test_a_time_limit_says_how_to_go_on_and_resume_does(toy, tmp_path):
    words = ("train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU)
    stopped = sinkshot(*words, "--max-seconds", "0.001")
    assert stopped.exit_code == 0
    assert "stopped at step 1 of 12" in stopped.stderr
    assert "--resume goes on" in stopped.stderr
    assert sinkshot(*words).exit_code == 2
    assert sinkshot(*words, "--resume").exit_code == 0


def test_an_interrupt_saves_first(toy, tmp_path):
    words = ["train", toy / "set", "--recipe", toy / "toy.toml", "--out", tmp_path, *CPU, "--epochs", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sinkshot", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics, deadline = tmp_path / "metrics.csv", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and len(metrics.read_text().splitlines()) > 2:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopping after this step" in said
    assert "and saved" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--recipe", "modrn"), "unknown recipe 'modrn'; did you mean 'modern'"),
        (("--network", "conv5"), "unknown network 'conv5'; did you mean 'conv4'"),
        (("--set", "augment.jiter=0"), "'jiter'; did you mean 'jitter'"),
        (("--set", "rate"), "--set takes key=value"),
        (("--devices", "3"), "1, 2, 4 or 8 devices; 3 were asked for"),
        (("--max-seconds", "-1"), "max_seconds must be a number above 0"),
        (("--validation", "nowhere"), "nowhere does not exist"),
    ],
)
def test_bad_input_is_a_sentence(toy, tmp_path, words, answer):
    given = {"--recipe": str(toy / "toy.toml"), "--out": str(tmp_path), "--device": "cpu", **dict([words])}
    done = sinkshot("train", toy / "set", *(word for pair in given.items() for word in pair))
    assert done.exit_code == 2
    assert answer in done.stderr


def test_missing_images_and_images_that_are_none_are_named(toy, tmp_path):
    broken = patterns(tmp_path / "broken", 3, 4, 0)
    (broken / "broken01" / "002.png").write_bytes(b"not an image")
    for place, answer in ((broken, "broken01/002.png: it is no image"), (tmp_path / "nowhere", "does not exist")):
        done = sinkshot("train", place, "--recipe", toy / "toy.toml", "--out", tmp_path / "run", *CPU)
        assert done.exit_code == 2
        assert answer in done.stderr
