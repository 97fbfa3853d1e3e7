"""One large pool by `sinkshot`: the answers of the readable method, whatever the threads."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sinkshot
from sinkshot import Task
from sinkshot.kernels import landmarks, sinkshot_large
from sinkshot.kernels.nearest_rows import nearest_rows
from sinkshot.kernels.nearest_rows_faiss import nearest_by_cells
from sinkshot.kernels.sinkshot_large import large_pool, sparse_graph
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.sinkshot import is_large, of_large_pool, run_steps
from sinkshot.preprocess import parse, run
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


def real_pool(rows):
    """Return one task of rows of the bundled bank, five of each class labelled."""
    bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
    chosen = np.random.default_rng(0).permutation(len(bank.labels))[:rows]
    x, labels = run(np.asarray(bank.features)[chosen], parse("PEMnE")).x, np.asarray(bank.labels)[chosen]
    way = len(bank.class_names)
    support = np.concatenate([np.flatnonzero(labels == code)[:5] for code in range(way)])
    query = np.setdiff1d(np.arange(rows), support)
    return Task(x[None, support], labels[None, support], x[None, query], way)


def readable(task):
    rows = rows_of(task)
    return run_steps(rows, neighbour_graph(rows, SETTINGS.neighbours, SETTINGS.sharpness), SETTINGS)


def nearest(x, count, workers=2, block=64):
    with ThreadPoolExecutor(workers) as threads:
        return nearest_rows([x[at : at + block] for at in range(0, len(x), block)], count, threads, workers)


@pytest.mark.slow
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


@pytest.mark.slow
def test_labels_on_the_approximate_graph_are_those_on_the_exact_one(monkeypatch):
    """Neighbours among 5,000 landmarks: those that faiss finds, and all of them."""
    pytest.importorskip("faiss")
    task = real_pool(6_000)
    monkeypatch.setattr(landmarks, "LANDMARKS", 5_000)
    answers = []
    for count in (1, 3):
        monkeypatch.setattr(sinkshot_large, "workers", lambda count=count: count)
        answers.append(of_large_pool(task, SETTINGS))
    np.testing.assert_array_equal(answers[0].probabilities, answers[1].probabilities)  # whatever the threads
    monkeypatch.setattr(sinkshot_large, "has_faiss", lambda: False)
    expected = of_large_pool(task, SETTINGS)
    assert (answers[0].probabilities != expected.probabilities).any()
    same = answers[0].probabilities.argmax(-1) == expected.probabilities.argmax(-1)
    assert same.mean() >= 0.995


@pytest.mark.parametrize("supports", [0, 10, 90])
def test_most_rows_are_landmarks_of_a_small_pool_and_few_of_a_large_one(supports):
    for queries in (101, 150, 1_000, 12_345):
        assert landmarks.landmarks_wanted(supports, queries, most=100) == max(100 - supports, 50)
    assert landmarks.landmarks_wanted(supports, 100 - supports, most=100) is None


def test_landmarks_are_drawn_evenly_from_cells():
    """Of each cell its share, up to rounding, and of each stretch of a cell one; about as many as wanted in all."""
    sizes = np.random.default_rng(0).integers(0, 200, size=500)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for count in (700, 20_000):
        places = landmarks.landmark_places(sizes, count)
        assert abs(len(places) - count) < 3 * np.sqrt(len(sizes) / 12)
        assert (np.diff(places) > 0).all()
        found = np.diff(np.searchsorted(places, starts))
        assert np.abs(found - sizes * count / sizes.sum()).max() < 1
        for cell in np.flatnonzero(found > 1)[:50]:
            own = places[slice(*np.searchsorted(places, starts[cell : cell + 2]))]
            assert np.diff(own).max() <= 2 * -(-sizes[cell] // found[cell])


def test_a_row_more_in_one_cell_changes_the_landmarks_of_no_other():
    """Rounding puts single rows into other cells in parts than in memory: nearly all landmarks stay the same."""
    sizes = np.random.default_rng(1).integers(1, 60, size=200)
    moved = sizes.copy()
    moved[17] += 1
    moved[90] -= 1
    before, after = (landmarks.landmark_places(some, 2_000) for some in (sizes, moved))
    cells = [np.searchsorted(np.cumsum(some), at, side="right") for some, at in ((sizes, before), (moved, after))]
    ranks = [
        at - (np.cumsum(some) - some)[cell]
        for some, at, cell in zip((sizes, moved), (before, after), cells, strict=True)
    ]
    pairs = [set(zip(cell.tolist(), rank.tolist(), strict=True)) for cell, rank in zip(cells, ranks, strict=True)]
    assert {cell for cell, _ in pairs[0] ^ pairs[1]} <= {17, 90}


def test_landmarks_of_similar_rows_are_more_even_than_chance(monkeypatch):
    """Of groups of 30 rows that are nearly equal a third is drawn; how many varies less than by chance."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 40))
    rows = np.repeat(centres, 30, axis=0) + 0.01 * rng.normal(size=(3_000, 40))
    order = rng.permutation(3_000)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)[order]
    with ThreadPoolExecutor(2) as threads:
        found = sinkshot_large.landmark_queries(rows, 1_000, threads)
    assert len(np.unique(found)) == len(found)
    assert abs(len(found) - 1_000) < 20
    drawn = np.bincount(order[found] // 30, minlength=100)
    assert drawn.std() < 0.6 * np.sqrt(30 * (1 / 3) * (2 / 3))


def test_a_row_beyond_the_landmarks_is_linked_as_if_added_alone(monkeypatch):
    """Between landmarks the graph is that of these alone; another row has the weights of a pool with it as the last."""
    monkeypatch.setattr(landmarks, "LANDMARKS", 100)
    monkeypatch.setattr(sinkshot_large, "has_faiss", lambda: False)
    task = pool(300, dtype=np.float32)
    x = np.concatenate([task.support[0], task.query[0]])
    with large_pool(task) as made:
        graph, chosen = made.graph(6, 4.0), made.landmarks
    others = np.setdiff1d(np.arange(len(x)), chosen)
    weights = graph.weights.toarray()
    alone = sparse_graph(nearest(x[chosen], 6), 4.0, np.float32)
    assert abs(len(chosen) - 100) <= 5
    assert (weights[:, others] == 0).all()
    np.testing.assert_allclose(weights[np.ix_(chosen, chosen)], alone.weights.toarray(), atol=1e-6)
    for row in others[::29]:
        added = sparse_graph(nearest(x[[*chosen, row]], 6), 4.0, np.float32)
        own = added.weights.toarray()[-1] * added.root_degree[0, 0, -1] * added.root_degree[0, 0]  # without scaling
        found = weights[row, chosen] * graph.root_degree[0, 0, row] * graph.root_degree[0, 0, chosen]
        np.testing.assert_allclose(found, own[:-1], atol=1e-5)
    ones = np.ones((1, 1, len(x)), np.float32)
    np.testing.assert_allclose(graph.average(ones, 0.7, 3), ones, rtol=1e-5)


@pytest.mark.parametrize("faiss", [False, True])
def test_a_pool_of_which_every_row_is_drawn_has_no_other_rows(monkeypatch, faiss):
    """Many labelled rows, or a pool hardly larger than the sample, may leave none; nothing fails then."""
    if faiss:
        pytest.importorskip("faiss")
    task = pool(40, dtype=np.float32)
    monkeypatch.setattr(sinkshot_large, "has_faiss", lambda: faiss)
    for most in (task.supports + task.queries - 1, task.supports + 10):
        monkeypatch.setattr(landmarks, "LANDMARKS", most)
        monkeypatch.setattr(sinkshot_large, "landmark_queries", lambda rows, *_: np.arange(len(rows)))
        with large_pool(task) as made:
            assert made.landmarks is None
            graph = made.graph(6, 4.0)
        alone = neighbour_graph(rows_of(task), 6, 4.0)
        np.testing.assert_allclose(graph.weights.toarray(), alone.weights[0], atol=1e-5)


def test_a_landmark_does_without_what_comes_back_of_its_own_value(monkeypatch):
    """A landmark's average changes with its own value by its own share alone, up to noise; as that of another row."""
    monkeypatch.setattr(landmarks, "LANDMARKS", 200)
    with large_pool(pool(600, dtype=np.float32)) as made:
        graph, chosen = made.graph(6, 4.0), made.landmarks
    spread, times, rows = 0.9, 8, graph.weights.shape[0]
    exact = np.eye(rows)
    for _ in range(times):
        exact = (1 - spread) * np.eye(rows) + spread * (graph.weights.toarray() @ exact)
    returned = np.diagonal(exact)[chosen] - (1 - spread)
    assert returned.mean() > 0.03
    values = 0.5 + 0.5 * np.random.default_rng(0).random((1, 2, rows), dtype=np.float32)
    whole, found = (exact @ values[0].T).T, graph.smooth(values, spread, times)[0]
    np.testing.assert_allclose(np.delete(found, chosen, axis=1), np.delete(whole, chosen, axis=1), rtol=1e-4)
    taken = ((whole - found) / values[0])[:, chosen]  # share of its own value that each landmark is spared
    np.testing.assert_allclose(taken[0], taken[1], atol=1e-4)
    assert abs(taken.mean() - returned.mean()) < 0.005
    assert np.abs(taken[0] - returned).mean() < 0.02


def test_random_signs_are_a_function_of_the_number_alone_and_balanced():
    signs = landmarks.random_signs(np.arange(5_000))
    np.testing.assert_array_equal(landmarks.random_signs(np.array([4_321, 7])), signs[[4_321, 7]])
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert np.abs(signs.mean(axis=0)).max() < 0.06
    assert np.abs(signs.T @ signs / len(signs) - np.eye(64)).max() < 0.08


def test_equal_rows_are_found_by_cells_too():
    pytest.importorskip("faiss")
    x = np.concatenate([np.ones((300, 4)), np.eye(4)[np.arange(100) % 4]])
    with ThreadPoolExecutor(2) as threads:
        cosines, numbers = nearest_by_cells([x[:256], x[256:]], [x[:50], x[50:]], 6, threads)
    assert numbers.shape == cosines.shape == (400, 6)
    np.testing.assert_allclose(cosines[:300], 1, atol=1e-6)


@pytest.mark.parametrize("faiss", [True, False])
def test_many_equal_rows_beyond_the_landmarks_get_an_answer(monkeypatch, faiss):
    """However many landmarks would choose a row, it reads few of them."""
    if faiss:
        pytest.importorskip("faiss")
    monkeypatch.setattr(sinkshot_large, "has_faiss", lambda: faiss)
    monkeypatch.setattr(landmarks, "LANDMARKS", 300)
    task = pool(900)
    query = task.query.copy()
    query[0, 100:] = query[0, 100]
    scores = of_large_pool(Task(task.support, task.labels, query, task.way), SETTINGS)
    assert np.isfinite(scores.probabilities).all()
    np.testing.assert_allclose(scores.probabilities.sum(-1), 1)


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


LARGE_FIT = """
import resource, sys, time
import numpy as np
import sinkshot
from sinkshot import FewShotClassifier
bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
features, labels = np.asarray(bank.features), np.asarray(bank.labels)
rng = np.random.default_rng(0)
first = rng.integers(0, len(labels), size=int(sys.argv[1]))
second = rng.integers(0, 600, size=len(first)) + 600 * (first // 600)  # of the same class: 600 rows each, in order
x = np.empty((len(first), features.shape[1]), dtype=np.float32)
for at in range(0, len(first), 4096):
    some = slice(at, at + 4096)
    x[some] = 0.5 * (features[first[some]] + features[second[some]])
y = np.full(len(x), -1)
for code in range(20):
    y[np.flatnonzero(labels[first] == code)[:5]] = code
FewShotClassifier(unknown=0.5).fit(x[:6_000], np.where(np.arange(6_000) < 2_000, labels[first[:6_000]], -1))  # compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
model = FewShotClassifier(unknown=0.5).fit(x, y)
print(time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
assert np.mean(model.label_distributions_.argmax(axis=1) == labels[first]) > 0.7
"""


def large_fit(rows):
    """Seconds and mebibytes of a fit."""
    command = [sys.executable, "-W", "ignore", "-c", LARGE_FIT, str(rows)]
    return map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.timing
@pytest.mark.parametrize(("rows", "most"), [(50_000, 30), (100_000, 75)])
def test_a_large_pool_takes_seconds_and_less_than_800_mebibytes(rows, most):
    seconds, mebibytes = large_fit(rows)
    assert mebibytes < 800  # three copies of the 244 MiB of 100,000 rows, and a little
    assert seconds < most


@pytest.mark.slow
def test_the_memory_of_a_fit_grows_with_the_rows_and_not_with_their_square():
    _, mebibytes = large_fit(15_000)  # 37 MiB of features; a float32 matrix of all pairs would take 858
    assert mebibytes < 400
