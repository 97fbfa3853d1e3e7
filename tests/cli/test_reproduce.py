"""`sinkshot reproduce` and `sinkshot compare`, through real processes and real files."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import numpy as np
import pytest
from command_line import sinkshot, sinkshot_process

from sinkshot import FeatureBank
from sinkshot.cli.reproduce import progress_line
from sinkshot.studies.progress import RunProgress

STUDY = """
title = "Toys"
where = "Table 0"
columns = [
  { label = "1-shot", shot = 1 },
  { label = "2-shot", shot = 2 },
]

[defaults]
data_set = "toy"
backbone = "net"
way = 4
query = 5
episodes = 40

[[sheets]]
label = "toys"
rows = [
  { label = "NCM", method = "ncm", values = ["90.00 ± 0.10", ""] },
  { label = "k-means", method = "kmeans", values = ["", ""] },
  { label = "other", method = "bms", backbone = "missing", values = ["", ""] },
]

[[claims]]
text = "k-means is above NCM."
rule = "row-above-row"
row = "k-means"
other = "NCM"
"""


def write_banks(folder, blobs):
    (folder / "banks").mkdir()
    blobs.save(folder / "banks" / "toy_net_novel.safetensors")
    (folder / "toys.toml").write_text(STUDY)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder in which the study was run, and the command's output."""
    rng = np.random.default_rng(0)
    features = np.abs(np.repeat(rng.gamma(1.0, 1.0, (8, 24)), 40, axis=0) + rng.normal(size=(320, 24)))
    folder = tmp_path_factory.mktemp("home")
    write_banks(folder, FeatureBank.from_arrays(features.astype(np.float32), np.repeat(np.arange(8), 40)))
    done = sinkshot_process("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "first", cwd=folder)
    assert done.returncode == 0, done.stderr
    folder.joinpath("said").write_text(done.stdout)
    return folder


@pytest.mark.slow
def test_the_command_prints_numbers_claims_what_is_missing_and_the_report(home):
    said = (home / "said").read_text()
    assert re.search(r"NCM +\d\d\.\d\d ± \d\.\d\d \(90\.00\) +\d\d\.\d\d ± \d\.\d\d *\n", said)
    assert re.search(r"(yes|no|\?) +Table 0: k-means is above NCM\. +toys", said)
    assert "a feature file is missing: toy_missing_novel" in said
    assert "--banks DIR" in said
    assert str(home / "first" / "index.html") in said
    assert (home / "first" / "index.html").stat().st_size > 10_000


@pytest.mark.slow
def test_json_is_one_object_and_nothing_else(home):
    words = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "first", "--json")
    done = sinkshot_process(*words, cwd=home)
    answer = json.loads(done.stdout)
    assert done.stderr == ""
    assert [(p["row"], p["column"]) for p in answer["places"]] == [
        (row, column) for row in ("NCM", "k-means") for column in ("1-shot", "2-shot")
    ]
    assert answer["places"][0]["paper"] == {"text": "90.00 ± 0.10", "mean": 0.9, "ci95": 0.001}  # shares, as ours
    assert 0 < answer["places"][0]["mean"] < 1
    assert answer["places"][0]["result"]["episodes"] == 40
    judged = {"holds": True, "does not hold": False, "cannot be told": None}
    assert answer["claims"]
    assert all(claim["holds"] is judged[claim["verdict"]] for claim in answer["claims"])
    assert len(answer["missing"]) == 1


def test_list_says_what_each_study_needs_and_which_banks_are_there(home):
    words = ("reproduce", "--list", "--study", "toys.toml", "--study", "table-5", "--banks", "banks")
    listed = json.loads(sinkshot(*words, "--json", cwd=home).stdout)
    toys, table = listed["studies"]
    assert (toys["possible"], toys["cells"], toys["missing"]) == (4, 6, ["toy_missing_novel"])
    assert table["possible"] > 0
    assert listed["banks"]["toy, net"] == str(home / "banks" / "toy_net_novel.safetensors")
    told = sinkshot(*words, cwd=home).stdout
    assert re.search(r"toys\S* +Table 0 +Toys +4 of 6 +toy_missing_novel", told)
    assert not (home / "sinkshot-report").exists()


def test_a_file_that_a_banks_toml_names_and_that_is_gone_is_said(home, tmp_path):
    (tmp_path / "banks.toml").write_text('[[banks]]\ndata_set = "toy"\nbackbone = "missing"\nfile = "gone.npz"\n')
    words = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--banks", tmp_path, "--out", "first")
    said = sinkshot(*words, cwd=home).stdout
    assert f"A banks.toml names {tmp_path / 'gone.npz'}, which does not exist." in said
    assert "Put it into a folder as" in said


def test_episodes_and_seed_are_the_persons(home):
    words = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "second", "--json")
    answer = json.loads(sinkshot(*words, "--episodes", "30", "--seed", "5", cwd=home).stdout)
    assert {(p["result"]["episodes"], p["result"]["seed"]) for p in answer["places"]} == {(30, 5)}
    done = sinkshot("compare", "first", "second", cwd=home)
    assert done.returncode == 2
    assert "no result in common" in done.stderr


def test_reports_are_compared_cell_by_cell(home):
    words = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "third")
    assert sinkshot(*words, "--episodes", "60", cwd=home).returncode == 0
    answer = json.loads(sinkshot("compare", "first", "third/results.sqlite", "--json", cwd=home).stdout)
    assert len(answer["cells"]) == 4
    for pair in answer["cells"]:
        assert (pair["difference"], pair["ci95"], pair["ties"]) == (0, 0, 40)


def test_methods_are_compared_on_the_same_episodes(home):
    said = (home / "said").read_text()
    ncm, kmeans = (float(re.search(rf"{name} +(\d+\.\d+)", said)[1]) for name in ("NCM", "k-means"))
    answer = json.loads(sinkshot("compare", "kmeans", "ncm", "--out", "first", "--json", cwd=home).stdout)
    one = answer["cells"][0]
    assert 100 * one["difference"] == pytest.approx(kmeans - ncm, abs=0.011)
    assert one["wins"] + one["ties"] + one["losses"] == 40
    assert one["paired"]
    told = sinkshot("compare", "kmeans", "ncm", "--store", "first/results.sqlite", cwd=home).stdout
    assert re.search(r"toy, net, 4-way 1-shot.* [+-]\d+\.\d\d ± \d+\.\d\d", told)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("reproduce", "--study", "tabel-5"), "did you mean 'table-5'"),
        (("reproduce", "--study", "nowhere.toml"), "there is no file nowhere.toml"),
        (("reproduce", "--episodes", "0"), "--episodes must be a whole number of at least 1"),
        (("reproduce", "--seed", "-1"), "--seed must be a whole number of at least 0"),
        (("reproduce", "--workers", "0"), "--workers must be a whole number of at least 1"),
        (("reproduce", "--banks", "nowhere"), "is not a folder"),
        (("reproduce", "--study", "toys.toml", "--out", "toys.toml"), "cannot write to toys.toml"),
        (("reproduce", "--study", "toys.toml", "--store", "banks"), "cannot keep results in"),
        (("reproduce", "--study", "toys.toml", "--store", "toys.toml"), "not a store of results"),
        (("reproduce", "--study", "toys.toml", "--banks", "banks", "--device", "warp"), "warp"),
        (("compare", "first", "ncm"), "a report and a method"),
        (("compare", "kmean", "ncm"), "did you mean 'kmeans'"),
        (("compare", "ncm", "bms", "--out", "nowhere"), "there is no file"),
        (("compare", "ncm", "bms-star", "--out", "first"), "no result of both"),
        (("compare", "toys.toml", "first"), "not a store of results"),
    ],
)
def test_bad_input_gets_a_sentence(home, words, answer):
    done = sinkshot(*words, cwd=home)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert answer in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_an_example(home):
    for command in ("reproduce", "compare"):
        assert "Example: sinkshot" in sinkshot(command, "--help", cwd=home).stdout


@pytest.mark.slow
def test_a_terminal_is_told_how_far_it_is(home):
    words = ["reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "fourth", "--episodes", "600"]
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "sinkshot", *words, "--workers", "1"],
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 120
    while time.monotonic() < end and select.select([ours], [], [], 60)[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    assert run.wait(10) == 0
    assert re.search(rb"[0-3] of 4 cells", seen)
    assert re.search(rb"\d:\d\d left", seen)
    assert b"ncm, 1-shot" in seen


def test_a_log_is_told_in_plain_lines_how_far_it_is(capsys):
    with progress_line(every=0.0) as tell:
        tell(RunProgress(0, 4, 2400, None, "ncm, 1-shot"))
        tell(RunProgress(3, 4, 1000, 71.6, "bms, 5-shot"))
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "0 of 4 cells done, 2,400 episodes to go (ncm, 1-shot)",
        "3 of 4 cells done, 1,000 episodes to go, 1:12 left (bms, 5-shot)",
    ]
    assert said.out == ""


def test_a_log_of_a_short_run_has_no_lines(capsys):
    with progress_line() as tell:
        tell(RunProgress(0, 4, 2400, None, "ncm, 1-shot"))
    assert capsys.readouterr().err == ""
