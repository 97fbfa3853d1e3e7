"""SinkShot: few-shot classification on frozen features. Label thousands from a handful."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sinkshot.bank import FeatureBank, load
from sinkshot.episodes import Episodes, Recipe, draw
from sinkshot.errors import DataWarning, InputError
from sinkshot.evaluate import Paired, Result, compare, evaluate
from sinkshot.methods import METHODS, register
from sinkshot.task import Scores, Task

__version__ = "0.1.0"

if TYPE_CHECKING:  # imported on first use, see __getattr__
    from sinkshot.estimators import PEME, BMSClassifier, FewShotClassifier, NearestClassMean, SoftKMeansClassifier
    from sinkshot.label.run import Labelled, label
    from sinkshot.tuning import tune

_ESTIMATORS = ("FewShotClassifier", "PEME", "BMSClassifier", "NearestClassMean", "SoftKMeansClassifier")
_LATER = dict.fromkeys(_ESTIMATORS, "sinkshot.estimators") | {
    "Labelled": "sinkshot.label.run",
    "label": "sinkshot.label.run",
    "tune": "sinkshot.tuning",
}

__all__ = [  # written out, so that type checkers can read it
    "METHODS",
    "PEME",
    "BMSClassifier",
    "DataWarning",
    "Episodes",
    "FeatureBank",
    "FewShotClassifier",
    "InputError",
    "Labelled",
    "NearestClassMean",
    "Paired",
    "Recipe",
    "Result",
    "Scores",
    "SoftKMeansClassifier",
    "Task",
    "compare",
    "draw",
    "evaluate",
    "label",
    "load",
    "register",
    "tune",
]


if not TYPE_CHECKING:  # otherwise type checkers would treat every unknown name as Any

    def __getattr__(name: str) -> Any:
        """Import the estimators (and with them scikit-learn) and the search on first use."""
        if name in _LATER:
            return getattr(import_module(_LATER[name]), name)
        raise AttributeError(f"module 'sinkshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
