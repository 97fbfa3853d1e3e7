"""What to label next: one file per strategy, each a function from a `Pool` and a count to row numbers.

Read `registry` first (what a strategy sees and how it is registered), then any strategy.
"""

from sinkshot.selection import entropy, herding, margin, random, typiclust
from sinkshot.selection.registry import STRATEGIES, Pool, get, register

__all__ = ["STRATEGIES", "Pool", "first_rows", "get", "register"]

DEFAULT = "uherding"
_ = (entropy, herding, margin, random, typiclust)  # imported to register


def first_rows(features: object, count: int) -> list[int]:
    """Return the rows to label first if there are no labels yet: typical ones, far from each other."""
    return get("max-herding").choose(Pool.of_features(features), count)
