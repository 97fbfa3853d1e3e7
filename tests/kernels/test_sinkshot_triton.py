"""The method `sinkshot` on the GPU: the answers of the readable code, at tiny sizes where Triton interprets it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from triton_runs import KERNELS_RUN, on_a_gpu, on_device, runs

from sinkshot import Recipe, Task, evaluate
from sinkshot.methods.sinkshot import solve
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import SETTINGS

if KERNELS_RUN:
    from sinkshot.kernels import sinkshot_triton


def made(way, shots, queries, episodes, seed=0, width=32):
    """Clustered rows with outliers, and episodes of them: supports, their labels, queries."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(way + 1, width))
    each = 3 * (max(shots) + queries)
    rows = np.concatenate([c + 1.5 * rng.normal(size=(each, width)) for c in centres])
    support, query = [], []
    for _ in range(episodes):
        order = [rng.permutation(each) + c * each for c in range(way + 1)]
        support.append(np.concatenate([o[:n] for o, n in zip(order, shots, strict=False)]))
        rest = np.concatenate([o[max(shots) :] for o in order])
        query.append(rng.permutation(rest)[:queries])
    labels = np.tile(np.repeat(np.arange(way, dtype=np.int32), shots), (episodes, 1))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), (np.int32(support), labels, np.int32(query))


def both(rows, arrays, way, chain, settings=SETTINGS):
    """Answers of the kernels, and of the readable code in float64."""
    steps = {"centre": "Mn" in chain, "class_centre": "Mc" in chain, "normalise": chain.endswith("E")}
    given = (on_device(a) for a in (rows.astype(np.float32), *arrays))
    found = sinkshot_triton.sinkshot_episodes(*given, way=way, **steps, settings=settings)
    support, labels, query = arrays
    theirs = solve(apply(Task(rows[support], labels, rows[query], way), chain), settings)
    return [part.cpu().numpy() for part in found], (theirs.probabilities, theirs.unknown)


@runs
@pytest.mark.parametrize(
    ("way", "shots", "queries", "chain"),
    [
        (5, (1,) * 5, 40, ""),
        (5, (2, 1, 3, 1, 2), 31, "McE"),
        (2, (1, 1), 1, ""),
        (3, (1, 1, 1), 70, "MnE"),
        (11, (1,) * 11, 40, "McE"),
        (4, (1,) * 4, 20, "Mc"),
    ],
)
def test_answers_are_those_of_the_reference(way, shots, queries, chain):
    rows, arrays = made(way, shots, queries, episodes=2)
    ours, theirs = both(rows, arrays, way, chain)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@runs
def test_rows_that_are_torn_between_many_classes_are_answered_as_by_the_reference():
    rows, arrays = made(12, (3,) * 12, 40, episodes=2)
    rows = np.random.default_rng(0).normal(size=rows.shape)  # nothing tells classes apart
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ours, theirs = both(rows, arrays, 12, "", replace(SETTINGS, unsure_noise=50.0, unsure_from=0.3))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    plain, _ = both(rows, arrays, 12, "", replace(SETTINGS, unsure_noise=0.0))
    assert np.abs(ours[0] - plain[0]).max() > 0.01


@runs
def test_equal_rows_and_rows_without_neighbours_are_answered_as_by_the_reference():
    rng = np.random.default_rng(1)
    rows = np.zeros((40, 24))
    rows[:30] = rng.integers(0, 9, (3, 24))[np.arange(30) % 3] / 8  # ten copies of three rows: ties, exact in any order
    rows[30:34] = np.eye(24)[:4] - 0.5 * np.eye(24)[4:8]  # near to few
    rows[36:] = -rows[:4]  # zero rows before, then rows that point away from all others
    arrays = np.int32([[0, 1, 2]]), np.int32([[0, 1, 2]]), np.int32([[*range(3, 40)]])
    ours, theirs = both(rows, arrays, 3, "")
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@runs
def test_parts_of_bounded_memory_give_the_same_answers(monkeypatch):
    rows, arrays = made(3, (1, 2, 1), 12, episodes=3)
    whole, _ = both(rows, arrays, 3, "")
    monkeypatch.setattr(sinkshot_triton, "_GRAM_BYTES", 1)
    parts, _ = both(rows, arrays, 3, "")
    for a, b in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(a, b)


@on_a_gpu
@pytest.mark.parametrize("shot", [1, 5])
@pytest.mark.parametrize("chain", ["PEMbE", "PEMcE"])
@pytest.mark.parametrize("protocol", ["balanced", "dirichlet", "long-tail"])
def test_an_evaluation_on_the_gpu_gives_the_metrics_of_the_readable_code(bundled, protocol, chain, shot):
    recipe = Recipe(protocol, shot=shot, episodes=200)
    hyper = {"method": "sinkshot", "preprocess": chain}
    a, b = (evaluate(bundled, recipe, engine=e, device=d, **hyper) for e, d in (("triton", "cuda"), ("numpy", "cpu")))
    assert np.isclose(a.per_episode, b.per_episode).mean() > 0.98
    assert abs(a.ece - b.ece) < 1e-3
