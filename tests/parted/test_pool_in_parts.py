"""Methods on a pool in parts: the answers of the same rows in memory, whoever computes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from sinkshot import FeatureBank, InputError, Task, load, methods, preprocess
from sinkshot.formats.parts import PartedFeatures, open_parts
from sinkshot.kernels.sinkshot_large import SparseGraph, large_pool
from sinkshot.methods import sinkshot as default
from sinkshot.methods.algebra import rows_of
from sinkshot.parted import graph as graph_in_parts
from sinkshot.parted import neighbours, pool
from sinkshot.parted import work_folder as folders
from sinkshot.parted.array import PartedArray, new_array
from sinkshot.parted.pool import PartedPool, prepare_pool
from sinkshot.parted.solve import solve
from sinkshot.parted.work_folder import WorkFolder, work_folder
from sinkshot.settings.sinkshot import SETTINGS

SHOTS, CLASSES = 5, 6
CHAIN = "PEMcE"


@pytest.fixture(scope="module")
def bank() -> FeatureBank:
    """3,600 real rows, of which 30 have labels: the first five of each class."""
    whole = load("cifar-fs_wrn-28-10_novel")
    some = whole.labels < CLASSES
    order = np.random.default_rng(0).permutation(int(some.sum()))
    return FeatureBank.from_arrays(whole.features[some][order].astype(np.float16), whole.labels[some][order])


@pytest.fixture(scope="module")
def codes(bank: FeatureBank) -> np.ndarray:
    """Labels, -1 where a row is to be labelled."""
    found = np.full(len(bank.labels), -1)
    for code in range(CLASSES):
        rows = np.flatnonzero(bank.labels == code)[:SHOTS]
        found[rows] = code
    return found


@pytest.fixture
def features(bank: FeatureBank, tmp_path: Path) -> PartedFeatures:
    """The bank in parts of 1,000 rows."""
    bank.save(tmp_path / "bank", "float16", part_rows=1_000)
    return open_parts(tmp_path / "bank")[0]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkFolder]:
    """A run on threads, with parts of the pool small enough that there are several."""
    monkeypatch.setattr(pool, "PART_ROWS", (700, 700))
    monkeypatch.setattr(graph_in_parts, "PIECE_ROWS", (300, 300))
    with work_folder(tmp_path, None, None) as made:
        yield made


def collected(array: PartedArray, of: PartedPool, rows: int) -> np.ndarray:
    """Values [n, k] of the queries in the order of the bank; labelled rows have zeros."""
    parts = {part: array.expression.of_part(of.layout, part)[0] for part in array.parts()}
    first = next(iter(parts.values()))
    found = np.zeros((rows, *first.shape[1:]), first.dtype)
    for part, values in parts.items():
        found[of.files.bank_numbers(part)] = values
    return found


def task_of(bank: FeatureBank, codes: np.ndarray, chain: str = CHAIN) -> Task:
    """The same rows in memory."""
    order = np.argsort(codes < 0, kind="stable")
    own = codes[codes >= 0]
    x = preprocess.run(bank.features[order], preprocess.parse(chain), supports=len(own), labels=own).x
    return Task(x[None, : len(own)], own[None], x[None, len(own) :], CLASSES)


def answers(
    method: str, features: PartedFeatures, codes: np.ndarray, work: WorkFolder, **hyper: Any
) -> tuple[Any, ...]:
    """Probabilities [n, way] and unknown [n] in the order of the bank."""
    chosen = methods.get(method)
    chain = {"ncm": "PE", "bms": "PEMnE"}.get(method, CHAIN)
    prepared = prepare_pool(features, codes, chain, work)
    scores, _ = solve(prepared, chosen, chosen.bind(hyper), work)
    probabilities = collected(scores.probabilities, prepared, len(codes))
    unknown = None if scores.unknown is None else collected(scores.unknown, prepared, len(codes))
    return probabilities, unknown


@pytest.mark.parametrize(("method", "chain"), [("ncm", "PE"), ("bms", "PEMnE")])
def test_other_methods_agree_with_memory(
    method: str, chain: str, bank: FeatureBank, codes: np.ndarray, features: PartedFeatures, work: WorkFolder
) -> None:
    """Nearest class means and BMS without regression give the labels that they give in memory."""
    found, _ = answers(method, features, codes, work)
    hyper = {"epochs": 0} if method == "bms" else {}
    same = methods.METHODS[method].function(task_of(bank, codes, chain), **hyper).probabilities[0]
    assert np.mean(found[codes < 0].argmax(axis=1) == same.argmax(axis=1)) >= 0.999
    assert np.abs(found[codes < 0] - same).mean() < 1e-4


@pytest.mark.slow
def test_the_default_agrees_with_memory(
    bank: FeatureBank, codes: np.ndarray, features: PartedFeatures, work: WorkFolder
) -> None:
    """With the graph of the parts at least 99.9 % of the labels are equal, with its own exact graph 99.5 %."""
    prepared = prepare_pool(features, codes, CHAIN, work)
    chosen = methods.get("sinkshot")
    scores, _ = solve(prepared, chosen, {}, work)
    found = collected(scores.probabilities, prepared, len(codes))[codes < 0]
    unknown = collected(scores.unknown, prepared, len(codes))[codes < 0]
    exact = chosen.function(task_of(bank, codes)).probabilities[0]
    assert np.mean(found.argmax(axis=1) == exact.argmax(axis=1)) >= 0.995
    graph, _ = neighbours.neighbour_graph(prepared, work, SETTINGS.neighbours, SETTINGS.sharpness)
    every = range(len(prepared.layout.sizes) + 1)
    weights = sparse.vstack([graph_in_parts.read_graph(prepared.layout, part) for part in every]).tocsr()
    root = np.concatenate([graph.root_degree.expression.of_part(prepared.layout, part) for part in every], axis=-1)
    number = np.concatenate([prepared.files.bank_numbers(part) for part in every])  # row of the bank at each place
    in_memory = np.concatenate([np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)])
    order = np.argsort(number)[in_memory]  # place of each row of the task
    same_graph = SparseGraph(weights[order][:, order], root[..., order], graph.closeness)
    same = default.run_steps(rows_of(task_of(bank, codes)), same_graph, SETTINGS)
    assert np.mean(found.argmax(axis=1) == same.probabilities[0].argmax(axis=1)) >= 0.999
    assert np.abs(found - same.probabilities[0]).mean() < 1e-3
    assert np.abs(unknown - same.unknown[0]).mean() < 1e-2


@pytest.fixture
def landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,500 of the 3,600 rows are landmarks; all of their cells are searched, so that neighbours are exact."""
    monkeypatch.setattr("sinkshot.kernels.landmarks.LANDMARKS", 1_500)
    monkeypatch.setattr(neighbours, "CELLS_OF_OTHERS", 1_000)


@pytest.mark.slow
@pytest.mark.usefixtures("landmarks")
def test_landmarks_are_those_of_memory(
    bank: FeatureBank, codes: np.ndarray, features: PartedFeatures, work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the landmarks both roads have the same graph, and so the same labels and outsiders."""
    prepared = prepare_pool(features, codes, CHAIN, work)
    task = task_of(bank, codes)
    with large_pool(task) as whole:
        in_memory = np.concatenate([np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)])[whole.landmarks]
    marks = np.concatenate([prepared.files.bank_numbers(part) for part in prepared.layout.of_landmarks])
    assert abs(len(marks) - 1_500) <= 15
    np.testing.assert_array_equal(np.sort(marks), np.sort(in_memory))
    found, unknown = answers("sinkshot", features, codes, work)
    monkeypatch.setattr("sinkshot.methods.sinkshot.LARGE_POOL", 0)
    same = methods.get("sinkshot").function(task)
    assert np.mean(found[codes < 0].argmax(axis=1) == same.probabilities[0].argmax(axis=1)) >= 0.999
    assert np.abs(found[codes < 0] - same.probabilities[0]).mean() < 1e-3
    assert np.abs(unknown[codes < 0] - same.unknown[0]).mean() < 1e-2


@pytest.mark.usefixtures("landmarks")
def test_averages_beyond_landmarks_are_those_of_the_whole_graph(
    codes: np.ndarray, features: PartedFeatures, work: WorkFolder
) -> None:
    """Repeated averages over landmarks and one over other rows give what the whole matrix gives."""
    prepared = prepare_pool(features, codes, CHAIN, work)
    layout, every = prepared.layout, range(len(prepared.layout.sizes) + 1)
    graph, _ = neighbours.neighbour_graph(prepared, work, 6, 4.0)
    weights = np.vstack([graph_in_parts.read_graph(layout, part).toarray() for part in every])
    values = new_array(work, layout, 2, of_queries=False)
    drawn = np.random.default_rng(0).random((layout.rows, 2), dtype=np.float32)
    for part in every:
        values.stored().write(layout, part, drawn[slice(*layout.starts[part : part + 2])].T)
    mixed = drawn
    for _ in range(3):
        mixed = 0.3 * drawn + 0.7 * weights @ mixed[: layout.landmarks]
    found = graph.smooth(values, 0.7, 3)
    whole = np.concatenate([found.expression.of_part(layout, part) for part in every], axis=-1)[0].T
    np.testing.assert_allclose(whole[layout.landmarks :], mixed[layout.landmarks :], rtol=1e-4)
    square = sparse.csr_array(np.pad(weights, ((0, 0), (0, layout.rows - layout.landmarks))))
    number = np.concatenate([prepared.files.bank_numbers(part) for part in every])  # row of the bank at each place
    order = np.argsort(number)[np.concatenate([np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)])]
    own = np.flatnonzero(order < layout.landmarks)  # landmarks in the task
    in_memory = SparseGraph(square[order][:, order], np.ones((1, 1, layout.rows)), graph.closeness, own)
    np.testing.assert_allclose(whole[order], in_memory.smooth(drawn[order].T[None], 0.7, 3)[0].T, rtol=1e-4)
    ones = graph.average(values[..., :1, :] * 0.0 + 1.0, 0.7, 3)
    for part in every:
        np.testing.assert_allclose(ones.expression.of_part(layout, part), 1, rtol=1e-5)


@pytest.mark.slow
def test_neighbours_by_cells_are_the_nearest(
    bank: FeatureBank, codes: np.ndarray, features: PartedFeatures, work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 8 of some 56 cells searched, nine tenths of the exact neighbours are found; with all, every one."""
    monkeypatch.setattr(pool, "cells_wanted", lambda rows: 56)
    prepared = prepare_pool(features, codes, CHAIN, work)
    rows = np.concatenate([prepared.files.rows(part) for part in range(len(prepared.layout.sizes) + 1)])
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -2)
    exact = np.sort(np.argsort(-cosines, axis=1)[:, :6], axis=1)
    for searched, least in ((8, 0.9), (56, 0.999)):
        monkeypatch.setattr(neighbours, "CELLS_SEARCHED", searched)
        neighbours.neighbour_graph(prepared, work, 6, 4.0)
        every = range(len(prepared.layout.sizes) + 1)
        graph = sparse.vstack([graph_in_parts.read_graph(prepared.layout, part) for part in every]).tocsr()
        linked = np.asarray(graph[np.arange(len(rows))[:, None], exact].todense() if sparse.issparse(graph) else 0)
        positive = np.take_along_axis(cosines, exact, axis=1) > 0
        assert np.mean((linked.reshape(exact.shape) > 0)[positive]) >= least


@pytest.mark.slow
@pytest.mark.parametrize("most", [1_500, 100_000])
def test_answers_do_not_depend_on_the_parts_of_the_bank(
    bank: FeatureBank,
    codes: np.ndarray,
    features: PartedFeatures,
    work: WorkFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """One part and four give the same but for rounding of the mean."""
    monkeypatch.setattr("sinkshot.kernels.landmarks.LANDMARKS", most)
    bank.save(tmp_path / "one", "float16", part_rows=10_000)
    one, unknown = answers("sinkshot", open_parts(tmp_path / "one")[0], codes, work)
    four, unknown_of_four = answers("sinkshot", features, codes, work)
    assert np.mean(one.argmax(axis=1) == four.argmax(axis=1)) >= 0.9995
    assert np.abs(one - four).mean() < 1e-4
    assert np.abs(unknown - unknown_of_four).mean() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, *(pytest.param(count, marks=pytest.mark.long) for count in (1, 4))])
def test_answers_do_not_depend_on_the_workers(
    codes: np.ndarray, features: PartedFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Threads of this process, and one, two or four processes, give the same bits."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "PART_ROWS", (700, 700))
    monkeypatch.setattr("sinkshot.kernels.landmarks.LANDMARKS", 2_000)  # both kinds of rows
    monkeypatch.setattr(folders, "SMALL", 0)
    monkeypatch.setattr(folders, "SENT", 0)  # every pass goes to the workers
    found = []
    for workers in (None, processes):
        with work_folder(tmp_path, workers, None) as made:
            found.append(answers("sinkshot", features, codes, made))
    for probabilities, unknown in found[1:]:
        assert np.array_equal(probabilities, found[0][0])
        assert np.array_equal(unknown, found[0][1])


def test_a_damaged_part_is_named(codes: np.ndarray, features: PartedFeatures, work: WorkFolder, tmp_path: Path) -> None:
    """A changed byte is found by the digest of its part."""
    damaged = tmp_path / "bank" / "part-00002.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(InputError, match=r"part-00002.*make it again"):
        prepare_pool(features, codes, CHAIN, work)


def test_a_folder_without_room_is_named(
    codes: np.ndarray, features: PartedFeatures, work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends in a sentence, before work where that can be known."""

    class Full:
        f_bavail, f_frsize = 10, 4_096

    monkeypatch.setattr("os.statvfs", lambda _: Full)
    with pytest.raises(InputError, match=r"has 41.0 kB free.*--cache"):
        prepare_pool(features, codes, CHAIN, work)


def test_methods_that_do_not_run_in_parts_are_refused(
    codes: np.ndarray, features: PartedFeatures, work: WorkFolder
) -> None:
    """The sentence names those that do."""
    with pytest.raises(InputError, match="use one of sinkshot, bms"):
        answers("ilpc", features, codes, work)


def test_a_chain_that_needs_all_rows_is_refused(codes: np.ndarray, features: PartedFeatures, work: WorkFolder) -> None:
    """Batch norm and whitening need more than sums of rows."""
    with pytest.raises(InputError, match="PEMcE or PEMnE"):
        prepare_pool(features, codes, "PEMcEWE", work)


def test_files_of_a_run_are_removed(codes: np.ndarray, features: PartedFeatures, tmp_path: Path) -> None:
    """Nothing stays but the bank."""
    with work_folder(tmp_path, None, None) as made:
        answers("sinkshot", features, codes, made)
        arrays = len(list(made.path.glob("array-*")))
    assert arrays <= 12  # those of arrays that are not used any more are gone before the end
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]
