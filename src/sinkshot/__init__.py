"""SinkShot: few-shot classification on frozen features. Label thousands from a handful."""

from typing import Any

from sinkshot.bank import FeatureBank, load
from sinkshot.episodes import Episodes, Recipe, draw
from sinkshot.errors import DataWarning, InputError
from sinkshot.evaluate import Paired, Result, compare, evaluate
from sinkshot.methods import METHODS, register
from sinkshot.task import Scores, Task

__version__ = "0.1.0"

_ESTIMATORS = ("PEME", "BMSClassifier", "NearestClassMean", "SoftKMeansClassifier")

__all__ = [
    "FeatureBank",
    "load",
    "Episodes",
    "Recipe",
    "draw",
    "Task",
    "Scores",
    "METHODS",
    "register",
    "Result",
    "Paired",
    "evaluate",
    "compare",
    "InputError",
    "DataWarning",
    *_ESTIMATORS,
]


def __getattr__(name: str) -> Any:
    """Import the estimators, and scikit-learn with them, when one is first asked for."""
    if name in _ESTIMATORS:
        from sinkshot import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'sinkshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ESTIMATORS])
