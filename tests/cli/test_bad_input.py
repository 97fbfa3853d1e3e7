"""Bad input ends in a sentence and exit code 2: every row of the contract's table, through the command."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from command_line import sinkshot
from test_commands import QUICK


def features():
    return np.random.default_rng(0).random((80, 6)).astype(np.float32)


LABELS = np.repeat(np.arange(4), 20)


def npz(folder, x=None, y=LABELS, **more):
    path = folder / "bank.npz"
    np.savez(path, features=features() if x is None else x, labels=y, **more)
    return path


def refused(*words):
    done = sinkshot(*words)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_not_a_number_or_infinity_names_row_and_column(tmp_path, value, word):
    x = features()
    x[31, 4] = value
    x[60, 0] = value
    message = refused("eval", npz(tmp_path, x), *QUICK)
    assert word.lower() in message.lower()
    assert "row 31" in message
    assert "column 4" in message


def test_negative_entries_under_p_name_the_row_and_suggest_ps(tmp_path):
    x = features()
    x[12, 1] = -0.5
    message = refused("eval", npz(tmp_path, x), *QUICK)
    assert "row 12" in message
    assert "Ps" in message
    assert sinkshot("eval", npz(tmp_path, x), "--preprocess", "PsEMnE", *QUICK).returncode == 0


def test_a_small_class_is_named_with_count_and_need(tmp_path):
    y = LABELS.copy()
    y[:17] = 3
    message = refused("eval", npz(tmp_path, y=y, class_names=["owl", "jay", "tit", "emu"]), *QUICK)
    assert "'owl'" in message
    assert "3 rows" in message
    assert "need 6" in message


def test_a_way_above_the_number_of_classes_is_refused(tmp_path):
    assert "the bank has 4" in refused("eval", npz(tmp_path), "--way", "5")


def test_a_zero_vector_gives_one_warning_with_the_count(tmp_path):
    x = features()
    x[[3, 50, 70]] = 0
    done = sinkshot("eval", npz(tmp_path, x), "--preprocess", "E", *QUICK)
    assert done.returncode == 0
    assert done.stderr.count("warning:") == 1
    assert "3 rows" in done.stderr


def test_lengths_ranks_and_broken_files_are_told_apart(tmp_path):
    assert "80" in refused("eval", npz(tmp_path, y=LABELS[:50]), *QUICK)
    refused("info", npz(tmp_path, features()[0]))
    refused("info", npz(tmp_path, features()[None]))
    (tmp_path / "empty.npz").write_bytes(b"")
    assert "empty.npz" in refused("info", tmp_path / "empty.npz")
    for suffix in ("npz", "safetensors", "npy", "plk"):
        whole = tmp_path / f"whole.{suffix}"
        if suffix == "npy":
            np.save(whole, features())
            np.save(tmp_path / "whole_labels.npy", LABELS)
            np.save(tmp_path / "cut_labels.npy", LABELS)
        elif suffix == "plk":
            whole.write_bytes(pickle.dumps({k: list(features()[k == LABELS]) for k in range(4)}))
        else:
            assert sinkshot("convert", npz(tmp_path), whole).returncode == 0
        cut = tmp_path / f"cut.{suffix}"
        cut.write_bytes(whole.read_bytes()[:-300])
        assert f"cut.{suffix}" in refused("info", cut)
    assert "nowhere.npz" in refused("info", tmp_path / "nowhere.npz")
    (tmp_path / "notes.txt").write_text("hello")
    assert "notes.txt" in refused("info", tmp_path / "notes.txt")


class Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


def test_a_hostile_pickle_is_refused_by_name_and_never_runs(tmp_path):
    target = tmp_path / "created-by-the-pickle"
    path = tmp_path / "output.plk"
    path.write_bytes(pickle.dumps({0: [np.zeros(3)], 1: [Evil(target)]}))
    for command in (("info", path), ("eval", path, *QUICK), ("convert", path, tmp_path / "out.safetensors")):
        assert "open" in refused(*command)
        assert not target.exists()
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("--method", "soft-kmean"), "'soft-kmeans'"),
        (("--preprocess", "PEQE"), "'QE'"),
        (("--set", "epoch=3"), "'epochs'"),
        (("--set", "epochs"), "KEY=VALUE"),
        (("--protocol", "open-sets"), "'open-set'"),
        (("--engine", "nunpy"), "'numpy'"),
        (("--set", "variant=letters"), "'letter'"),
        (("--set", "prior=0.1,0.2"), "proportions"),
    ],
    ids=str,
)
def test_unknown_names_come_with_the_nearest_known_ones(tmp_path, words, near):
    assert near in refused("eval", npz(tmp_path), *QUICK, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--protocol", "dirichlet", "--alpha", "0"), "alpha must be a number above 0; 0.0 was given"),
        (("--protocol", "dirichlet", "--alpha", "nan"), "alpha must be a number above 0; nan was given"),
        (("--protocol", "long-tail", "--ratio", "0.9"), "ratio (largest to smallest class) must be at least 1"),
        (("--protocol", "long-tail", "--query", "12"), "the largest class of a long tail"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(tmp_path, words, sentence):
    assert sentence in refused("eval", npz(tmp_path), *QUICK, *words)
