"""The engine of fused kernels on a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from sinkshot.engines.job import Job, by_inner_products, prior_is
from sinkshot.engines.numpy_engine import DRAWN_AT_ONCE, Judged
from sinkshot.engines.torch_engine import TorchEngine
from sinkshot.episodes import Episodes, Recipe, by_class
from sinkshot.methods import bms
from sinkshot.methods.priors import estimate
from sinkshot.task import Array, Scores

_ON_DEVICE_AT_ONCE = 1 << 16  # episodes


class TritonEngine(TorchEngine):
    """Fused kernels on the GPU, the draw of balanced episodes included."""

    name = "triton"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs inner products alone, and the chain and the size allow to make them."""
        if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
            return False
        from sinkshot.kernels import bms_triton

        way, supports = job.recipe.way, job.recipe.way * job.recipe.shot
        return by_inner_products(job) and bms_triton.fits(way, supports, job.rows - supports, job.bank.width)

    def run(self) -> Iterator[Judged]:
        """Yield accuracies [r] chunk by chunk; balanced episodes never leave the device."""
        recipe = self.job.episodes
        same_prior = not prior_is(self.job.hyper, "oracle", "estimated")
        if not (isinstance(recipe, Recipe) and recipe.protocol == "balanced" and self._fused() and same_prior):
            yield from super().run()
            return
        from sinkshot.kernels import bms_triton

        with self._timed("prepare"):
            recipe.draw(self.job.bank.labels, 0, 1, self.job.bank.class_names)  # is the recipe possible?
            rows = self._rows()
            order, starts, sizes = (self._array(part) for part in by_class(self.job.bank.labels))
        for first in range(0, recipe.episodes, _ON_DEVICE_AT_ONCE):
            with self._timed("sample"):
                count = min(_ON_DEVICE_AT_ONCE, recipe.episodes - first)
                drawn = bms_triton.draw_balanced(order, starts, sizes, recipe, first, count)
            with self._timed("classify"):
                right = bms_triton.accuracy(self._bms(rows, drawn, self.job.hyper), drawn.query_labels)
                result = np.asarray(right.cpu())
            yield result, {}

    def _chunk_size(self) -> int:
        return DRAWN_AT_ONCE

    def _bms(self, rows: Array, drawn: Any, hyper: dict[str, Any]) -> Array:
        from sinkshot.kernels import bms_triton

        way, (centre, normalise) = self.job.recipe.way, self._gram_steps()
        settings = bms.decide(way, drawn.support.shape[1], **hyper)
        arrays = (rows, drawn.support, drawn.support_labels, drawn.query)
        return bms_triton.bms_episodes(*arrays, way=way, centre=centre, normalise=normalise, settings=settings)

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        from sinkshot.kernels import bms_triton

        names = ("support", "support_labels", "query")
        here = SimpleNamespace(**{name: self._array(getattr(chunk, name)) for name in names})
        hyper = self._hyper(chunk)
        if not self._fused() or prior_is(hyper, "estimated"):
            with self._timed("prepare"):
                centre, normalise = self._gram_steps()
                both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
                matrices = bms_triton.gram_matrices(rows, both, centre=centre, normalise=normalise)
                task = self._gram_task(matrices, here.support_labels)
        with self._timed("classify"):
            if not self._fused():
                return self.job.method.function(task, **hyper)
            shares = estimate(task) if prior_is(hyper, "estimated") else hyper["prior"]
            return Scores(self._bms(rows, here, {**hyper, "prior": shares}))
