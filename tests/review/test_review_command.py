"""`sinkshot label --review` as a command: what it refuses, and that `label` counts the decisions of a review."""

from __future__ import annotations

import socket
import sys
import time

import numpy as np
import pytest
from command_line import sinkshot
from review_server import PATIENCE, colour_codes, labels_of

from sinkshot.label.decisions import NAME, DecisionLog
from sinkshot.label.run import label


@pytest.fixture
def vectors(tmp_path):
    codes = np.arange(60) % 3
    features = np.random.default_rng(0).gamma(1.0 + 5.0 * (codes[:, None] == np.arange(12) % 3))
    np.savez(tmp_path / "vectors.npz", features=features, labels=np.where(np.arange(60) < 9, codes, -1))
    return tmp_path / "vectors.npz"


def test_without_the_extra_the_pip_command_is_told(vectors, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = sinkshot("label", vectors, "--review", "--out", tmp_path / "labels")
    assert done.returncode == 2
    assert done.stderr == 'error: a review needs Starlette and uvicorn: pip install "sinkshot[app]".\n'


@pytest.mark.parametrize("option", [["--json"], ["--save", "x.safetensors"], ["--export", "folders"]])
def test_options_that_a_review_does_not_take_are_refused(vectors, option):
    done = sinkshot("label", vectors, "--review", *option)
    assert done.returncode == 2
    assert "--review takes no" in done.stderr


def test_an_address_for_the_results_is_refused_with_a_sentence(vectors):
    done = sinkshot("label", vectors, "--review", "--out", "s3://bucket/labels")
    assert done.returncode == 2
    assert "--out takes a folder here" in done.stderr


def test_a_port_in_use_is_refused_with_a_sentence(vectors, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = sinkshot("label", vectors, "--review", "--port", port, "--out", tmp_path / "labels")
    assert done.returncode == 2
    assert f"port {port} cannot be used" in done.stderr


@pytest.mark.slow
def test_label_counts_the_decisions_of_a_review(photos, tmp_path):
    out = tmp_path / "labels"
    options = {"encoder": colour_codes, "size": 8, "name": "colours", "out": out, "unknown": None}
    first = label(photos, **options)
    name = next(name for name in first.items.names if name.startswith("_unlabeled/red"))
    other = next(name for name in first.items.names if name.startswith("_unlabeled/green"))
    assert labels_of(out)[other] == ("green", "predicted")
    log = DecisionLog(out / NAME)
    log.append("identity-1", "label", items=(name,), label="a new class")
    log.append("identity-2", "reject", items=(other,), label="green")
    log.close()
    told = []
    label(photos, **options, tell=told.append)
    assert any("2 decisions of a review" in line for line in told)
    assert labels_of(out)[name] == ("a new class", "accepted")
    assert labels_of(out)[other][0] != "green"
    assert labels_of(out)[other][1] == "predicted"


@pytest.mark.slow
def test_a_review_begins_without_any_label(tmp_path, start):
    np.savez(tmp_path / "bare.npz", features=np.random.default_rng(0).gamma(1.0, size=(40, 8)))
    words = ["-m", "sinkshot", "label", tmp_path / "bare.npz", "--review", "--no-open", "--out", tmp_path / "labels"]
    server = start(tmp_path / "bare.npz", tmp_path / "labels", *words, program="")
    end = time.monotonic() + PATIENCE
    while not (state := server.state())["next"] and time.monotonic() < end:
        time.sleep(0.05)
    assert len(state["next"]) == 10
    assert server.decide("label", items=state["next"][:2], label="first")[0] == 200
    assert server.decide("label", items=state["next"][2:4], label="second")[0] == 200
    assert server.fitted(2)["counts"]["accepted"] == 4
    assert server.interrupt()[0] == 0
    assert sum(source == "accepted" for _, source in labels_of(tmp_path / "labels").values()) == 4
