"""Bank + episodes + preprocessing + method -> Result: accuracy over many episodes, in chunks of bounded memory."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import formats, methods
from sinkshot import preprocess as preprocessing
from sinkshot.bank import FeatureBank, load
from sinkshot.calibration import CONFIDENCE, POOLED, Confidence
from sinkshot.engines import Engine, Job, pick
from sinkshot.episodes import Episodes, Recipe
from sinkshot.errors import DataWarning, InputError
from sinkshot.methods.priors import proportions
from sinkshot.open_set import OPEN_SET

Progress = Callable[[int, int], None]
"""Called with the number of episodes done and in all."""


@dataclass(frozen=True)
class Result:
    """Accuracy of one method on a set of episodes, with everything that decided it.

    Attributes
    ----------
    method, preprocess, engine : str
        What was run, after which chain, by which engine.
    recipe : Recipe
        How episodes were drawn.
    per_episode : array of shape (R,)
        Accuracy on the queries of known classes.
    accuracy, ci95 : float
        Mean accuracy in [0, 1], and the half-width of its 95 % confidence interval.
    seconds : dict
        Time by stage: sample, prepare, classify, total.
    hyper : dict
        Hyper-parameters, defaults included.
    notes : tuple of str
        What was used that nobody asked for.
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
    """

    method: str
    preprocess: str
    recipe: Recipe
    per_episode: NDArray[np.float64]  # [R] accuracy on the queries of known classes
    seconds: dict[str, float]  # sample, prepare, classify, total
    engine: str
    hyper: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was taken that nobody asked for
    macro_accuracy_per_episode: NDArray[np.float64] | None = None  # [R], as are the next two; see `calibration`
    brier_per_episode: NDArray[np.float64] | None = None
    nll_per_episode: NDArray[np.float64] | None = None
    confidence: Confidence | None = None  # of all queries of known classes
    auroc_per_episode: NDArray[np.float64] | None = None  # [R], under `open-set`, as are the next two
    aupr_per_episode: NDArray[np.float64] | None = None
    fpr95_per_episode: NDArray[np.float64] | None = None

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
        """Half-width of the 95 % interval of the mean."""
        return half_width(self.per_episode)

    @property
    def macro_accuracy(self) -> float | None:
        """Mean over episodes of the accuracy within each class that is present, averaged over these classes."""
        return self.mean("macro_accuracy")

    @property
    def brier(self) -> float | None:
        """Mean squared distance of probabilities and truth, summed over classes: 0 to 2, less is better."""
        return self.mean("brier")

    @property
    def nll(self) -> float | None:
        """Log loss: mean of minus the natural logarithm of the probability of the true class; less is better."""
        return self.mean("nll")

    @property
    def ece(self) -> float | None:
        """Expected calibration error in 15 bins of confidence, over the queries of all episodes; less is better."""
        return self.pooled("ece")

    @property
    def ece_null(self) -> float | None:
        """The `ece` that a perfectly calibrated predictor with the same confidences would show on average."""
        return self.pooled("ece_null")

    @property
    def aurc(self) -> float | None:
        """Area under the risk-coverage curve over the queries of all episodes; less is better."""
        return self.pooled("aurc")

    @property
    def coverage95(self) -> float | None:
        """Largest share of queries, the most confident first, of which 95 % are labelled right."""
        return self.pooled("coverage95")

    @property
    def coverage99(self) -> float | None:
        """Largest share of queries, the most confident first, of which 99 % are labelled right."""
        return self.pooled("coverage99")

    @property
    def auroc(self) -> float | None:
        """Mean over episodes of the area under the ROC curve of unknown against known queries."""
        return self.mean("auroc")

    @property
    def aupr(self) -> float | None:
        """Mean over episodes of the area under the precision-recall curve, unknown queries being the positives."""
        return self.mean("aupr")

    @property
    def fpr95(self) -> float | None:
        """Mean over episodes of the share of known queries rejected where 95 % of the unknown are; less is better."""
        return self.mean("fpr95")

    def values(self, metric: str) -> NDArray[np.float64] | None:
        """Return a metric of each episode.

        Parameters
        ----------
        metric : str
            The name of a metric: "accuracy", "macro_accuracy", "brier", "nll", and "auroc", "aupr", "fpr95" under
            `open-set`.

        Returns
        -------
        array of shape (R,) or None
            None where the metric was not measured, or is one of all queries together.
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
        """Return a metric of all queries together.

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
        answer: dict[str, Any] = {
            "method": self.method,
            "preprocess": self.preprocess,
            "way": recipe.way,
            "shot": recipe.shot,
            "query": recipe.query,
            "episodes": self.episodes,
            "protocol": recipe.protocol,
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
        Names of the two.
    difference : float
        Mean difference in accuracy, a minus b.
    ci95 : float
        Half-width of its 95 % confidence interval.

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
        Results on episodes of the same recipe; the shorter one counts.
    names : tuple of two str, optional
        What to call them; their methods by default.

    Returns
    -------
    Paired
        The difference and the half-width of its 95 % confidence interval.

    See Also
    --------
    evaluate : Returns results.

    Examples
    --------
    >>> import sinkshot
    >>> bank, recipe = sinkshot.load("cifar-fs_wrn-28-10_novel"), sinkshot.Recipe(episodes=50)
    >>> bms, ncm = (sinkshot.evaluate(bank, recipe, method=name) for name in ("bms", "ncm"))
    >>> apart = sinkshot.compare(bms, ncm)
    >>> apart.a, apart.difference > apart.ci95
    ('bms', True)
    """
    if replace(a.recipe, episodes=1) != replace(b.recipe, episodes=1):
        raise InputError(f"results on other episodes cannot be paired: {a.recipe} and {b.recipe}.")
    same = min(a.episodes, b.episodes)
    difference = a.per_episode[:same] - b.per_episode[:same]
    first, second = names or (a.method, b.method)
    return Paired(first, second, float(difference.mean()), half_width(difference))


def evaluate(
    bank: FeatureBank,
    episodes: Episodes | Recipe,
    *,
    method: str,
    preprocess: str | None = None,
    base: FeatureBank | None = None,
    device: str = "auto",
    engine: str = "auto",
    progress: Progress | None = None,
    **hyper: Any,
) -> Result:
    """Measure a method on episodes of a bank.

    Parameters
    ----------
    bank : FeatureBank
        Features and labels of the classes that episodes are drawn from.
    episodes : Episodes or Recipe
        Drawn ones, or a recipe that is drawn part by part: memory stays bounded whatever its size.
    method : str
        A registered name, see `sinkshot.methods.METHODS`.
    preprocess : str, optional
        Chain such as "PEMnE"; the method's own by default.
    base : FeatureBank, optional
        Features of the base classes. Without it, steps Mb use the means the bank holds; a method that needs more takes
        those that are bundled with the bank, if any, and `Result.notes` says so.
    device : str
        "cpu" (NumPy), a torch device such as "cuda", or "auto".
    engine : str
        One of `sinkshot.engines.ENGINES`, or "auto": the fastest that takes the job on that device.
    progress : callable, optional
        Called with the episodes done and in all.
    **hyper
        Hyper-parameters of the method. Under `dirichlet` and `long-tail` its authors' constants for unequal class sizes
        are the defaults, where they gave any. A method with a `prior` takes "oracle" as well: each episode's true
        shares.

    Returns
    -------
    Result
        Accuracy of each episode, mean, confidence interval, and what decided them.

    See Also
    --------
    compare : The paired difference of two results.
    tune : Choose hyper-parameters.
    sinkshot.METHODS : What there is to evaluate.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
    >>> recipe = sinkshot.Recipe(way=5, shot=1, query=15, episodes=50)
    >>> sinkshot.evaluate(bank, recipe, method="bms").accuracy > 0.8
    True
    """
    job, notes = resolve_job(bank, episodes, method, preprocess, base, hyper)
    return _run(job, pick(engine, device, job), notes, progress)


def resolve_job(
    bank: FeatureBank,
    episodes: Episodes | Recipe,
    method: str,
    chain: str | None,
    base: FeatureBank | None,
    hyper: dict[str, Any],
) -> tuple[Job, tuple[str, ...]]:
    """Settle everything but the engine; the notes say what was taken that nobody asked for."""
    if base is not None and base.width != bank.width:
        raise InputError(f"the base features have {base.width} columns and the bank has {bank.width}.")
    _check_episodes(episodes, bank)
    chosen = methods.get(method)
    recipe = episodes if isinstance(episodes, Recipe) else episodes.recipe
    _check_prior(hyper.get("prior"), recipe.way)
    means = bank.base if base is None else {}
    steps = preprocessing.parse(chosen.preprocess if chain is None else chain)
    notes = []
    if base is None and (chosen.features or not _means_known(steps, means)):
        base = _bundled_base(bank.meta.get("weights_sha256", "unknown"))
        if base is not None:
            notes.append(f"{method}: the features of the base classes are those bundled with the bank.")
    if chain is None and base is None and not _means_known(steps, means):
        steps = preprocessing.parse(chosen.without_base)
    chosen.check_base(base)
    chosen.check_shots(_fewest_shots(episodes))
    own = chosen.imbalanced if recipe.unequal else {}
    return Job(bank, episodes, chosen, chosen.bind({**own, **hyper}), steps, base, means), tuple(notes)


def _check_prior(prior: Any, way: int) -> None:
    """Refuse a prior that is no name and no proportions; an array for each episode belongs to a Task."""
    if isinstance(prior, str) and prior in ("oracle", "estimated"):
        return
    shares = proportions(prior, way)
    if shares is not None and shares.ndim > 1:
        raise InputError("a prior for evaluation is one proportion per class, the same for all episodes, or 'oracle'.")


def _means_known(steps: preprocessing.Chain, means: Mapping[str, Any]) -> bool:
    """Whether every step Mb of a chain finds its mean of the base classes among those stored."""
    return all(preprocessing.spell(steps[:i]) in means for i, step in enumerate(steps) if step.name == "Mb")


@cache
def _bundled_base(weights_sha256: str) -> FeatureBank | None:
    """Return the bundled sample of base classes that the same network was trained on, if there is one."""
    for name in formats.bundled():
        if name.endswith("_base") and (bank := load(name)).meta.get("weights_sha256") == weights_sha256:
            return bank
    return None


def _check_episodes(episodes: Episodes | Recipe, bank: FeatureBank) -> None:
    """Refuse nothing to do, and episodes that were drawn for another bank."""
    total = episodes.episodes if isinstance(episodes, Recipe) else len(episodes)
    if total < 1:
        raise InputError(f"at least one episode must be evaluated; {total} were asked for.")
    if total == 1:
        warnings.warn("one episode has no interval: its half-width is given as zero.", DataWarning, stacklevel=4)
    if isinstance(episodes, Episodes):
        shapes = [a.shape for a in (episodes.support, episodes.support_labels, episodes.query, episodes.query_labels)]
        if shapes[0] != shapes[1] or shapes[2] != shapes[3] or shapes[0][0] != shapes[2][0]:
            raise InputError(f"row numbers and labels of episodes must have the same shapes; given: {shapes}.")
        rows = np.hstack([episodes.support, episodes.query])
        if rows.min() < 0 or rows.max() >= len(bank.labels):
            raise InputError(f"the episodes have rows up to {rows.max()}, and the bank has {len(bank.labels)} rows.")
        way, labels = episodes.recipe.way, episodes.support_labels
        if labels.min() < 0 or labels.max() >= way:
            raise InputError(f"labels of supports must be 0 to {way - 1}.")
        for label in range(way):
            if not (labels == label).any(axis=1).all():
                raise InputError(f"class {label} has no support in some episode; every class needs one.")


def _fewest_shots(episodes: Episodes | Recipe) -> int:
    """Supports of the class that has fewest, in any episode."""
    if isinstance(episodes, Recipe):
        return episodes.shot
    counts = (episodes.support_labels[..., None] == np.arange(episodes.recipe.way)).sum(axis=1)  # [R, way]
    return int(counts.min())


def _run(job: Job, engine: Engine, notes: tuple[str, ...], progress: Progress | None) -> Result:
    """Collect chunk by chunk; an interrupt hands out what is finished."""
    start = time.perf_counter()
    parts: list[dict[str, NDArray[np.float64]]] = []  # metrics of each episode by name
    confidence = Confidence()

    def result() -> Result:
        metrics = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Result(
            method=job.method.name,
            preprocess=preprocessing.spell(job.steps),
            recipe=job.recipe,
            per_episode=metrics.pop("accuracy"),
            seconds={**engine.seconds, "total": time.perf_counter() - start},
            engine=engine.name,
            hyper=job.hyper,
            notes=notes,
            confidence=confidence,
            **{f"{name}_per_episode": values for name, values in metrics.items()},
        )

    done = 0
    try:
        for judged in engine.run():
            parts.append(judged.per_episode)
            confidence += judged.confidence
            done += len(judged.accuracy)
            if progress is not None:
                progress(done, job.total)
    except KeyboardInterrupt:
        raise Interrupted(result() if parts else None) from None
    preprocessing.warn_of_zero_rows(engine.zero_rows)
    return result()
