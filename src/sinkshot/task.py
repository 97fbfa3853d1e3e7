"""A batch of few-shot problems, and what a method answers to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkshot.arrays import Array

if TYPE_CHECKING:
    from sinkshot.bank import FeatureBank

__all__ = ["Array", "GramTask", "Scores", "Task"]


@dataclass(frozen=True)
class Task:
    """R episodes as arrays of one library on one device. Classes may have unequal numbers of supports."""

    support: Array  # [R, l, d]
    labels: Array  # [R, l], 0 .. way-1, every class at least once
    query: Array  # [R, q, d]
    way: int
    base: FeatureBank | None = None  # the base classes, behind the steps of the chain that act on rows alone

    @property
    def supports(self) -> int:
        """Supports in an episode, l."""
        return int(self.support.shape[-2])

    @property
    def queries(self) -> int:
        """Queries in an episode, q."""
        return int(self.query.shape[-2])


@dataclass(frozen=True)
class GramTask:
    """The same, known through inner products alone: all that a method needs which never leaves the span of its rows."""

    gram: Array  # [R, N, N], supports first, N = l + q
    labels: Array  # [R, l]
    way: int

    @property
    def supports(self) -> int:
        """Supports in an episode, l."""
        return int(self.labels.shape[-1])

    @property
    def queries(self) -> int:
        """Queries in an episode, q."""
        return int(self.gram.shape[-1]) - self.supports


@dataclass(frozen=True)
class Scores:
    """What a method says of the queries."""

    probabilities: Array  # [R, q, way], rows non-negative and summing to one
    unknown: Array | None = None  # [R, q], higher is more unknown
