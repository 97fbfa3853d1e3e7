"""Labels spread over the graph: which pools need them, what they gain, and that others are left as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sinkshot import Recipe, Task, load
from sinkshot.kernels import landmarks
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods._spread_labels import class_dimension
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.sinkshot import of_large_pool, solve
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import POOL_SETTINGS, SETTINGS

WAY, WIDTH = 4, 40


def pool(kind, rows=100, shots=5, seed=0):
    """Return a task of classes that are clusters, or of two closed curves each, and the classes of its queries."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(WAY):
        if kind == "clusters":
            found.append(rng.normal(size=WIDTH) + 0.7 * rng.normal(size=(rows + shots, WIDTH)))
            continue
        angle = rng.random((2, rows + shots)) * 2 * np.pi
        waves = np.stack([wave(k * angle) / k for k in (1, 2, 3) for wave in (np.sin, np.cos)], axis=-1)
        pieces = waves @ rng.normal(size=(2, 6, WIDTH)) + rng.normal(size=(2, 1, WIDTH))
        found.append(
            np.where(np.arange(rows + shots)[:, None] % 2, *pieces) + 0.1 * rng.normal(size=(rows + shots, WIDTH))
        )
    every = np.stack(found)  # [way, rows + shots, width]
    parts = every[:, :shots].reshape(-1, WIDTH), every[:, shots:].reshape(-1, WIDTH)
    task = Task(parts[0][None], np.repeat(np.arange(WAY), shots)[None], parts[1][None], WAY)
    return apply(task, "EMcE"), np.repeat(np.arange(WAY), rows)


def dimension(task, truth):
    rows = rows_of(task)
    graph = neighbour_graph(rows, SETTINGS.neighbours, SETTINGS.sharpness)
    return float(class_dimension(np.eye(WAY)[:, truth][None], rows, graph)[0])


def right(task, truth, settings):
    return float((np.asarray(solve(task, settings).probabilities)[0].argmax(-1) == truth).mean())


@pytest.mark.parametrize("rows", [30, 100, 400])
def test_curves_have_few_dimensions_and_clusters_many_however_many_rows(rows):
    assert dimension(*pool("curves", rows)) < 7
    assert dimension(*pool("clusters", rows)) > 12


def test_curves_are_followed():
    gains = []
    for seed in range(4):
        task, truth = pool("curves", seed=seed)
        gains.append(right(task, truth, POOL_SETTINGS) - right(task, truth, SETTINGS))
        assert right(task, truth, POOL_SETTINGS) > 0.95
    assert np.mean(gains) > 0.05


def test_clusters_are_left_as_they_are():
    task, _ = pool("clusters")
    with_labels, without = (solve(task, s).probabilities for s in (POOL_SETTINGS, SETTINGS))
    np.testing.assert_array_equal(with_labels, without)


@pytest.mark.parametrize("shot", [1, 5])
def test_episodes_of_a_bank_are_left_as_they_are(shot):
    bank = load(Path(__file__).parents[2] / "data" / "banks" / "cifar-fs_wrn-28-10_validation.safetensors")
    recipe = Recipe(shot=shot, episodes=20)
    drawn = recipe.draw(bank.labels)
    x = np.asarray(bank.features)
    task = apply(Task(x[drawn.support], drawn.support_labels, x[drawn.query], 5), "PEMbE", bank.base)
    with_labels, without = (solve(task, s).probabilities for s in (POOL_SETTINGS, SETTINGS))
    np.testing.assert_array_equal(with_labels, without)


def test_weights_change_gradually_and_later_with_few_shots():
    of_labels, of_means = SETTINGS.weights_of_labels_and_means(np.array([5.0, 8.65, 9.4, 15.0]), shots=5)
    np.testing.assert_allclose(of_labels, [1, 0.5, 0, 0], atol=1e-12)
    np.testing.assert_allclose(of_means, [0, 1, 1, 1])
    np.testing.assert_allclose(SETTINGS.weights_of_labels_and_means(np.array([5.0, 7.0]), shots=1)[0], [1, 0])


def test_tasks_of_one_batch_get_their_own_weights():
    tasks = [pool(kind)[0] for kind in ("clusters", "curves")]
    batch = Task(
        *(np.concatenate(parts) for parts in zip(*((t.support, t.labels, t.query) for t in tasks), strict=True)), WAY
    )
    found = np.asarray(solve(batch, POOL_SETTINGS).probabilities)
    for task, both in zip(tasks, found, strict=True):
        np.testing.assert_allclose(both, np.asarray(solve(task, POOL_SETTINGS).probabilities)[0], atol=1e-8)


def test_rows_that_no_label_reaches_get_an_answer():
    task, truth = pool("curves")
    far = np.zeros((1, 20, 2 * WIDTH))
    far[..., WIDTH:] = np.random.default_rng(0).normal(size=(20, WIDTH)) * 0.01 + 1.0
    wide = [np.concatenate([x, np.zeros_like(x)], axis=-1) for x in (task.support, task.query)]
    scores = solve(Task(wide[0], task.labels, np.concatenate([wide[1], far], axis=1), WAY), POOL_SETTINGS)
    assert np.isfinite(scores.probabilities).all()
    assert (np.asarray(scores.probabilities)[0, :-20].argmax(-1) == truth).mean() > 0.9


def test_a_large_pool_gives_the_answers_of_the_readable_method():
    task, _ = pool("curves", rows=300)
    expected, found = solve(task, POOL_SETTINGS), of_large_pool(task, POOL_SETTINGS)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-4)


def test_labels_are_not_spread_through_a_sample(monkeypatch):
    monkeypatch.setattr(landmarks, "LANDMARKS", 200)
    task, _ = pool("curves")
    with_labels, without = (of_large_pool(task, s).probabilities for s in (POOL_SETTINGS, SETTINGS))
    np.testing.assert_array_equal(with_labels, without)
