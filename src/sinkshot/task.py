"""A batch of few-shot problems, and what a method answers to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkshot.bank import FeatureBank

Array = Any
"""An array of any library that follows the Python array API standard."""


@dataclass(frozen=True)
class Task:
    """R episodes as arrays of one library on one device. Classes may have unequal numbers of supports."""

    support: Array  # [R, l, d]
    labels: Array  # [R, l], 0 .. way-1, every class at least once
    query: Array  # [R, q, d]
    way: int
    base: FeatureBank | None = None  # the base classes, for methods that use their statistics


@dataclass(frozen=True)
class Scores:
    """What a method says of the queries."""

    probabilities: Array  # [R, q, way], rows non-negative and summing to one
    unknown: Array | None = None  # [R, q], higher is more unknown
