"""What to label next: one file per strategy, each a function from a `Pool` and a count to row numbers.

Read `registry` first (what a strategy sees and how it is registered), then any strategy.
"""

from sinkshot.selection import entropy, expected_gain, herding, margin, probcover, random, typiclust
from sinkshot.selection.registry import STRATEGIES, Pool, get, register

__all__ = ["DEFAULT", "STRATEGIES", "Pool", "first_rows", "get", "register"]

DEFAULT = "expected-gain"  # the largest area under the curve on validation classes: docs/next-labels-choice.md
_ = (entropy, expected_gain, herding, margin, probcover, random, typiclust)  # imported to register


def first_rows(features: object, count: int) -> list[int]:
    """Return the rows to label first if there are no labels yet: typical ones, far from each other."""
    return get(DEFAULT).choose(Pool.of_features(features), count)
