"""What the engines of fused kernels share: Gram matrices by a kernel, and BMS in a single pass.

A method that needs inner products alone runs on Gram matrices (`GramTask`); BMS runs in one kernel from row numbers to
probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

from sinkshot import preprocess
from sinkshot.engines.base import Engine
from sinkshot.engines.job import prior_is
from sinkshot.episodes import Episodes
from sinkshot.methods.priors import estimate
from sinkshot.task import Array, GramTask, Scores


class FusedEngine(Engine):
    """Goes from row numbers to probabilities in compiled kernels."""

    @cached_property
    def centring(self) -> preprocess.Centring | None:
        """What the rest of the chain does to Gram matrices."""
        return preprocess.centring(self.task_wise)

    def _fused(self) -> bool:
        """Whether one kernel does all of it: BMS, where the task has one mean or none."""
        return self.job.method.fused and self.centring is not None and not self._regrouped()

    def _regrouped(self) -> bool:
        """Whether rows of a task have centres of their own, or one that leans on labels: a step after the kernel."""
        return self.centring is not None and (self.centring.apart or self.centring.classes)

    def _gram_steps(self) -> tuple[bool, bool]:
        """Whether the kernel centres and normalises Gram matrices.

        Where another step centres after the kernel, the mean of the task goes first: it keeps digits.
        """
        if self.centring is None:
            return False, False
        return self.centring.centre or self._regrouped(), self.centring.normalise and not self._regrouped()

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        hyper, fused = self._hyper(chunk), self._fused()
        estimated = prior_is(hyper, "estimated")
        if not fused or estimated:
            with self._timed("prepare"):
                task = self._gram_task(rows, chunk)
        with self._timed("classify"):
            if not fused:
                return self.job.method.function(task, **hyper)
            shares = estimate(task) if estimated else hyper["prior"]
            return Scores(self._bms(rows, chunk, {**hyper, "prior": shares}))

    def _gram_task(self, rows: Array, chunk: Episodes) -> GramTask:
        """Compute the Gram matrices of a chunk."""
        matrices, labels = self._gram_matrices(rows, chunk), self._array(chunk.support_labels)
        if self.centring is not None and self.centring.apart:
            matrices = preprocess.centred_apart(matrices, labels.shape[1], self.centring.normalise)
        if self.centring is not None and self.centring.classes:
            matrices = preprocess.centred_by_classes(matrices, labels, self.centring.normalise)
        return GramTask(matrices, labels, self.job.recipe.way)

    @abstractmethod
    def _gram_matrices(self, rows: Array, chunk: Episodes) -> Array:
        """Gram matrices [R, N, N] of the episodes of a chunk, supports first."""

    @abstractmethod
    def _bms(self, rows: Array, episodes: Any, hyper: dict[str, Any]) -> Array:
        """Probabilities [R, q, way] by BMS; `episodes` has row numbers and labels."""
