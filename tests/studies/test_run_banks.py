"""A run on banks of several parts, and which version of the code a cell was measured by."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_studies import RECIPE, cell, measured, query, resolve_cells, save

import sinkshot
from sinkshot import FeatureBank
from sinkshot.studies.code_version import code_version
from sinkshot.studies.merge import merge, selection, selection_seed
from sinkshot.studies.study import BankKey

# --- banks of several parts -----------------------------------------------------------------------------------------


def two_backbones(folder, blobs):
    rng = np.random.default_rng(1)
    other = np.abs(np.array(blobs.features)[:, ::-1] + rng.normal(size=blobs.features.shape))
    save(blobs, folder, "toy_a_novel")
    catalogue = save(FeatureBank(other.astype(np.float32), blobs.labels, blobs.class_names), folder, "toy_b_novel")
    return merge([sinkshot.load(folder / f"toy_{name}_novel.safetensors") for name in "ab"], ["a", "b"]), catalogue


def test_merged_backbones_are_measured_side_by_side(tmp_path, place, blobs):
    merged, catalogue = two_backbones(tmp_path, blobs)
    one = cell("bms", key=BankKey("toy", ("a", "b")))
    stored = measured(place, catalogue, one).results[one]
    np.testing.assert_array_equal(stored.per_episode, sinkshot.evaluate(merged, one.recipe, method="bms").per_episode)


def test_episodes_are_shared_out_among_selections_of_coordinates(tmp_path, place, blobs):
    merged, catalogue = two_backbones(tmp_path, blobs)
    one = cell("bms", key=BankKey("toy", ("a", "b"), coordinates=10, selections=7), episodes=1200)
    stored = measured(place, catalogue, one).results[one]
    for number in range(7):
        chosen = selection(merged, 10, selection_seed(0, number))
        every = sinkshot.evaluate(chosen, one.recipe, method="bms").per_episode
        np.testing.assert_array_equal(stored.per_episode[number::7], every[number::7])
    fewer = replace(one, recipe=replace(one.recipe, episodes=600))
    few = measured(tmp_path / "few.sqlite", catalogue, fewer).results[fewer]
    np.testing.assert_array_equal(few.per_episode, stored.per_episode[:600])


@pytest.mark.slow
def test_features_of_base_classes_are_found_and_decide_the_cell(tmp_path, place, blobs):
    catalogue = save(blobs, tmp_path)
    (without,) = resolve_cells(catalogue, cell())
    assert (without.preprocess, without.base) == ("PE", None)
    shifted = FeatureBank(np.array(blobs.features) + 1, blobs.labels, blobs.class_names)
    bases = []
    for base, workers in ((blobs, 1), (shifted, 2)):
        catalogue = save(base, tmp_path, "toy_net_base")
        (resolved,) = resolve_cells(catalogue, cell())
        assert resolved.preprocess == "PEMbE"
        bases.append(resolved.base_hash)
        stored = measured(place, catalogue, cell(), workers=workers).results[cell()]
        alone = sinkshot.evaluate(blobs, RECIPE, method="ncm", base=base)
        np.testing.assert_array_equal(stored.per_episode, alone.per_episode)
    assert bases[0] != bases[1]


def test_a_mean_of_base_classes_that_nobody_has_is_asked_for(place, catalogue):
    outcome = measured(place, catalogue, cell(preprocess="EMbE"))
    assert not outcome.results
    assert "toy_net_base.safetensors is missing" in outcome.missing[0]


# --- the version of the code ----------------------------------------------------------------------------------------


def versions_in(folder):
    code = "from sinkshot.studies.code_version import code_version\nprint(code_version('ncm'), code_version('bms'))"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()


@pytest.mark.slow
def test_the_version_changes_with_what_computes_a_method_and_with_nothing_else(tmp_path):
    home = Path(sinkshot.__file__).parent
    package = shutil.copytree(home, tmp_path / "sinkshot", ignore=shutil.ignore_patterns("__pycache__", "data"))
    before = versions_in(tmp_path)
    assert before[0] != before[1]
    for name, changed in (
        ("methods/ncm.py", [True, False]),
        ("kernels/bms_numba.py", [True, True]),
        ("report/page.py", [False, False]),
        ("methods/logreg.py", [False, False]),
    ):
        file = package / name
        file.write_text(file.read_text() + "\n# another line\n")
        after = versions_in(tmp_path)
        assert [a != b for a, b in zip(before, after, strict=True)] == changed, name
        before = after


def test_another_version_is_another_cell(place, catalogue):
    measured(place, catalogue, cell())
    query(place, "UPDATE cells SET version = '0.0.1+other'")
    measured(place, catalogue, cell())
    assert query(place, "SELECT version FROM cells") == [("0.0.1+other",), (code_version("ncm"),)]


def test_an_engine_is_chosen_for_the_cell_and_not_for_its_parts(place, catalogue):
    outcome = measured(place, catalogue, cell(episodes=1001), cell(episodes=40))
    assert [stored.engine for stored in outcome.results.values()] == ["numba", "numpy"]
