"""The method `sinkshot` on the CPU engine: the readable code's answers, whatever the size, threads and batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sinkshot import FeatureBank, Recipe, Task, evaluate
from sinkshot.engines import Job, pick
from sinkshot.kernels import gram_numba
from sinkshot.kernels.sinkshot_numba import sinkshot_episodes
from sinkshot.methods import get
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.sinkshot import solve
from sinkshot.preprocess import apply, parse
from sinkshot.settings.sinkshot import SETTINGS


def fused(rows, arrays, way, chain, threads=None):
    steps = {"centre": "Mn" in chain, "class_centre": "Mc" in chain, "normalise": chain.endswith("E")}
    padded = gram_numba.padded(rows.astype(np.float32))
    return sinkshot_episodes(padded, *arrays, way=way, **steps, settings=SETTINGS, threads=threads)


def reference(rows, arrays, way, chain):
    """The readable code in float64."""
    x = rows.astype(np.float64)
    support, labels, query = arrays
    return get("sinkshot").function(apply(Task(x[support], labels, x[query], way), chain))


def arrays_of(episodes):
    return episodes.support, episodes.support_labels, episodes.query


@pytest.fixture(scope="module")
def unit_rows(bundled):
    """Centred rows of unit length, as after PEMbE, in float64."""
    x = np.sqrt(bundled.features.astype(np.float64))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x -= x.mean(axis=0)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["", "McE"])
@pytest.mark.parametrize("protocol", ["balanced", "dirichlet", "open-set", "long-tail"])
@pytest.mark.parametrize(("way", "shot", "episodes"), [(2, 1, 60), (5, 1, 60), (5, 5, 40), (20, 1, 8), (20, 5, 8)])
def test_labels_are_those_of_the_float64_reference(bundled, unit_rows, protocol, way, shot, episodes, chain):
    if protocol == "open-set" and way == 20:
        way = 10  # there are twenty classes
    drawn = Recipe(protocol, way, shot, 15, episodes, seed=way).draw(bundled.labels)
    rows = bundled.features if chain else unit_rows
    ours, unknown = fused(rows, arrays_of(drawn), way, chain)
    theirs = reference(rows, arrays_of(drawn), way, chain)
    assert (ours.argmax(-1) == theirs.probabilities.argmax(-1)).mean() >= 0.999
    assert np.quantile(np.abs(ours - theirs.probabilities), 0.999) < 1e-4
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)


@pytest.mark.parametrize(
    ("way", "shot", "query", "chain"),
    [(2, 1, 1, ""), (3, 2, 5, "MnE"), (5, 1, 3, "McE"), (9, 3, 4, "Mc"), (11, 1, 7, "E")],
)
def test_other_sizes_and_chains_give_the_reference_probabilities(bundled, unit_rows, way, shot, query, chain):
    drawn = Recipe("balanced", way, shot, query, 6, seed=3).draw(bundled.labels)
    ours, unknown = fused(unit_rows, arrays_of(drawn), way, chain)
    theirs = reference(unit_rows, arrays_of(drawn), way, chain)
    np.testing.assert_allclose(ours, theirs.probabilities, atol=1e-4)
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)


def test_rows_that_are_torn_between_many_classes_are_answered_as_by_the_reference():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(24 * 18, 16))  # nothing tells classes apart
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    drawn = Recipe("balanced", 24, 3, 15, 4, seed=0).draw(np.repeat(np.arange(24), 18))
    ours, unknown = fused(rows, arrays_of(drawn), 24, "")
    theirs = reference(rows, arrays_of(drawn), 24, "")
    np.testing.assert_allclose(ours, theirs.probabilities, atol=1e-4)
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)
    support, labels, query = arrays_of(drawn)
    sure = solve(Task(rows[support], labels, rows[query], 24), replace(SETTINGS, unsure_noise=0.0)).probabilities
    assert np.abs(ours - sure).max() > 0.05  # they are torn


@pytest.mark.parametrize("chain", ["", "McE"])
def test_unequal_shots_and_labels_in_any_order(bundled, unit_rows, chain):
    rng = np.random.default_rng(0)
    rows = np.stack([rng.permutation(np.flatnonzero(bundled.labels < 4))[:60] for _ in range(5)]).astype(np.int32)
    of_class = np.int32([2, 0, 1, 3, 3, 0, 3, 3, 2, 3])
    for r in range(5):
        for i, label in enumerate(of_class):  # the first row of the class from i on goes to i
            j = i + np.flatnonzero(bundled.labels[rows[r, i:]] == label)[0]
            rows[r, [i, j]] = rows[r, [j, i]]
    arrays = rows[:, :10].copy(), np.tile(of_class, (5, 1)), rows[:, 10:].copy()
    ours, unknown = fused(unit_rows, arrays, 4, chain)
    theirs = reference(unit_rows, arrays, 4, chain)
    np.testing.assert_allclose(ours, theirs.probabilities, atol=1e-4)
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)


def test_close_neighbours_of_some_episodes_spread_further_as_in_the_reference():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 24))  # three dimensions: neighbours are close
    rows[100:] = rng.normal(size=(100, 24))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    numbers = np.int32([rng.permutation(100) + 100 * (r % 2) for r in range(4)])
    arrays = numbers[:, :6].copy(), np.tile(np.int32([0, 1, 2]), (4, 2)), numbers[:, 6:].copy()
    closeness = neighbour_graph(rows_of(Task(rows[arrays[0]], arrays[1], rows[arrays[2]], 3)), 6, 4.0).closeness
    assert [SETTINGS.reach(c) == (0.7, 2) for c in closeness] == [False, True, False, True]
    ours, unknown = fused(rows, arrays, 3, "")
    theirs = reference(rows, arrays, 3, "")
    np.testing.assert_allclose(ours, theirs.probabilities, atol=1e-4)
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)
    each = [reference(rows, tuple(a[r : r + 1] for a in arrays), 3, "").probabilities[0] for r in range(4)]
    np.testing.assert_allclose(theirs.probabilities, each, atol=1e-12)


def test_equal_rows_and_rows_without_neighbours_are_answered_as_by_the_reference():
    rng = np.random.default_rng(1)
    rows = np.zeros((40, 24))
    rows[:30] = rng.integers(0, 9, (3, 24))[np.arange(30) % 3] / 8  # ten copies of three rows: ties, exact in any order
    rows[30:34] = np.eye(24)[:4] - 0.5 * np.eye(24)[4:8]  # near to few
    rows[36:] = -rows[:4]  # zero rows before, then rows that point away from all others
    support = np.int32([[0, 1, 2]])
    query = np.int32([[*range(3, 40)]])
    arrays = support, np.int32([[0, 1, 2]]), query
    ours, unknown = fused(rows, arrays, 3, "")
    theirs = reference(rows, arrays, 3, "")
    np.testing.assert_allclose(ours, theirs.probabilities, atol=1e-4)
    np.testing.assert_allclose(unknown, theirs.unknown, atol=1e-4)


def test_answers_do_not_depend_on_threads_or_batches(bundled, unit_rows):
    drawn = Recipe("dirichlet", 5, 2, 15, 70).draw(bundled.labels)
    whole = fused(unit_rows, arrays_of(drawn), 5, "McE", threads=2)
    parts = [fused(unit_rows, arrays_of(drawn[i : i + 9]), 5, "McE") for i in range(0, 70, 9)]
    for k, one in enumerate(whole):
        np.testing.assert_array_equal(one, fused(unit_rows, arrays_of(drawn), 5, "McE", threads=3)[k])
        np.testing.assert_array_equal(one, np.concatenate([p[k] for p in parts]))


@pytest.mark.parametrize("chain", ["PEMbE", "PEMcE", "PEMaE"])
def test_an_evaluation_gives_the_metrics_of_the_readable_code(bundled, chain):
    recipe = Recipe("open-set", shot=1, episodes=80)
    job = Job(bundled, recipe, get("sinkshot"), {}, parse(chain))
    assert (pick("numba", "cpu", job).kernel is None) == (chain == "PEMaE")
    a, b = (evaluate(bundled, recipe, method="sinkshot", preprocess=chain, engine=e) for e in ("numba", "numpy"))
    assert a.engine == "numba"
    assert np.isclose(a.per_episode, b.per_episode).mean() > 0.97
    np.testing.assert_allclose(a.auroc_per_episode, b.auroc_per_episode, atol=2e-3)
    assert abs(a.ece - b.ece) < 1e-3


def test_features_that_overflow_end_in_a_sentence(bundled):
    far = FeatureBank(bundled.features * np.float32(1e20), bundled.labels, bundled.class_names)
    with pytest.raises(Exception, match="too large or too small"):
        evaluate(far, Recipe(episodes=20), method="sinkshot", preprocess="McE", engine="numba")
