"""The base class of engines with readable code: gather the features of a chunk and run the method on them."""

from __future__ import annotations

import numpy as np

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.engines.base import Engine
from sinkshot.episodes import Episodes
from sinkshot.task import Array, Scores, Task


class ReadableEngine(Engine):
    """Runs the method's function on gathered features; can do every job."""

    chunk_bytes: int  # features of a chunk
    base: FeatureBank | None = None  # after the row-wise part of the chain, if the method needs it

    def _rows(self) -> Array | None:
        if self.job.method.features and self.job.base is not None:
            self.base = preprocess.base_after(self.job.base, self.row_wise, self.base_statistics)
        return super()._rows()

    def _chunk_size(self) -> int:
        return max(1, self.chunk_bytes // (4 * self.job.rows * self.job.bank.width))

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        """Gather the rows of a chunk, apply the rest of the chain and run the method."""
        with self._timed("prepare"):
            both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
            supports, labels = chunk.support.shape[1], self._array(chunk.support_labels)
            done = preprocess.run(
                rows[both], self.task_wise, supports=supports, labels=labels, base=self.base_statistics
            )
            with self.lock:
                self.zero_rows += done.zero_rows
            task = Task(done.x[:, :supports], labels, done.x[:, supports:], self.job.recipe.way, self.base)
        with self._timed("classify"):
            return self.job.method.function(task, **self._hyper(chunk))
