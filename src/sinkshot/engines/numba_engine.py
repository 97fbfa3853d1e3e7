"""The engine of compiled kernels on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sinkshot.calibration import Judged
from sinkshot.engines.fused import FusedEngine, by_inner_products
from sinkshot.engines.fused_kernels import FusedKernel, Question
from sinkshot.engines.job import Job
from sinkshot.engines.metrics import OUT_OF_RANGE
from sinkshot.episodes import Episodes
from sinkshot.errors import InputError
from sinkshot.kernels import jit_disabled
from sinkshot.task import Array, Scores

_MOST_ROWS = 600  # rows of an episode: its Gram matrix should stay in a core's cache
_GRAM_BYTES = 32 << 20  # bytes of Gram matrices per chunk if NumPy processes them further
_WORK = 2_000_000_000  # rows^2 * way * products, summed over one chunk: about a second on two cores
_PAYS_FROM = 500  # episodes: below, NumPy finishes before the compiler would


class NumbaEngine(FusedEngine):
    """Compiled code on the CPU: some methods in one fused pass, others on Gram matrices."""

    name = "numba"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs only inner products, and chain and task size allow a Gram matrix."""
        return not jit_disabled() and by_inner_products(job) and job.rows <= _MOST_ROWS

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether the job is long enough to wait for the compiler, in case its code is not cached."""
        return job.total >= _PAYS_FROM

    def _threads(self) -> int:
        return 1 if self.kernel else super()._threads()  # compiled code has its own

    def _chunk_size(self) -> int:
        """About a second of work; if NumPy does the rest, as much as fits into its cache."""
        job = self.job
        if self.kernel is None:
            return max(1, min(128, _GRAM_BYTES // (4 * job.rows**2)))
        return max(16, min(1024, _WORK // (job.rows**2 * job.recipe.way * self.kernel.products(job))))

    @staticmethod
    def _function(kernel: FusedKernel) -> Callable[[Question], Scores]:
        return kernel.numba

    def _check_range(self, rows: Array) -> None:
        largest = max(float(rows.max()), -float(rows.min()))
        if not 1e-12 < largest < 1e12:  # their products would leave float32
            raise InputError(OUT_OF_RANGE)

    def _laid_out(self, rows: Array) -> Array:
        from sinkshot.kernels.gram_numba import padded

        return padded(rows)

    def _judge(self, probabilities: Array, labels: NDArray[np.int32]) -> Judged:
        from sinkshot.kernels import metrics_numba

        return metrics_numba.judge(probabilities, labels)

    def _gram_matrices(self, rows: Array, chunk: Episodes) -> Array:
        from sinkshot.kernels import gram_numba

        centre, normalise = self._gram_steps()
        both = np.hstack([chunk.support, chunk.query])  # [R, N]
        return gram_numba.gram_matrices(rows, both, centre=centre, normalise=normalise)
