"""Accuracy on items that nobody has looked at, estimated from a random draw, never from items a strategy chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from sinkshot.label.decisions import Decision, standing
from sinkshot.label.items import OUTSIDER

DRAWN = 50  # items of an audit
_COVERAGE = 0.95


@dataclass(frozen=True)
class Audit:
    """The newest draw and its answers so far."""

    number: int  # of the decision that drew it, 0 where there is none
    items: tuple[str, ...] = ()  # names, in random order
    predicted: tuple[str, ...] = ()  # labels at the time of the draw, empty where an item was unknown
    answered: frozenset[str] = frozenset()
    right: int = 0

    @property
    def accuracy(self) -> float | None:
        """Share of the answered items whose prediction was right."""
        return self.right / len(self.answered) if self.answered else None

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the accuracy (Clopper and Pearson)."""
        return exact_interval(self.right, len(self.answered))


def draw(candidates: Sequence[int]) -> list[int]:
    """Draw items at random, all equally likely, without repetition."""
    rng = np.random.default_rng()
    return [int(row) for row in rng.choice(candidates, min(DRAWN, len(candidates)), replace=False)]


def of_decisions(decisions: Sequence[Decision]) -> Audit:
    """Return the newest draw of the decisions, with its answers; only answers given in the audit itself count."""
    valid = standing(decisions)
    drawn = next((one for one in reversed(valid) if one.kind == "draw"), None)
    if drawn is None:
        return Audit(0)
    predicted = dict(zip(drawn.items, drawn.predicted, strict=True))
    right: dict[str, bool] = {}
    for one in valid:
        if one.audit and one.number > drawn.number:
            said = "" if one.label == OUTSIDER else one.label
            right |= {name: one.kind == "label" and said == predicted[name] for name in one.items if name in predicted}
    return Audit(drawn.number, drawn.items, drawn.predicted, frozenset(right), sum(right.values()))


def exact_interval(right: int, count: int) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share.

    >>> [round(bound, 3) for bound in exact_interval(48, 50)]
    [0.863, 0.995]
    """
    tail = (1 - _COVERAGE) / 2
    low = 0.0 if right == 0 else float(betaincinv(right, count - right + 1, tail))
    high = 1.0 if right == count else float(betaincinv(right + 1, count - right, 1 - tail))
    return low, high
