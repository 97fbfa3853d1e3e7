"""Where the features of base classes come from: bundled with a bank, given, or beside it."""

from __future__ import annotations

import json

import numpy as np
from command_line import sinkshot

from sinkshot import FeatureBank, Recipe, evaluate, load
from sinkshot.cli.evaluate import base_beside


def test_sinkshot_whitens_by_base_features_where_it_has_them_and_keeps_stored_means(bundled):
    recipe, base = Recipe(episodes=30), load("cifar-fs_wrn-28-10_base")
    found, given, asked = (
        evaluate(bundled, recipe, method="sinkshot", **more)
        for more in ({}, {"base": base}, {"base": base, "preprocess": "PEMbEWbE"})
    )
    assert found.preprocess == given.preprocess == "PEMbEWbE"
    assert "bundled" in found.notes[0]
    np.testing.assert_array_equal(found.per_episode, given.per_episode)
    np.testing.assert_array_equal(found.per_episode, asked.per_episode)
    alone = FeatureBank(bundled.features, bundled.labels, bundled.class_names, {}, bundled.base)
    assert evaluate(alone, recipe, method="sinkshot").preprocess == "PEMbE"
    rows = FeatureBank(bundled.features, bundled.labels, bundled.class_names)
    assert evaluate(rows, recipe, method="sinkshot").preprocess == "PEMcE"
    unlabelled = FeatureBank(base.features, np.zeros(len(base.labels), np.int64), ("any",))
    assert evaluate(rows, recipe, method="sinkshot", base=unlabelled).preprocess == "PEMbE"


def test_base_classes_of_the_same_network_are_found_beside_a_bank(tmp_path, blobs):
    def saved(name, weights):
        path = tmp_path / f"birds_net_{name}.safetensors"
        FeatureBank(blobs.features, blobs.labels, blobs.class_names, {"weights_sha256": weights}).save(path)
        return str(path)

    novel = saved("novel", "a")
    bank = load(novel)
    assert base_beside(novel, bank) is None
    saved("base", "another")
    assert base_beside(novel, bank) is None
    base = saved("base", "a")
    assert base_beside(novel, bank).features.shape == bank.features.shape
    assert base_beside(base, bank) is None
    assert base_beside("cifar-fs_wrn-28-10_novel", bank) is None


def test_the_command_whitens_by_base_classes_beside_the_bank(tmp_path, blobs):
    for name in ("novel", "base"):
        bank = FeatureBank(blobs.features, blobs.labels, blobs.class_names, {"weights_sha256": "a"})
        bank.save(tmp_path / f"birds_net_{name}.safetensors")
    path = str(tmp_path / "birds_net_novel.safetensors")
    done = sinkshot("eval", path, "--method", "sinkshot", "--way", "3", "--query", "5", "--episodes", "5", "--json")
    assert json.loads(done.stdout)["preprocess"] == "PEMbEWbE"
