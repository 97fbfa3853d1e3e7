"""The engine of compiled code on the CPU."""

from __future__ import annotations

import numpy as np

from sinkshot.engines.job import Job, by_inner_products, epochs_of, prior_is
from sinkshot.engines.metrics import OUT_OF_RANGE
from sinkshot.engines.numpy_engine import Engine
from sinkshot.episodes import Episodes
from sinkshot.errors import InputError
from sinkshot.methods import bms
from sinkshot.methods.priors import estimate
from sinkshot.task import Array, Scores

_MOST_ROWS = 600  # of an episode: its Gram matrix should stay in a core's cache
_GRAM_BYTES = 32 << 20  # of Gram matrices at once, where NumPy goes on with them
_WORK = 2_000_000_000  # rows^2 * way * (epochs + 1) of the episodes of one chunk: about a second of two cores
_PAYS_FROM = 500  # episodes: below, NumPy is done before a compiler would be


class NumbaEngine(Engine):
    """Compiled code on the CPU: BMS in one fused pass, other methods of inner products on Gram matrices made by it."""

    name = "numba"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs inner products alone, and the chain and the size allow to make them."""
        return by_inner_products(job) and job.rows <= _MOST_ROWS

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether the job is long enough to wait for a compiler, should nothing be found on disk."""
        return job.total >= _PAYS_FROM

    def _threads(self) -> int:
        return 1 if self._fused() else super()._threads()  # compiled code has its own

    def _chunk_size(self) -> int:
        """As much as is done in about a second, or as NumPy handles well where it does the rest."""
        job = self.job
        if not self._fused():
            return max(1, min(128, _GRAM_BYTES // (4 * job.rows**2)))
        return max(16, min(1024, _WORK // (job.rows**2 * job.recipe.way * (epochs_of(job) + 1))))

    def _rows(self) -> Array:
        from sinkshot.kernels.gram_numba import padded

        rows = padded(super()._rows())
        largest = max(float(rows.max()), -float(rows.min()))
        if not 1e-12 < largest < 1e12:  # their products would leave float32
            raise InputError(OUT_OF_RANGE)
        return rows

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        from sinkshot.kernels import bms_numba, gram_numba

        way, hyper = self.job.recipe.way, self._hyper(chunk)
        centre, normalise = self._gram_steps()
        if not self._fused() or prior_is(hyper, "estimated"):
            with self._timed("prepare"):
                both = np.hstack([chunk.support, chunk.query])  # [R, N]
                matrices = gram_numba.gram_matrices(rows, both, centre=centre, normalise=normalise)
                task = self._gram_task(matrices, chunk.support_labels)
        with self._timed("classify"):
            if not self._fused():
                return self.job.method.function(task, **hyper)
            shares = estimate(task) if prior_is(hyper, "estimated") else hyper["prior"]
            settings = bms.decide(way, chunk.support.shape[1], **{**hyper, "prior": shares})
            arrays = (rows, chunk.support, chunk.support_labels, chunk.query)
            return Scores(
                bms_numba.bms_episodes(*arrays, way=way, centre=centre, normalise=normalise, settings=settings)
            )
