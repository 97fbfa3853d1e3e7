"""The base class of engines: drawing chunks of episodes, threads, timing, and metrics of the results."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.arrays import blocks
from sinkshot.bank import in_parts
from sinkshot.calibration import Judged, judge
from sinkshot.engines.job import Job, prior_is, true_shares
from sinkshot.engines.metrics import checked, rejection
from sinkshot.episodes import Episodes
from sinkshot.task import Array, Scores
from sinkshot.threads import ONE_BLAS_THREAD, cores, in_order

STAGES = ("sample", "prepare", "classify")
DRAWN_AT_ONCE = 4096  # episodes
LARGE = 1 << 30  # bytes; rows of a larger bank are preprocessed when they are drawn, not all at once
_MOST_THREADS = 8  # more threads would wait for the interpreter lock


class Engine(ABC):
    """Turns the episodes of a job into metrics, chunk by chunk. Subclasses compute the scores of a chunk."""

    name: ClassVar[str]
    on_host: ClassVar[bool] = True  # whether features stay where the bank has them

    def __init__(self, job: Job, device: str) -> None:
        self.job, self.device = job, device
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.zero_rows = 0
        self.row_wise, self.task_wise = preprocess.split(job.steps)
        self.base_statistics = preprocess.base_statistics(job.means, job.base)
        self.lock, self.threads = Lock(), self._threads()

    @property
    def in_parts(self) -> bool:
        """Whether the features are read as they are drawn."""
        return in_parts(self.job.bank) is not None

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether this engine can do the job."""
        return True

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether "auto" should choose this engine for a job that it can do."""
        return True

    def run(self) -> Iterator[Judged]:
        """Yield metrics chunk by chunk."""
        with self._timed("prepare", self.threads):
            rows = self._rows()
        with self._blas_threads():
            yield from in_order(lambda chunk: self._judged(rows, chunk), self._chunks(), self.threads)

    def scores(self) -> Iterator[Scores]:
        """Yield what the method says of the queries, chunk by chunk."""
        rows = self._rows()
        with self._blas_threads():
            yield from in_order(lambda chunk: self._answered(rows, chunk), self._chunks(), self.threads)

    def _answered(self, rows: Array | None, chunk: Episodes) -> Scores:
        return self._scores(*self._drawn_rows(chunk)) if rows is None else self._scores(rows, chunk)

    def _judged(self, rows: Array | None, chunk: Episodes) -> Judged:
        """Metrics of a chunk; under `open-set`, also how well unknown queries are detected."""
        scores = self._answered(rows, chunk)
        with self._timed("classify"):
            judged = checked(self._judge(scores.probabilities, chunk.query_labels))
            opened = self.job.recipe.protocol == "open-set"
            return replace(judged, rejection=rejection(scores, chunk)) if opened else judged

    def _judge(self, probabilities: Array, labels: NDArray[np.int32]) -> Judged:
        """Compare probabilities with the labels of the queries."""
        return judge(probabilities, self._array(labels))

    def _threads(self) -> int:
        """Chunks computed in parallel, one thread each, since the arrays of an episode are too small to divide."""
        return min(_MOST_THREADS, cores())

    def _blas_threads(self) -> AbstractContextManager[object]:
        """Limit BLAS to one thread: on matrices of an episode's size, more threads only wait for each other."""
        return ONE_BLAS_THREAD

    @contextmanager
    def _timed(self, stage: str, threads: int = 1) -> Iterator[None]:
        """Add the wall time of the block to a stage, weighted by the share of the engine's threads that it uses."""
        start = time.perf_counter()
        yield
        with self.lock:
            self.seconds[stage] += (time.perf_counter() - start) * threads / self.threads

    def _array(self, values: NDArray[Any]) -> Array:
        """Move an array to the engine's library and device."""
        return values

    def _features(self) -> Array:
        """The features of the bank, in the engine's library and on its device."""
        return self.job.bank.features

    def _rows(self) -> Array | None:
        """Apply the row-wise part of the chain to the whole bank, once; None where a copy of it would be too large.

        Of a bank in parts only the rows that episodes draw are ever read.
        """
        if self.in_parts:
            return None
        features = self._features()
        if self.on_host and features.nbytes > LARGE:
            self._check_rows(features)
            return None
        done = preprocess.run(features, self.row_wise, base=self.base_statistics)
        self.zero_rows += done.zero_rows
        self._check_range(done.x)
        return self._laid_out(done.x)

    def _check_rows(self, features: Array) -> None:
        """Send all rows through the chain for its errors and warnings, block by block, and keep none."""
        extremes = []
        for part in blocks(*features.shape):
            done = preprocess.run(features[part], self.row_wise, base=self.base_statistics, first=part.start)
            self.zero_rows += done.zero_rows
            extremes.append((done.x.min(), done.x.max()))
        self._check_range(np.array(extremes))

    def _drawn_rows(self, chunk: Episodes) -> tuple[Array, Episodes]:
        """Prepare the rows of a chunk alone; return them, and the chunk with their numbers among them."""
        with self._timed("prepare"):
            both = np.hstack([chunk.support, chunk.query])  # [R, N]
            drawn, places = np.unique(both, return_inverse=True)
            features = self._array(self.job.bank.features[drawn]) if self.in_parts else self._features()[drawn]
            done = preprocess.run(features, self.row_wise, base=self.base_statistics, first=drawn)
            if self.in_parts:
                self._check_range(done.x)
                with self.lock:
                    self.zero_rows += done.zero_rows
            places, supports = places.reshape(both.shape), chunk.support.shape[1]
            support, query = (part.astype(np.int32) for part in (places[:, :supports], places[:, supports:]))
            return self._laid_out(done.x), replace(chunk, support=support, query=query)

    def _check_range(self, rows: Array) -> None:  # noqa: B027  most engines refuse nothing
        """Refuse rows whose numbers the engine cannot compute with."""

    def _laid_out(self, rows: Array) -> Array:
        """Return rows in the layout that the engine's kernels want."""
        return rows

    def _chunks(self) -> Iterator[Episodes]:
        """Episodes in chunks; if there are few chunks, their number is a multiple of the threads."""
        parts = -(-self.job.total // self._chunk_size())
        size = -(-self.job.total // (-(-parts // self.threads) * self.threads))
        for drawn in self._drawn():
            for begin in range(0, len(drawn), size):
                yield drawn[begin : begin + size]

    @abstractmethod
    def _chunk_size(self) -> int:
        """Episodes in a chunk."""

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

    @abstractmethod
    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        """Classify the queries of a chunk; `rows` is the bank after the row-wise part of the chain."""

    def _hyper(self, chunk: Episodes) -> dict[str, Any]:
        """Hyper-parameters for a chunk; the oracle prior becomes the true class proportions of its episodes."""
        hyper = self.job.hyper
        return {**hyper, "prior": true_shares(chunk)} if prior_is(hyper, "oracle") else hyper
