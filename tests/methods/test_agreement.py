"""Methods, evaluated as `sinkshot eval` does it, give the accuracies of their public code on the same episodes."""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import pytest
from golden_files import GOLDEN

from sinkshot import METHODS

TOOL = GOLDEN.parents[1] / "tools" / "compare_with_public_code.py"
SLOW = {"distribution-calibration", "ilpc", "tim-gd", "alpha-tim", "ostim", "sgc", "adaptive-manifold"}


def load_tool():
    spec = importlib.util.spec_from_file_location("compare_with_public_code", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), [pair for pair in tool.known() if pair[0] not in SLOW])
def test_mean_accuracy_is_that_of_the_public_code(method, kind):
    found = tool.agreement(method, kind, most=20)
    tolerance = 0.01 if METHODS[method].random else 0.003
    assert found.ours == pytest.approx(found.theirs, abs=tolerance)
    if not METHODS[method].random:
        assert found.same >= 0.95
    if found.their_auroc is not None:
        assert found.our_auroc == pytest.approx(found.their_auroc, abs=1e-3)


def test_the_summary_has_the_means_of_the_files():
    summary = json.loads((GOLDEN / "peers" / "summary.json").read_text())
    for method, kinds in summary.items():
        for kind, said in kinds.items():
            with np.load(GOLDEN / "peers" / f"{method}_{kind}.npz") as file:
                assert file["accuracy"].mean() == pytest.approx(said["accuracy"], abs=6e-5)
                assert len(file["accuracy"]) == said["episodes"]


def test_every_public_code_that_is_known_belongs_to_a_method():
    named = {
        name.removesuffix("-sqrt").removesuffix("-peme")
        for name in json.loads((GOLDEN / "peers" / "summary.json").read_text())
    }
    assert named - set(METHODS) <= {"ease"}  # the first half of ease-siamese
