"""`sinkshot methods`, and `eval` of many methods at once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import sinkshot

import sinkshot as package
from sinkshot import METHODS, InputError
from sinkshot.cli.evaluate import _FEW, chosen, comparisons, hyper_parameters
from sinkshot.cli.methods import paper_values, traits
from sinkshot.methods import references
from sinkshot.methods.needs_training import NEEDS_TRAINING
from sinkshot.studies import parse

ASKED = {"protonet", "matching-net", "maml", "feat", "deepemd", "leo", "renet", "mct", "epnet"}
ASKED |= {"dsn-mr", "peeler"}


def listed(*words):
    done = sinkshot("methods", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the list -------------------------------------------------------------------------------------------------------


def test_what_a_method_assumes_is_said_in_words_and_in_json():
    told = json.loads(listed("--json"))
    assert set(told) == set(METHODS)
    assert told["bms-star"]["assumes_balance"]
    assert told["bms"]["takes_prior"]
    assert told["distribution-calibration"]["needs_base_features"]
    assert not told["ncm"]["transductive"]
    for name, method in METHODS.items():
        assert told[name]["random"] == method.random
    text = listed()
    assert "pt-map  (transductive; PEMaE; assumes equal class sizes; accepts class proportions)" in text
    assert traits(METHODS["ncm"]) == []
    assert traits(METHODS["nn-ratio"]) == ["a score for unknowns only, for open-set"]
    assert traits(METHODS["openmax"]) == ["needs 2 supports per class"]


def test_all_has_the_methods_that_need_a_training_with_reason_and_the_papers_values():
    told = json.loads(listed("--all", "--json"))
    assert set(told) - set(METHODS) >= ASKED
    for one in NEEDS_TRAINING:
        assert not told[one.name]["feature_level"]
        assert told[one.name]["reason"].endswith(".")
        assert told[one.name]["paper"], one.name
    values = {(value["where"], value["on"], value["column"]): value["value"] for value in told["protonet"]["paper"]}
    assert values["Table 1", "tieredImageNet, ConvNet4", "5-shot"] == "72.69 ± 0.74"
    assert values["Table 7", "miniImageNet, WRN", "1-shot AUROC"] == "51.81"
    assert "Table 2, CIFAR-FS, ResNet12: 1-shot 78.00 ± 0.90, 5-shot 87.30 ± 0.60" in listed("--all")
    assert "dsn-mr" not in listed()


def test_every_row_of_the_papers_tables_is_a_method_here_or_on_the_list_of_those_that_need_a_training():
    rows = [row for name in parse.names() for sheet in parse.find(name).sheets for row in sheet.rows]
    here = {row.label for row in rows if any(entry.cell is not None for entry in row.entries)}
    alone = {row.label for row in rows} - here
    assert alone <= {label for one in NEEDS_TRAINING for label in one.rows}
    assert {label for one in NEEDS_TRAINING for label in one.rows} <= set(paper_values())


def test_no_method_is_on_both_lists():
    assert not {one.name for one in NEEDS_TRAINING} & set(METHODS)


def test_bibtex_has_the_works_of_every_method():
    cited = [one.reference for one in (*METHODS.values(), *NEEDS_TRAINING)]
    assert {key for reference in cited for key in references.keys(reference)} == set(references.entries())
    text = listed("--bibtex", "--all")
    assert "@inproceedings{vinyals2016matching,\n  author = {Vinyals, Oriol and Blundell, Charles" in text
    others = [name for name, method in METHODS.items() if not references.keys(method.reference)]  # entries of their own
    assert text.count("\n@") + 1 == len(references.entries()) + len(others)
    assert references.own_entry("my method", "me & you").startswith("@misc{my-method,")


# --- many at once ---------------------------------------------------------------------------------------------------


def test_words_for_groups_become_their_methods_each_once():
    everything, of_group = chosen(["bms", "all"], "open-set")
    assert everything[0] == "bms"
    assert sorted(everything) == sorted(METHODS)
    assert of_group == set(METHODS) - {"bms"}
    inductive, _ = chosen(["inductive"], "open-set")
    assert set(inductive) == {name for name, method in METHODS.items() if not method.transductive}


def test_methods_that_are_another_score_of_the_unknown_join_a_group_only_where_there_is_an_unknown():
    scores = {name for name, method in METHODS.items() if method.open_set}
    assert {"max-probability", "nn-ratio"} <= scores
    for protocol in ("balanced", "dirichlet", "official"):
        assert set(chosen(["all"], protocol)[0]) == set(METHODS) - scores
    assert chosen(["nn-ratio"], "balanced") == (["nn-ratio"], set())


@pytest.mark.slow
def test_all_runs_what_can_run_and_names_what_cannot_with_the_reason(tmp_path, blobs):
    path = tmp_path / "blobs.npz"
    np.savez(path, features=blobs.features, labels=blobs.labels)
    words = ("--way", "4", "--query", "5", "--episodes", "3", "--set", "steps=3")
    done = sinkshot("eval", path, "--method", "all", *words, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    measured = [result["method"] for result in answer["results"]]
    left_out = {line.split()[0] for line in done.stderr.splitlines() if " was skipped: " in line}
    assert set(measured) | left_out == {name for name, method in METHODS.items() if not method.open_set}
    assert "openmax was skipped: openmax needs at least 2 supports per class" in done.stderr
    assert "distribution-calibration was skipped: distribution-calibration needs features of the base" in done.stderr
    assert {pair["b"] for pair in answer["paired"]} == {"bms"}
    assert [pair["a"] for pair in answer["paired"]] == [name for name in measured if name != "bms"]
    assert all(set(pair) == {"a", "b", "difference", "ci95"} for pair in answer["paired"])


def test_a_method_asked_for_by_name_is_not_left_out_in_silence(tmp_path, blobs):
    path = tmp_path / "blobs.npz"
    np.savez(path, features=blobs.features, labels=blobs.labels)
    named = ("--method", "distribution-calibration", "--method", "inductive", "--way", "4", "--query", "5")
    done = sinkshot("eval", path, *named, "--episodes", "2")
    assert done.returncode == 2
    assert "needs features of the base" in done.stderr


def test_what_is_wrong_with_all_of_them_is_said_once(tmp_path, blobs):
    path = tmp_path / "blobs.npz"
    np.savez(path, features=blobs.features, labels=blobs.labels)
    done = sinkshot("eval", path, "--method", "all", "--way", "40")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "40" in done.stderr


def results_of(bank, count):
    recipe = package.Recipe(way=4, query=5, episodes=3)
    names = ["ncm", "matching", "kmeans", "bms", "soft-kmeans", "paddle"][:count]
    return [package.evaluate(bank, recipe, method=name) for name in names]


@pytest.mark.parametrize("count", [2, _FEW, _FEW + 1])
def test_a_few_are_compared_in_pairs_and_many_with_one(blobs, count):
    pairs = [(pair.a, pair.b) for pair in comparisons(results_of(blobs, count))]
    if count <= _FEW:
        assert len(pairs) == count * (count - 1) // 2
    else:
        assert pairs == [(name, "bms") for name in ("ncm", "matching", "kmeans", "soft-kmeans", "paddle")]


def test_methods_with_a_comma_get_the_advice_to_repeat_the_option():
    with pytest.raises(InputError, match="repeat the option: --method A --method B"):
        package.methods.get("sinkshot,bms")


def test_switches_are_read_as_such():
    assert hyper_parameters(["laplacianshot"], ["rectify=false"]) == {"laplacianshot": {"rectify": False}}
    with pytest.raises(InputError, match="did you mean"):
        hyper_parameters(["laplacianshot"], ["rectifi=false"])
