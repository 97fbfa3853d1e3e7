"""The base class of engines with fused kernels: Gram matrices by a kernel, and some methods in a single pass.

A method that needs only inner products runs on Gram matrices (`GramTask`); one with its own kernel
(`sinkshot.engines.fused_kernels`) runs in it from row numbers to probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

from sinkshot import preprocess
from sinkshot.engines.base import Engine
from sinkshot.engines.fused_kernels import KERNELS, FusedKernel, Question
from sinkshot.engines.job import Job, prior_is
from sinkshot.episodes import Episodes
from sinkshot.methods.priors import estimate
from sinkshot.task import Array, GramTask, Scores


def by_inner_products(job: Job) -> bool:
    """Whether a job can be done on Gram matrices alone, with the digits of float32."""
    kernel = KERNELS.get(job.method.fused)
    if kernel is not None and not kernel.takes(job):
        return False
    return job.method.gram and preprocess.centring(preprocess.split(job.steps)[1]) is not None


class FusedEngine(Engine):
    """Goes from row numbers to probabilities in compiled kernels."""

    @cached_property
    def centring(self) -> preprocess.Centring | None:
        """The rest of the chain, as an operation on Gram matrices."""
        return preprocess.centring(self.task_wise)

    @cached_property
    def kernel(self) -> FusedKernel | None:
        """The kernel that computes the whole method, if there is one and it can do the chain."""
        kernel = KERNELS.get(self.job.method.fused)
        return kernel if kernel is not None and kernel.can(self.centring) and self._function(kernel) else None

    @staticmethod
    @abstractmethod
    def _function(kernel: FusedKernel) -> Callable[[Question], Scores] | None:
        """The form of a kernel for this engine's device, if there is one."""

    def _regrouped(self) -> bool:
        """Whether centring needs a step after the kernel: separate means, or a mean that depends on labels."""
        return self.centring is not None and (self.centring.apart or self.centring.classes)

    def _gram_steps(self) -> tuple[bool, bool]:
        """Whether the kernel centres and normalises Gram matrices.

        If another step centres after the kernel, the mean of the task is subtracted first to avoid cancellation.
        """
        if self.centring is None:
            return False, False
        return self.centring.centre or self._regrouped(), self.centring.normalise and not self._regrouped()

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        hyper = self._hyper(chunk)
        estimated = prior_is(hyper, "estimated")
        if self.kernel is None or estimated:
            with self._timed("prepare"):
                task = self._gram_task(rows, chunk)
        with self._timed("classify"):
            if self.kernel is None:
                return self.job.method.function(task, **hyper)
            return self._answers(rows, chunk, {**hyper, "prior": estimate(task)} if estimated else hyper)

    def _answers(self, rows: Array, episodes: Any, hyper: dict[str, Any]) -> Scores:
        """Answer by the method's own kernel; `episodes` has row numbers and labels."""
        function = None if self.kernel is None else self._function(self.kernel)
        assert function is not None
        assert self.centring is not None
        arrays = (episodes.support, episodes.support_labels, episodes.query)
        if isinstance(episodes, Episodes):
            arrays = tuple(self._array(array) for array in arrays)
        return function(Question(rows, *arrays, self.job.recipe.way, self.centring, hyper))

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
