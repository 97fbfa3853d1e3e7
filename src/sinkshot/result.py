"""What an evaluation returns: metrics of each episode, their means and confidence intervals, and paired comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.calibration import CONFIDENCE, POOLED, Confidence
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.open_set import OPEN_SET


@dataclass(frozen=True, repr=False)
class Result:
    """Accuracy of one method on a set of episodes, with all settings.

    Attributes
    ----------
    method, preprocess, engine : str
        Names of the method, the preprocessing chain and the engine.
    recipe : Recipe
        How episodes were drawn.
    per_episode : array of shape (R,)
        Accuracy on the queries of known classes.
    accuracy, ci95 : float
        Mean accuracy in [0, 1], and its 95 % CI half-width.
    seconds : dict
        Time by stage: sample, prepare, classify, total.
    hyper : dict
        Hyper-parameters, defaults included.
    notes : tuple of str
        Choices that were made for the caller, such as bundled base features.
    auroc, aupr, fpr95 : float or None
        Means of the open-set measures, under the protocol `open-set`.

    See Also
    --------
    evaluate : Returns one.
    compare : The paired difference of two.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
    >>> result = sinkshot.evaluate(bank, sinkshot.Recipe(episodes=30), method="ncm")
    >>> result.method, result.preprocess, result.engine, result.per_episode.shape
    ('ncm', 'PEMbE', 'numpy', (30,))
    >>> result
    Result(ncm, 'PEMbE', 5-way 1-shot, balanced, 30 episodes, accuracy 0.7844 ± 0.0366)
    """

    method: str
    preprocess: str
    recipe: Recipe
    per_episode: NDArray[np.float64]  # [R] accuracy on the queries of known classes
    seconds: dict[str, float]  # sample, prepare, classify, total
    engine: str
    hyper: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # choices that were made for the caller
    macro_accuracy_per_episode: NDArray[np.float64] | None = None  # [R], as are the next two; see `calibration`
    brier_per_episode: NDArray[np.float64] | None = None
    nll_per_episode: NDArray[np.float64] | None = None
    confidence: Confidence | None = None  # over all queries of known classes
    auroc_per_episode: NDArray[np.float64] | None = None  # [R], under `open-set`, as are the next two
    aupr_per_episode: NDArray[np.float64] | None = None
    fpr95_per_episode: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        task = f"{self.recipe.way}-way {self.recipe.shot}-shot, {self.recipe.protocol}"
        count = f"{self.episodes} episodes" if self.episodes > 1 else "1 episode"
        interval = f" ± {self.ci95:.4f}" if self.episodes > 1 else ""  # one episode has none
        return f"Result({self.method}, {self.preprocess!r}, {task}, {count}, accuracy {self.accuracy:.4f}{interval})"

    @property
    def episodes(self) -> int:
        """Episodes evaluated."""
        return len(self.per_episode)

    @property
    def accuracy(self) -> float:
        """Mean accuracy, in [0, 1]."""
        return float(self.per_episode.mean())

    @property
    def ci95(self) -> float:
        """95 % CI half-width of the mean."""
        return half_width(self.per_episode)

    @property
    def macro_accuracy(self) -> float | None:
        """Mean over episodes of the per-class accuracies, averaged over the classes present."""
        return self.mean("macro_accuracy")

    @property
    def brier(self) -> float | None:
        """Mean squared distance between probabilities and truth, summed over classes: 0 to 2, lower is better."""
        return self.mean("brier")

    @property
    def nll(self) -> float | None:
        """Log loss: mean of minus the natural logarithm of the probability of the true class; lower is better."""
        return self.mean("nll")

    @property
    def ece(self) -> float | None:
        """Expected calibration error in 15 bins of confidence, over the queries of all episodes; lower is better."""
        return self.pooled("ece")

    @property
    def ece_null(self) -> float | None:
        """The `ece` that a perfectly calibrated predictor with the same confidences would show on average."""
        return self.pooled("ece_null")

    @property
    def aurc(self) -> float | None:
        """Area under the risk-coverage curve over the queries of all episodes; lower is better."""
        return self.pooled("aurc")

    @property
    def coverage95(self) -> float | None:
        """Largest fraction of queries, the most confident first, that is labelled with 95 % accuracy."""
        return self.pooled("coverage95")

    @property
    def coverage99(self) -> float | None:
        """Largest fraction of queries, the most confident first, that is labelled with 99 % accuracy."""
        return self.pooled("coverage99")

    @property
    def auroc(self) -> float | None:
        """Mean over episodes of the area under the ROC curve of unknown against known queries."""
        return self.mean("auroc")

    @property
    def aupr(self) -> float | None:
        """Mean over episodes of the area under the precision-recall curve, with unknown queries as positives."""
        return self.mean("aupr")

    @property
    def fpr95(self) -> float | None:
        """Mean false positive rate at 95 % TPR: known queries rejected with 95 % of the unknown; lower is better."""
        return self.mean("fpr95")

    def values(self, metric: str) -> NDArray[np.float64] | None:
        """Return a metric per episode.

        Parameters
        ----------
        metric : str
            The name of a metric: "accuracy", "macro_accuracy", "brier", "nll", and "auroc", "aupr", "fpr95" under
            `open-set`.

        Returns
        -------
        array of shape (R,) or None
            None if the metric was not measured, or is defined over all queries together.
        """
        return self.per_episode if metric == "accuracy" else getattr(self, f"{metric}_per_episode", None)

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over episodes.

        Parameters
        ----------
        metric : str
            As in `values`.

        Returns
        -------
        float or None
            None where the metric was not measured.
        """
        return None if (values := self.values(metric)) is None else float(values.mean())

    def pooled(self, metric: str) -> float | None:
        """Return a metric defined over all queries together.

        Parameters
        ----------
        metric : str
            "ece", "ece_null", "aurc", "coverage95" or "coverage99".

        Returns
        -------
        float or None
            None where it was not measured.
        """
        return None if self.confidence is None else POOLED[metric](self.confidence)

    def value(self, metric: str) -> float | None:
        """Return any metric by its name.

        Parameters
        ----------
        metric : str
            As in `values` or `pooled`.

        Returns
        -------
        float or None
            None where it was not measured.
        """
        return self.pooled(metric) if metric in POOLED else self.mean(metric)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `sinkshot eval --json` prints.

        Returns
        -------
        dict
            Plain Python values.
        """
        recipe = self.recipe
        drawn = {"dirichlet": {"alpha": recipe.alpha}, "long-tail": {"ratio": recipe.ratio}}
        answer: dict[str, Any] = {
            "method": self.method,
            "preprocess": self.preprocess,
            "way": recipe.way,
            "shot": recipe.shot,
            "query": recipe.query,
            "episodes": self.episodes,
            "protocol": recipe.protocol,
            **drawn.get(recipe.protocol, {}),
            "seed": recipe.seed,
            "accuracy": self.accuracy,
            "ci95": self.ci95,
            "engine": self.engine,
            "seconds": self.seconds,
        }
        return answer | {name: v for name in (*CONFIDENCE, *OPEN_SET) if (v := self.value(name)) is not None}


@dataclass(frozen=True)
class Paired:
    """How far method a is above method b on the same episodes.

    Parameters
    ----------
    a, b : str
        Names of the two results.
    difference : float
        Mean difference in accuracy, a minus b.
    ci95 : float
        Its 95 % CI half-width.

    See Also
    --------
    compare : Returns one.

    Examples
    --------
    >>> from sinkshot import Paired
    >>> better = Paired("bms", "ncm", difference=0.10, ci95=0.01)
    >>> better.difference > better.ci95
    True
    """

    a: str
    b: str
    difference: float
    ci95: float


class Interrupted(KeyboardInterrupt):
    """An evaluation that was stopped; `result` holds the episodes that were finished, if any."""

    def __init__(self, result: Result | None) -> None:
        super().__init__()
        self.result = result


def half_width(values: NDArray[np.float64]) -> float:
    """1.96 s / sqrt(R); zero for a single value."""
    return 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def compare(a: Result, b: Result, names: tuple[str, str] | None = None) -> Paired:
    """Return the mean difference in accuracy of two results on the same episodes.

    Parameters
    ----------
    a, b : Result
        Results on episodes of the same recipe. If one has fewer episodes, only these are compared.
    names : tuple of two str, optional
        Names of the two; their methods by default.

    Returns
    -------
    Paired
        The difference and its 95 % CI half-width.

    See Also
    --------
    evaluate : Returns results.

    Examples
    --------
    >>> import sinkshot
    >>> bank, recipe = sinkshot.load("cifar-fs_wrn-28-10_novel"), sinkshot.Recipe(episodes=50)
    >>> bms, ncm = (sinkshot.evaluate(bank, recipe, method=name) for name in ("bms", "ncm"))
    >>> paired = sinkshot.compare(bms, ncm)
    >>> paired.a, paired.difference > paired.ci95
    ('bms', True)
    """
    if replace(a.recipe, episodes=1) != replace(b.recipe, episodes=1):
        raise InputError(f"results on different episodes cannot be paired: {a.recipe} and {b.recipe}.")
    same = min(a.episodes, b.episodes)
    difference = a.per_episode[:same] - b.per_episode[:same]
    first, second = names or (a.method, b.method)
    return Paired(first, second, float(difference.mean()), half_width(difference))
