"""Bank + episodes + preprocessing + method -> Result: accuracy over many episodes, in chunks of bounded memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import formats, methods
from sinkshot import preprocess as preprocessing
from sinkshot.bank import FeatureBank, load
from sinkshot.calibration import Confidence
from sinkshot.engines import Engine, Job, pick
from sinkshot.episodes import Episodes, Recipe
from sinkshot.errors import DataWarning, InputError
from sinkshot.methods.priors import proportions
from sinkshot.result import Interrupted, Paired, Result, compare, half_width

__all__ = ["Interrupted", "Paired", "Progress", "Result", "compare", "evaluate", "half_width", "resolve_job"]

Progress = Callable[[int, int], None]
"""Called with the number of episodes done and in all."""


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
