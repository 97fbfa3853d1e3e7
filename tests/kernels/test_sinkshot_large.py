"""One large pool by `sinkshot`: the answers of the readable method, whatever the threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sinkshot import Task
from sinkshot.kernels import sinkshot_large
from sinkshot.kernels.nearest_rows import nearest_rows
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.sinkshot import is_large, of_large_pool, run_steps
from sinkshot.settings.sinkshot import SETTINGS


def pool(rows, width=48, way=6, strangers=0.0, dtype=np.float64, seed=0):
    """Return one task of classes of unequal sizes; the last rows may belong to none of the classes."""
    rng = np.random.default_rng(seed)
    centres = 0.35 * rng.normal(size=(way + 3, width))
    labels = np.repeat(np.arange(way), rng.integers(1, 6, size=way))
    truth = rng.choice(way, size=rows, p=rng.dirichlet(np.full(way, 3.0)))
    last = rows - int(strangers * rows)
    truth[last:] = way + np.arange(rows - last) % 3
    parts = [centres[k] + rng.normal(size=(len(k), width)) for k in (labels, truth)]
    support, query = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts)
    return Task(support[None].astype(dtype), labels[None], query[None].astype(dtype), way)


def readable(task):
    rows = rows_of(task)
    return run_steps(rows, neighbour_graph(rows, SETTINGS.neighbours, SETTINGS.sharpness), SETTINGS)


def nearest(x, count, workers=2, block=64):
    with ThreadPoolExecutor(workers) as threads:
        return nearest_rows([x[at : at + block] for at in range(0, len(x), block)], count, threads, workers)


@pytest.mark.parametrize("strangers", [0.0, 0.3])
def test_answers_are_those_of_the_readable_method(strangers):
    task = pool(2500, strangers=strangers)
    expected, found = readable(task), of_large_pool(task, SETTINGS)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)  # cosines are found in float32
    np.testing.assert_allclose(found.unknown, expected.unknown, atol=1e-5)
    assert not strangers or expected.unknown.max() > 0.5


def test_labels_in_single_precision_are_those_of_the_readable_method_in_double():
    expected = readable(pool(2500, strangers=0.2))
    found = of_large_pool(pool(2500, strangers=0.2, dtype=np.float32), SETTINGS)
    assert found.probabilities.dtype == np.float32
    same = found.probabilities.argmax(-1) == expected.probabilities.argmax(-1)
    assert same.mean() >= 0.999
    assert ((found.unknown > 0.5) == (expected.unknown > 0.5)).mean() >= 0.999


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_do_not_depend_on_the_number_of_threads(dtype, monkeypatch):
    task = pool(3000, dtype=dtype, strangers=0.2)
    answers = []
    for count in (1, 2, 3, 20):
        monkeypatch.setattr(sinkshot_large, "workers", lambda count=count: count)
        answers.append(of_large_pool(task, SETTINGS))
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0].probabilities, other.probabilities)
        np.testing.assert_array_equal(answers[0].unknown, other.unknown)


def test_a_pool_of_many_rows_goes_this_way_and_a_batch_does_not():
    x = np.zeros((1, 4_000, 2))
    labels = np.zeros((1, 1), dtype=int)
    assert is_large(Task(x[:, :1], labels, x, 1))
    assert not is_large(Task(x[:, :1], labels, x[:, :500], 1))
    assert not is_large(Task(np.zeros((2, 1, 2)), np.zeros((2, 1), dtype=int), np.zeros((2, 4_000, 2)), 1))


@pytest.mark.parametrize("rows", [7, 64, 65, 500])
def test_nearest_rows_are_those_of_a_search_through_all(rows):
    x = np.random.default_rng(rows).normal(size=(rows, 20)).astype(np.float32)
    cosines, numbers = nearest(x, 6)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    every = unit @ unit.T
    np.fill_diagonal(every, -2)
    order = np.argsort(-every, axis=1)[:, :6]
    np.testing.assert_array_equal(numbers, order)
    np.testing.assert_allclose(cosines, np.take_along_axis(every, order, axis=1), atol=1e-6)


def test_of_equal_rows_the_first_are_nearest():
    _, numbers = nearest(np.ones((200, 3), dtype=np.float32), 3, workers=4)
    assert numbers[0].tolist() == [1, 2, 3]
    assert numbers[2].tolist() == [0, 1, 3]
    assert (numbers[3:] == [0, 1, 2]).all()


def test_rows_of_zeros_and_equal_rows_get_an_answer():
    task = pool(500)
    query = task.query.copy()
    query[0, :100] = 0
    query[0, 100:300] = query[0, 100]
    scores = of_large_pool(Task(task.support, task.labels, query, task.way), SETTINGS)
    assert np.isfinite(scores.probabilities).all()
    assert np.isfinite(scores.unknown).all()
    np.testing.assert_allclose(scores.probabilities.sum(-1), 1)


def test_a_few_rows_get_an_answer_too():
    for rows in (1, 2, 5):
        scores = of_large_pool(pool(rows, way=2), SETTINGS)
        np.testing.assert_allclose(scores.probabilities.sum(-1), 1)
