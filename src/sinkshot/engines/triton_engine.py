"""The engine of fused kernels on a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from sinkshot.calibration import Judged
from sinkshot.engines.base import DRAWN_AT_ONCE
from sinkshot.engines.fused import FusedEngine, by_inner_products
from sinkshot.engines.fused_kernels import FusedKernel, Question
from sinkshot.engines.job import Job, prior_is
from sinkshot.engines.metrics import checked
from sinkshot.engines.torch_engine import TorchArrays
from sinkshot.episodes import Episodes, Recipe, by_class
from sinkshot.task import Array, Scores

_ON_DEVICE_AT_ONCE = 1 << 16  # episodes


class TritonEngine(TorchArrays, FusedEngine):
    """Fused kernels on the GPU, the draw of balanced episodes included."""

    name = "triton"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs only inner products, and chain and task size suit the kernels."""
        if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
            return False
        from sinkshot.kernels import bms_triton

        way, supports = job.recipe.way, job.recipe.way * job.recipe.shot
        return by_inner_products(job) and bms_triton.fits(way, supports, job.rows - supports, job.bank.width)

    def run(self) -> Iterator[Judged]:
        """Yield metrics chunk by chunk; balanced episodes never leave the device."""
        recipe = self.job.episodes
        same_prior = not prior_is(self.job.hyper, "oracle", "estimated")
        balanced = isinstance(recipe, Recipe) and recipe.protocol == "balanced"
        if not (isinstance(recipe, Recipe) and balanced and self.kernel and same_prior) or self.in_parts:
            yield from super().run()
            return
        from sinkshot.kernels import bms_triton, metrics_triton

        with self._timed("prepare"):
            recipe.draw(self.job.bank.labels, 0, 1, self.job.bank.class_names)  # is the recipe possible?
            rows = self._rows()
            order, starts, sizes = (self._array(part) for part in by_class(self.job.bank.labels))
        for first in range(0, recipe.episodes, _ON_DEVICE_AT_ONCE):
            with self._timed("sample"):
                count = min(_ON_DEVICE_AT_ONCE, recipe.episodes - first)
                drawn = bms_triton.draw_balanced(order, starts, sizes, recipe, first, count)
            with self._timed("classify"):
                answers = self._answers(rows, drawn, self.job.hyper)
                judged = checked(metrics_triton.judge(answers.probabilities, drawn.query_labels))
            yield judged

    @staticmethod
    def _function(kernel: FusedKernel) -> Callable[[Question], Scores] | None:
        return kernel.triton

    def _chunk_size(self) -> int:
        return DRAWN_AT_ONCE

    def _judge(self, probabilities: Array, labels: NDArray[np.int32]) -> Judged:
        from sinkshot.kernels import metrics_triton

        return metrics_triton.judge(probabilities, self._array(labels))

    def _gram_matrices(self, rows: Array, chunk: Episodes) -> Array:
        from sinkshot.kernels import bms_triton

        centre, normalise = self._gram_steps()
        both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
        return bms_triton.gram_matrices(rows, both, centre=centre, normalise=normalise)
