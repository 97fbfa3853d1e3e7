"""The bits of answers in parts depend neither on who computes a job nor on the threads of BLAS."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from sinkshot import FeatureBank, load, methods
from sinkshot.formats.parts import open_parts
from sinkshot.parted import graph, pool
from sinkshot.parted.pool import prepare_pool
from sinkshot.parted.solve import solve
from sinkshot.parted.work_folder import WorkFolder, work_folder

CLASSES, SHOTS, ROWS = 6, 5, 3_000


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[np.ndarray]]:
    """Return what labels 3,000 real rows, 2,000 of them landmarks, and returns the probabilities of each part.

    Most of its passes are so small that one thread of the command does them.
    """
    whole = load("cifar-fs_wrn-28-10_novel")
    some = np.random.default_rng(0).permutation(np.flatnonzero(whole.labels < CLASSES))[:ROWS]
    bank = FeatureBank.from_arrays(whole.features[some], whole.labels[some])
    bank.save(tmp_path / "bank", "float16", part_rows=1_000)
    codes = np.full(len(some), -1)
    for code in range(CLASSES):
        codes[np.flatnonzero(bank.labels == code)[:SHOTS]] = code
    monkeypatch.setattr(pool, "PART_ROWS", (700, 700))
    monkeypatch.setattr(graph, "PIECE_ROWS", (300, 300))
    monkeypatch.setattr("sinkshot.kernels.landmarks.LANDMARKS", 2_000)

    def answers() -> list[np.ndarray]:
        with work_folder(tmp_path, None, None) as work:
            prepared = prepare_pool(open_parts(tmp_path / "bank")[0], codes, "PEMcE", work)
            found = solve(prepared, methods.get("sinkshot"), {}, work)[0].probabilities
            return [found.expression.of_part(prepared.layout, part) for part in found.parts()]

    return answers


@pytest.mark.slow
def test_threads_of_blas_change_no_bit(run: Callable[[], list[np.ndarray]]) -> None:
    """What the command computes beside its workers has one thread, too, however many BLAS had before."""
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(run())
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_job_that_was_sent_gives_the_same_bits(
    run: Callable[[], list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every job of a run, done here and as a copy that was pickled, returns and writes the same."""
    differing, compared = [], []

    def twice(self: WorkFolder, function: Callable[[Any], Any], jobs: Sequence[Any], **_: Any) -> list[Any]:
        results = []
        for job in jobs:
            here = function(job), _written(job)
            copy = function(pickle.loads(pickle.dumps(job))), _written(job)
            compared.append(function.__name__)
            pairs = zip(_arrays(here[0]), _arrays(copy[0]), strict=True)
            if here[1] != copy[1] or not all(np.array_equal(*pair) for pair in pairs):
                differing.append(function.__name__)
            results.append(here[0])
        return results

    monkeypatch.setattr(WorkFolder, "map", twice)
    run()
    assert {"weighted", "reduce", "store", "smoothed_classes", "searched", "searched_by_others"} <= set(compared)
    assert not differing


def _written(job: Any) -> list[bytes]:
    target = getattr(job, "target", None)
    path = getattr(target, "path", target)
    return [] if path is None else [Path(path).read_bytes()]


def _arrays(found: Any) -> Iterator[np.ndarray]:
    if is_dataclass(found):
        yield from (array for field in fields(found) for array in _arrays(getattr(found, field.name)))
    elif isinstance(found, list | tuple):
        yield from (array for one in found for array in _arrays(one))
    elif found is not None:
        yield np.asarray(found)
