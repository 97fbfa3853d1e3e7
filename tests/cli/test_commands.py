"""The command: what a person sees, through real processes and real files."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys

import numpy as np
import pytest
from command_line import ACCEPT_SIGNALS, run_program, sinkshot, sinkshot_process
from typer.testing import CliRunner

from sinkshot.cli.app import app

BUNDLED = "cifar-fs_wrn-28-10_novel"
QUICK = ("--way", "4", "--query", "5", "--episodes", "20")


@pytest.fixture
def npz(tmp_path, blobs):
    path = tmp_path / "blobs.npz"
    np.savez(path, features=blobs.features, labels=blobs.labels)
    return path


def test_eval_prints_one_json_object_with_the_contracts_keys(npz):
    done = sinkshot_process("eval", npz, "--method", "bms", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    keys = "method preprocess way shot query episodes protocol seed accuracy ci95 engine seconds"
    gained = "macro_accuracy ece ece_null brier nll aurc coverage95 coverage99"
    assert list(answer) == [*keys.split(), *gained.split()]
    assert set(answer["seconds"]) == {"sample", "prepare", "classify", "total"}
    assert answer["preprocess"] == "PEMnE"
    assert 0.9 < answer["accuracy"] <= 1.0
    assert done.stderr == ""


def test_several_methods_share_their_episodes_and_are_compared(npz):
    done = sinkshot("eval", npz, "--method", "bms", "--method", "ncm", *QUICK, "--json")
    answer = json.loads(done.stdout)
    assert [r["method"] for r in answer["results"]] == ["bms", "ncm"]
    (pair,) = answer["paired"]
    assert set(pair) == {"a", "b", "difference", "ci95"}
    gap = answer["results"][0]["accuracy"] - answer["results"][1]["accuracy"]
    assert pair["difference"] == pytest.approx(gap)
    assert (
        "PEMbE needs the mean of the base classes, which is unknown; PE is used" in done.stderr
    )  # nothing is known of the base classes


def test_open_set_adds_how_well_unknown_queries_are_rejected(npz):
    words = ("eval", npz, "--method", "ncm", "--protocol", "open-set", *QUICK)
    answer = json.loads(sinkshot(*words, "--json").stdout)
    assert 0.5 < answer["auroc"] <= 1.0
    assert 0.5 < answer["aupr"] <= 1.0
    assert 0.0 <= answer["fpr95"] < 0.5
    assert re.search(r"accuracy +AUROC +AUPR +FPR95 +episodes", sinkshot(*words).stdout)


def test_alpha_and_ratio_decide_how_unequal_query_sizes_are():
    found = {}
    for words in (("dirichlet",), ("dirichlet", "--alpha", "0.3"), ("long-tail",), ("long-tail", "--ratio", "3")):
        done = sinkshot("eval", BUNDLED, "--method", "ncm", "--protocol", *words, *QUICK, "--json")
        assert done.returncode == 0, done.stderr
        found[words] = json.loads(done.stdout)
    assert len({answer["accuracy"] for answer in found.values()}) == 4
    assert [answer.get("alpha") for answer in found.values()] == [2, 0.3, None, None]
    assert [answer.get("ratio") for answer in found.values()] == [None, None, 10, 3]
    done = sinkshot("eval", BUNDLED, "--method", "ncm", "--protocol", "dirichlet", "--alpha", "0.3", *QUICK)
    assert "dirichlet (alpha 0.3), seed 0" in done.stdout


def test_people_get_percent_with_two_digits(npz):
    done = sinkshot("eval", npz, "--method", "bms", "--method", "kmeans", *QUICK)
    assert done.returncode == 0
    assert len(re.findall(r"\d+\.\d\d ± \d+\.\d\d", done.stdout)) >= 3
    assert "bms - kmeans" in done.stdout


def test_set_reaches_the_method():
    plain, other = (
        json.loads(sinkshot("eval", BUNDLED, *QUICK, "--set", f"lam={lam}", "--set", "bms.steps=2", "--json").stdout)
        for lam in ("8.5", "0.01")
    )
    assert plain["accuracy"] != other["accuracy"]


def test_base_features_serve_mb(npz):
    done = sinkshot("eval", npz, "--method", "ncm", "--base", npz, *QUICK, "--json")
    assert json.loads(done.stdout)["preprocess"] == "PEMbE"


def test_info_and_convert_work_on_every_format(tmp_path, blobs, npz):
    rows = {int(k): list(blobs.features[blobs.labels == k]) for k in range(8)}
    (tmp_path / "output.plk").write_bytes(pickle.dumps(rows))
    np.save(tmp_path / "raw.npy", blobs.features)
    np.save(tmp_path / "raw_labels.npy", blobs.labels)
    for source in ("output.plk", "raw.npy", "blobs.npz"):
        target = tmp_path / f"{source}.safetensors"
        done = sinkshot("convert", tmp_path / source, target, "--store", "float16")
        assert done.returncode == 0, done.stderr
        facts = json.loads(sinkshot("info", target, "--json").stdout)
        assert (facts["rows"], facts["classes"], facts["width"]) == (320, 8, 24)
        assert {"share_of_zeros", "sparsity", "skew", "counts"} <= set(facts)


def test_info_says_what_its_numbers_mean(npz):
    shown = sinkshot("info", npz).stdout
    for words in (
        "40 to 40, median 40",
        "24 features per row",
        "% of all numbers",
        "0: all features equal",
        "0: symmetric",
    ):
        assert words in shown


def test_methods_lists_every_method():
    listed = json.loads(sinkshot("methods", "--json").stdout)
    assert {"ncm", "kmeans", "soft-kmeans", "bms", "bms-star", "logreg"} <= set(listed)
    assert listed["bms-star"]["hyper"]["prior"] == "balanced"
    assert "Algorithms 1 and 2" in sinkshot("methods").stdout


def test_the_list_of_commands_has_whole_sentences():
    listed = sinkshot("--help").stdout.partition("Commands:")[2].partition("Start with")[0].split("\n")
    lines = [line for line in listed if line.strip()]
    assert len(lines) >= 11
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def test_help_has_an_example_and_names_values_in_words_for_every_command():
    for command in app.registered_commands:
        shown = sinkshot(command.name, "--help").stdout
        assert "Example: sinkshot" in shown
        assert not re.search(r"<[\w\[\]]+>|\b(TEXT|INTEGER|FLOAT)\b", shown)
        assert not re.search(r"[{}]", shown.splitlines()[0])  # they would look like a choice


@pytest.mark.slow
def test_demo_prints_the_table_and_says_where_the_page_is(tmp_path):
    done = sinkshot("demo", "--episodes", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "86.93 ± 0.23" in done.stdout
    page = tmp_path / "sinkshot-demo.html"
    assert str(page) in done.stdout
    assert page.stat().st_size > 10_000


@pytest.mark.slow
def test_a_terminal_without_our_signs_still_gets_its_table(npz):
    done = sinkshot_process("eval", npz, "--method", "ncm", *QUICK, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "ncm" in done.stdout


def test_code_is_compiled_where_no_cache_can_be_written(monkeypatch):
    from numba.core import caching

    from sinkshot.kernels.jit import cached

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert cached(lambda number: number + 1)(2) == 3


@pytest.mark.long
def test_compiled_engines_work_where_no_cache_can_be_written():
    code = (
        "import numba.core.caching as caching; caching.CompileResultCacheImpl._locator_classes = []\n"
        "import sinkshot; bank = sinkshot.load('cifar-fs_wrn-28-10_novel')\n"
        "print(sinkshot.evaluate(bank, sinkshot.Recipe(episodes=20), method='ncm', engine='numba').engine)"
    )
    done = run_program(sys.executable, "-c", code)
    assert done.stdout.strip() == "numba", done.stderr


def test_what_makes_a_method_its_own_is_set_by_its_name_alone(npz):
    two = ("--method", "bms", "--method", "bms-star")
    done = sinkshot("eval", npz, *two, *QUICK, "--set", "prior=none")
    assert done.returncode == 2
    assert "METHOD.prior=VALUE" in done.stderr


PRESS_CTRL_C = f"""{ACCEPT_SIGNALS}
import os, sys, threading
import sinkshot
from sinkshot.cli import main

module = sys.modules["sinkshot.evaluate"]
run = module._run

def pressed(job, engine, notes, progress):
    def tell(*state):
        progress(*state)
        if not timer.ident:
            timer.start()  # so that the signal falls into the next chunk
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    return run(job, engine, notes, tell)

module._run = pressed
main()
"""


def interrupted(*words, cwd=None):
    """Run a command that is interrupted once it has evaluated something."""
    return run_program(sys.executable, "-c", PRESS_CTRL_C, *words, cwd=cwd)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupted_demo_says_what_was_finished(tmp_path):
    done = interrupted("demo", "--episodes", "10000000", cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert "0 of 8 methods finished" in done.stderr
    assert not (tmp_path / "sinkshot-demo.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupted_evaluation_keeps_and_says_what_was_finished(npz):
    words = ("eval", npz, "--method", "ncm", "--way", "4", "--query", "5", "--episodes", "90000000", "--json")
    done = interrupted(*words)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted" in done.stderr
    answer = json.loads(done.stdout)
    assert 0 < answer["episodes"] < 90_000_000


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("lab", ["label"]),
        ("label --encoder effic", ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]),
        ("label --encoder min", ["minilm"]),
        ("extract --encoder min", []),
        ("label --export hu", ["huggingface"]),
        ("label --method sinks", ["sinkshot"]),
    ],
)
def test_the_tab_key_completes_names(line, found):
    words = {"COMP_WORDS": f"sinkshot {line}", "COMP_CWORD": str(len(line.split()))}
    done = CliRunner().invoke(app, [], prog_name="sinkshot", env={**words, "_SINKSHOT_COMPLETE": "complete_bash"})
    assert done.stdout.split() == found


def test_the_tab_key_works_in_a_process_of_its_own():
    script = "import sys; sys.argv = ['sinkshot']; from sinkshot.cli import main; main()"
    words = {"COMP_WORDS": "sinkshot lab", "COMP_CWORD": "1", "_SINKSHOT_COMPLETE": "complete_bash"}
    assert run_program(sys.executable, "-c", script, **words).stdout.split() == ["label"]
