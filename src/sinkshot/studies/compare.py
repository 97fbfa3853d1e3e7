"""Numbers with confidence intervals, and their differences: paired if two numbers share their episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sinkshot.evaluate import half_width

Verdict = Literal["holds", "does not hold", "undecided"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
UNDECIDED: Verdict = "undecided"
Z95 = 1.96  # half-width of a 95 % interval over the standard error
LEVEL = 0.05  # of significance


@dataclass(frozen=True)
class Number:
    """A value with its 95 % CI half-width, in percent."""

    mean: float
    ci95: float | None  # None where it is not known
    values: NDArray[np.float64] | None = None  # of single episodes, where known
    drawn: object = None  # identifies the episodes: if equal, numbers are paired
    sign: int = 1  # -1 where less is better

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return -math.inf if self.ci95 is None else self.mean - self.ci95

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return math.inf if self.ci95 is None else self.mean + self.ci95


def combined(terms: Sequence[tuple[float, Number]]) -> Number:
    """Return the weighted sum of numbers, with its interval."""
    mean = sum(weight * number.mean for weight, number in terms)
    values = [weight * number.values for weight, number in terms if number.values is not None]
    same = len({number.drawn for _, number in terms}) == 1 and len({len(v) for v in values}) == 1
    if same and len(values) == len(terms):
        total = np.sum(values, axis=0)  # [R]
        return Number(mean, half_width(total) if len(total) > 1 else None)
    squares = [(weight * number.ci95) ** 2 for weight, number in terms if number.ci95 is not None]
    return Number(mean, math.sqrt(sum(squares)) if len(squares) == len(terms) else None)


def above(a: Number, b: Number) -> tuple[Verdict, Number]:
    """Return whether a is better than b, and the difference a - b."""
    apart = combined([(1.0, a), (-1.0, b)])
    better, worse = apart.low > 0, apart.high < 0
    if a.sign < 0:
        better, worse = worse, better
    return (HOLDS if better else FAILS if worse else UNDECIDED), apart


def p_value(apart: Number) -> float | None:
    """Two-sided p-value of a difference being zero, by its interval; None where it has none."""
    if apart.ci95 is None:
        return None
    if apart.ci95 == 0:
        return 1.0 if apart.mean == 0 else 0.0
    return math.erfc(abs(apart.mean) / (apart.ci95 / Z95) / math.sqrt(2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979): a family is wrong in at most as many cases as one test would be.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def difference(apart: Number) -> str:
    """Format a difference."""
    return f"difference {apart.mean:+.2f}" + ("" if apart.ci95 is None else f" ± {apart.ci95:.2f}")
