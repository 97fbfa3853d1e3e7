"""`label --next N` names the items to label next: from zero labels on, without near-twins, and finds classes early."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from command_line import sinkshot

from sinkshot.label.run import label


@pytest.fixture
def birds(tmp_path):
    """A table of 4 classes of 30 rows in 24 columns, each row twice; returns the file and the truth by name."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 30)
    rows = rng.gamma(1 + 2.0 * (truth[:, None] == np.arange(24) % 4))
    names = [f"{c}-{i}{twin}" for i, c in enumerate(truth) for twin in "ab"]
    with (tmp_path / "birds.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", *(f"x{j}" for j in range(24))])
        writer.writerows(
            [name, "", *(f"{v:.6f}" for v in row)] for name, row in zip(names, np.repeat(rows, 2, axis=0), strict=True)
        )
    return tmp_path / "birds.csv"


def asked(birds, *words):
    done = sinkshot("label", birds.name, "--next", "6", "--out", "out", "--json", *words, cwd=birds.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["next"]


def test_the_first_items_are_of_every_class_and_no_twins(birds):
    names = asked(birds)
    assert len(names) == 6
    assert {name.split("-")[0] for name in names} == set("0123")
    assert len({name[:-1] for name in names}) == 6


def test_later_items_are_new_and_no_twins_of_labelled_ones(birds):
    first = asked(birds)
    (birds.parent / "given.csv").write_text("id,label\n" + "".join(f"{name},class {name[0]}\n" for name in first))
    later = asked(birds, "--labels", "given.csv", "--unknown", "1")
    assert len(later) == 6
    assert len({name[:-1] for name in [*first, *later]}) == len(first) + len(later)


def test_there_are_suggestions_without_twins_though_every_item_seems_sure(tmp_path):
    rng, truth = np.random.default_rng(0), np.repeat(np.arange(3), 40)
    rows = np.repeat(rng.gamma(1 + 20.0 * (truth[::2, None] == np.arange(24) % 3)), 2, axis=0)  # each item twice
    labels = np.where(np.arange(120) % 40 < 6, truth, -1)
    labels[truth == 2] = -1
    np.savez(tmp_path / "vectors.npz", features=rows, labels=labels)
    found = label(tmp_path / "vectors.npz", unknown=None, next_count=10)
    predicted = found.to_frame().query("source == 'predicted'")
    sure = np.maximum(predicted.confidence, predicted.unknown)  # of a class, or of none: class 2 has no label
    assert (sure > 0.995).all()
    numbers = [found.items.names.index(name) for name in found.summary["next"]]
    assert len({number // 2 for number in numbers}) == 10
    assert all(labels[number] < 0 and labels[number ^ 1] < 0 for number in numbers)


def test_the_command_prints_them(birds):
    (birds.parent / "given.csv").write_text("id,label\n0-0a,robin\n1-30a,wren\n2-60a,owl\n3-90a,gull\n")
    words = ("label", birds.name, "--labels", "given.csv", "--next", "3", "--out", "out", "--unknown", "1")
    done = sinkshot(*words, cwd=birds.parent)
    assert done.returncode == 0, done.stderr
    wanted = json.loads((birds.parent / "out" / "summary.json").read_text())["next"]
    assert wanted
    assert done.stdout.split()[-len(wanted) :] == wanted
