"""Progress of a run, and a prediction of the remaining time from what was measured so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sinkshot.studies.chunks import Chunk, ChunkResult
from sinkshot.studies.resolve import ResolvedCell


@dataclass(frozen=True)
class RunProgress:
    """Cells done and in total, episodes left, seconds left if known, and the current cell."""

    done: int
    cells: int
    episodes_left: int
    seconds_left: float | None
    current: str


class Meter:
    """Counts chunks and predicts the remaining time.

    An episode costs as much as in the last chunk of its cell; before there is one, as in the last chunk of its method,
    scaled by effort; before that, as the average. Compute time is converted to wall time by their ratio so far, which
    includes parallel processes, their start, and cores shared with others.
    """

    def __init__(self, cells: int, chunks: Iterable[Chunk], tell: Callable[[RunProgress], None] | None) -> None:
        self.cells, self.tell = cells, tell
        self.left: dict[tuple[object, ...], int] = defaultdict(int)  # episodes
        self.resolved: dict[tuple[object, ...], ResolvedCell] = {}
        for chunk in chunks:
            self.left[chunk.resolved.key] += chunk.count
            self.resolved[chunk.resolved.key] = chunk.resolved
        self.of_cell: dict[tuple[object, ...], float] = {}  # seconds an episode
        self.of_method: dict[str, float] = {}  # seconds an episode and unit of effort
        self.computed, self.seconds, self.start = 0, 0.0, time.perf_counter()
        self.report(next(iter(self.resolved.values()), None))

    @property
    def done(self) -> int:
        """Cells that are done."""
        return self.cells - sum(episodes > 0 for episodes in self.left.values())

    def add(self, chunk: Chunk, part: ChunkResult | None) -> None:
        """Count a finished chunk; None if another run computed it."""
        resolved, count = chunk.resolved, chunk.count
        self.left[resolved.key] -= count
        if part is not None:
            rate = part.seconds["total"] / count
            self.of_cell[resolved.key], self.of_method[resolved.cell.method] = rate, rate / resolved.effort
            self.computed += count
            self.seconds += part.seconds["total"]
        self.report(resolved)

    def drop(self, resolved: ResolvedCell) -> None:
        """Drop the rest of a cell that cannot be measured."""
        self.left[resolved.key] = 0
        self.report(resolved)

    def report(self, current: ResolvedCell | None) -> None:
        """Call the progress callback."""
        if self.tell is not None:
            left = sum(self.left.values())
            name = "" if current is None else f"{current.cell.method}, {current.cell.recipe.shot}-shot"
            self.tell(RunProgress(self.done, self.cells, left, self._seconds_left(), name))

    def _seconds_left(self) -> float | None:
        if not self.computed:
            return None
        computing = sum(episodes * self._rate(key) for key, episodes in self.left.items() if episodes)
        return computing * (time.perf_counter() - self.start) / self.seconds

    def _rate(self, key: tuple[object, ...]) -> float:
        """Seconds per episode of a cell."""
        resolved = self.resolved[key]
        if key in self.of_cell:
            return self.of_cell[key]
        of_method = self.of_method.get(resolved.cell.method)
        return self.seconds / self.computed if of_method is None else resolved.effort * of_method
