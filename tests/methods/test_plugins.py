"""Methods of the user's own: files that are named, and entry points of installed packages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from command_line import sinkshot

from sinkshot import METHODS, InputError, Recipe, evaluate
from sinkshot.methods import get, plugins

BUNDLED = "cifar-fs_wrn-28-10_novel"
QUICK = ("--episodes", "20", "--json")
DOCS = Path(__file__).parents[2] / "docs" / "studies.md"
STUDY = """
title = "Own"
[defaults]
data_set = "cifar-fs"
backbone = "wrn-28-10"
episodes = 40
[[sheets]]
rows = [{ label = "own", method = "nearest" }, { label = "NCM", method = "ncm" }]
"""


@pytest.fixture
def own(tmp_path):
    """The plugin that docs/studies.md shows."""
    (source,) = re.findall(r"```python\n# own.py\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "own.py"
    file.write_text(source)
    return file


@pytest.fixture(autouse=True)
def nothing_is_left():
    methods, loaded = dict(METHODS), dict(plugins._LOADED)
    yield
    METHODS.clear()
    METHODS.update(methods)
    plugins._LOADED.clear()
    plugins._LOADED.update(loaded)
    plugins.load_entry_points.cache_clear()


def test_the_plugin_of_the_docs_is_evaluated_beside_others(own):
    done = sinkshot("eval", BUNDLED, "--plugin", own, "--method", "nearest", "--method", "ncm", *QUICK)
    assert done.returncode == 0, done.stderr
    ours, _ = json.loads(done.stdout)["results"]
    assert ours["method"] == "nearest"
    assert ours["accuracy"] > 0.6


@pytest.mark.slow
def test_a_study_with_a_plugin_runs_in_worker_processes(own, tmp_path):
    (tmp_path / "own.toml").write_text(STUDY)
    words = ("--plugin", own, "--study", tmp_path / "own.toml", "--workers", "2", "--out", tmp_path / "r", "--json")
    done = sinkshot("reproduce", *words)
    assert done.returncode == 0, done.stderr
    assert [place["row"] for place in json.loads(done.stdout)["places"]] == ["own", "NCM"]


def test_methods_and_tune_know_it(own):
    assert "nearest" in json.loads(sinkshot("methods", "--plugin", own, "--json").stdout)
    done = sinkshot(
        "tune", BUNDLED, "--classes", "0-9", "--plugin", own, "--method", "nearest", "--grid", "sharpness=1,10", *QUICK
    )
    assert done.returncode == 0, done.stderr


def test_the_plugin_of_the_docs_refuses_a_wrong_hyper_parameter(own, blobs):
    plugins.load_file(own)
    recipe = Recipe(way=3, shot=1, query=2, episodes=2)
    with pytest.raises(InputError, match=r"sharpness must be a number above 0; -1\.0 was given"):
        evaluate(blobs, recipe, method="nearest", sharpness=-1.0)


def test_a_method_whose_plugin_was_not_named_gives_a_hint_at_it():
    with pytest.raises(InputError, match=r"unknown method 'nearest'.*--plugin FILE\.py"):
        get("nearest")


def test_an_edit_is_another_version_and_takes_the_place_of_the_first(own):
    from sinkshot.studies.code_version import code_version

    assert plugins.load_file(own) == ("nearest",)
    assert plugins.load_file(own) == ("nearest",)  # it does not run again
    before = code_version("nearest")
    own.write_text(own.read_text().replace("10.0", "20.0"))
    plugins.load_file(own)
    assert get("nearest").hyper == {"sharpness": 20.0}
    assert code_version("nearest") != before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sinkshot\n1 / 0\n", "with ZeroDivisionError in line 2: division by zero"),
        ("def broken(:\n", "with SyntaxError in line 1"),
        ("x = 1\n", "registers no method"),
        (
            "from sinkshot import METHODS, register\n"
            "register('ncm', transductive=False, preprocess='', reference='')(METHODS['ncm'].function)\n",
            "in line 2: a method called 'ncm' is registered already",
        ),
    ],
)
def test_a_plugin_that_fails_says_where_and_leaves_nothing(tmp_path, source, words):
    file, before = tmp_path / "own.py", dict(METHODS)
    file.write_text(source)
    with pytest.raises(InputError, match=re.escape(words)):
        plugins.load_file(file)
    assert before == METHODS


def test_a_file_that_is_not_there_ends_in_a_sentence(tmp_path):
    done = sinkshot("eval", BUNDLED, "--plugin", tmp_path / "none.py")
    assert done.returncode == 2
    assert "is not a Python file" in " ".join(done.stderr.split())


def test_an_installed_package_offers_methods_by_its_entry_point(own, tmp_path, monkeypatch):
    own.rename(tmp_path / "offered_methods.py")
    about = tmp_path / "offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sinkshot.methods]\nnearest = offered_methods\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.load_entry_points.cache_clear()
    try:
        assert get("nearest").name == "nearest"
    finally:
        sys.modules.pop("offered_methods", None)
