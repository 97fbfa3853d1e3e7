"""`sinkshot tune`, and `eval` on the other classes, through real processes and real files."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from command_line import sinkshot
from test_commands import QUICK

import sinkshot as package

BUNDLED = "cifar-fs_wrn-28-10_novel"


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Ten classes that overlap, of unknown split."""
    rng = np.random.default_rng(2)
    x = np.abs(np.repeat(rng.gamma(1.0, 1.0, (10, 16)), 30, axis=0) + 0.6 * rng.normal(size=(300, 16)))
    path = tmp_path_factory.mktemp("banks") / "mine.npz"
    np.savez(path, features=x.astype(np.float32), labels=np.repeat(np.arange(10), 30))
    return path


def test_candidates_are_ranked_and_where_none_is_better_the_default_stays(bank):
    done = sinkshot("tune", bank, "--method", "bms", "--grid", "lam=0.001,0.01", "--preprocess", "E", *QUICK)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(?:default|--).* (\d+)  +(\d+\.\d\d) ± \d", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 5  # the default, and two values with two chains
    assert "Nothing beats the default." in done.stdout
    assert "The split of this bank is unknown" in done.stdout


def test_json_is_one_object_that_python_gives_too(bank):
    words = ("--method", "matching", "--grid", "temperature=0.1,10", "--shot", "3", *QUICK)
    done = sinkshot("tune", bank, *words, "--json")
    answer = json.loads(done.stdout)
    recipe = package.Recipe(way=4, shot=3, query=5, episodes=20)
    same = package.tune(package.load(bank), recipe, method="matching", grid={"temperature": [0.1, 10]})
    assert answer == json.loads(json.dumps(same.to_dict()))
    assert {"method", "default", "candidates", "check", "improved", "best"} <= set(answer)
    assert "The split of this bank is unknown" in done.stderr


@pytest.mark.slow
def test_novel_classes_are_refused_unless_some_are_set_apart_and_the_others_can_be_evaluated(tmp_path):
    words = ("--preprocess", "PE", "--method", "paddle", *QUICK)  # of which raw features are not the best
    done = sinkshot("tune", BUNDLED, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "these are novel classes (its meta says split 'novel')" in done.stderr
    done = sinkshot("tune", BUNDLED, *words, "--classes", "0-7,9")
    assert done.returncode == 0, done.stderr
    assert "Use: --preprocess PE" in done.stdout
    assert "--method paddle --classes 8,10-19" in done.stdout
    rest = sinkshot("eval", BUNDLED, "--method", "paddle", "--classes", "8,10-19", *QUICK, "--json")
    assert json.loads(rest.stdout)["episodes"] == 20


def test_a_name_that_says_novel_is_enough(bank):
    named = bank.with_name("cub_wrn_novel.npz")
    named.write_bytes(bank.read_bytes())
    done = sinkshot("tune", named, "--method", "bms", "--grid", "lam=4", *QUICK)
    assert done.returncode == 2
    assert "its name is cub_wrn_novel.npz" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--grid", "lam"), "--grid takes KEY=VALUE"),
        (("--grid", "lamda=4"), "did you mean 'lam'"),
        ((), "are the only candidate"),
        (("--grid", "lam=4", "--metric", "f1"), "--metric must be one of accuracy, auroc, aupr, fpr95"),
    ],
)
def test_what_cannot_be_searched_is_said_without_a_traceback(bank, words, sentence):
    done = sinkshot("tune", bank, *words, *QUICK)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
