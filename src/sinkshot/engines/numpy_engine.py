"""The engine of readable code on NumPy arrays, and what all engines have in common."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.engines.job import Job, prior_is, true_shares
from sinkshot.engines.metrics import accuracy, rejection
from sinkshot.episodes import Episodes
from sinkshot.task import Array, GramTask, Scores, Task
from sinkshot.threads import ONE_BLAS_THREAD, cores, in_order

STAGES = ("sample", "prepare", "classify")
Judged = tuple[NDArray[np.float64], Mapping[str, NDArray[np.float64]]]
"""Accuracies [r] and, under `open-set`, the measures of `sinkshot.open_set` by name, [r] each."""
DRAWN_AT_ONCE = 4096  # episodes
_MOST_THREADS = 8  # beyond, they wait for the interpreter


class Engine:
    """The readable code on NumPy arrays: takes every job, and is what the others are held against."""

    name = "numpy"
    chunk_bytes = 16 << 20  # of features in a chunk: with less, threads spend their time on the interpreter's lock

    def __init__(self, job: Job, device: str) -> None:
        self.job, self.device = job, device
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.zero_rows = 0
        self.row_wise, self.task_wise = preprocess.split(job.steps)
        self.centring = preprocess.centring(self.task_wise)
        self.base_mean = preprocess.base_mean_of(job.means, job.base)
        self.base: FeatureBank | None = None  # behind the row-wise part of the chain, where the method asks for it
        self.lock, self.threads = Lock(), self._threads()

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether this engine can do the job."""
        return True

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether "auto" should choose this engine for a job that it takes."""
        return True

    def run(self) -> Iterator[Judged]:
        """Yield accuracies and measures of the open set chunk by chunk."""
        with self._timed("prepare", self.threads):
            rows = self._rows()
            if self.job.method.features and self.job.base is not None:
                self.base = preprocess.base_after(self.job.base, self.row_wise, self.base_mean)
        with self._quiet():
            yield from in_order(lambda chunk: self._judged(rows, chunk), self._chunks(), self.threads)

    def _judged(self, rows: Array, chunk: Episodes) -> Judged:
        """Accuracies and measures of the open set of a chunk."""
        scores = self._scores(rows, chunk)
        with self._timed("classify"):
            return accuracy(scores, chunk), rejection(scores, chunk) if self.job.recipe.protocol == "open-set" else {}

    def _threads(self) -> int:
        """Chunks that are worked on at a time: arrays of an episode's size are no job for threads of their own."""
        return min(_MOST_THREADS, cores())

    def _quiet(self) -> AbstractContextManager[object]:
        """Keep BLAS to one thread: on matrices of an episode's size more of them only wait for each other."""
        return ONE_BLAS_THREAD

    @contextmanager
    def _timed(self, stage: str, threads: int = 1) -> Iterator[None]:
        """Count the seconds inside, in so many threads: of all seconds those of one thread are a share."""
        start = time.perf_counter()
        yield
        with self.lock:
            self.seconds[stage] += (time.perf_counter() - start) * threads / self.threads

    def _array(self, values: NDArray[Any]) -> Array:
        """Bring an array to the engine's library and device."""
        return values

    def _features(self) -> Array:
        return self.job.bank.features

    def _rows(self) -> Array:
        """Apply the part of the chain that acts on rows alone to the whole bank."""
        done = preprocess.run(self._features(), self.row_wise, base_mean=self.base_mean)
        self.zero_rows += done.zero_rows
        return done.x

    def _chunks(self) -> Iterator[Episodes]:
        """Episodes in parts that the engine takes at once, a multiple of the threads where there are few."""
        parts = -(-self.job.total // self._chunk_size())
        size = -(-self.job.total // (-(-parts // self.threads) * self.threads))
        for drawn in self._drawn():
            for begin in range(0, len(drawn), size):
                yield drawn[begin : begin + size]

    def _chunk_size(self) -> int:
        return max(1, self.chunk_bytes // (4 * self.job.rows * self.job.bank.width))

    def _drawn(self) -> Iterator[Episodes]:
        episodes = self.job.episodes
        if isinstance(episodes, Episodes):
            yield episodes
            return
        for first in range(0, episodes.episodes, DRAWN_AT_ONCE):
            with self._timed("sample", self.threads):
                count = min(DRAWN_AT_ONCE, episodes.episodes - first)
                drawn = episodes.draw(self.job.bank.labels, first, count, self.job.bank.class_names)
            yield drawn

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        """Gather the rows of a chunk, apply the rest of the chain and run the method."""
        with self._timed("prepare"):
            both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
            supports, labels = chunk.support.shape[1], self._array(chunk.support_labels)
            done = preprocess.run(rows[both], self.task_wise, supports=supports, base_mean=self.base_mean)
            with self.lock:
                self.zero_rows += done.zero_rows
            task = Task(done.x[:, :supports], labels, done.x[:, supports:], self.job.recipe.way, self.base)
        with self._timed("classify"):
            return self.job.method.function(task, **self._hyper(chunk))

    def _fused(self) -> bool:
        """Whether a kernel does all of it: BMS, where the task's rows have one mean or none."""
        return self.job.method.fused and self.centring is not None and not self.centring.apart

    def _gram_steps(self) -> tuple[bool, bool]:
        """Whether a kernel centres and normalises Gram matrices; a task's mean goes before its parts', for digits."""
        centre, apart, normalise = self.centring or (False, False, False)
        return centre or apart, normalise and not apart

    def _gram_task(self, matrices: Array, labels: Array) -> GramTask:
        """Make the task of Gram matrices that come from a kernel."""
        if self.centring is not None and self.centring.apart:
            matrices = preprocess.centred_apart(matrices, labels.shape[1], self.centring.normalise)
        return GramTask(matrices, labels, self.job.recipe.way)

    def _hyper(self, chunk: Episodes) -> dict[str, Any]:
        """Hyper-parameters for the episodes of a chunk: an oracle's prior is theirs."""
        hyper = self.job.hyper
        return {**hyper, "prior": true_shares(chunk)} if prior_is(hyper, "oracle") else hyper
