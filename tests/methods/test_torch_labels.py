"""On torch, which serves GPUs, every method labels real queries as NumPy does: at least 99.9 % of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sinkshot
from sinkshot import METHODS, Recipe, Task
from sinkshot.preprocess import apply, base_after, base_statistics, parse, split

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

EPISODES = 14  # 1,050 queries each: one may differ
# Long trainings are cut short, and samples are fewer: it is the arithmetic that is compared.
QUICK = {
    **{name: {"steps": 60} for name in ("alpha-tim", "ostim", "tim-gd")},
    "adaptive-manifold": {"steps": 8},
    "distribution-calibration": {"samples": 40},
    "ilpc": {"epochs": 60},
}


@pytest.fixture(scope="module")
def banks():
    return sinkshot.load("cifar-fs_wrn-28-10_novel"), sinkshot.load("cifar-fs_wrn-28-10_base")


def task_of(name, bank, base, drawn, array):
    """The episodes after the method's own preprocessing, with arrays of one library."""
    method, rows = METHODS[name], bank.features
    given = Task(array(rows[drawn.support]), array(drawn.support_labels), array(rows[drawn.query]), drawn.recipe.way)
    ready = apply(given, method.preprocess, bank.base)
    if not method.features:
        return ready
    return replace(ready, base=base_after(base, split(parse(method.preprocess))[0], base_statistics(bank.base, base)))


@pytest.mark.parametrize("protocol", ["balanced", "dirichlet", pytest.param("open-set", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_labels_are_those_of_numpy(name, protocol, banks):
    bank, base = banks
    method, shot = METHODS[name], 5 if protocol == "dirichlet" else max(1, METHODS[name].least_shots)
    drawn = Recipe(protocol=protocol, shot=shot, episodes=EPISODES).draw(bank.labels)
    hyper = {**method.bind(method.imbalanced if protocol == "dirichlet" else {}), **QUICK.get(name, {})}
    labels = []
    for array in (np.array, lambda values: torch.from_numpy(np.array(values))):
        scores = method.function(task_of(name, bank, base, drawn, array), **hyper)
        labels.append(np.asarray(scores.probabilities).argmax(axis=-1))
    assert (labels[0] == labels[1]).mean() >= 0.999
