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
"""Called with the number of episodes done and the total."""


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
        Episodes that are drawn already, or a recipe, which is drawn in parts so that memory stays bounded.
    method : str
        A registered name, see `sinkshot.methods.METHODS`.
    preprocess : str, optional
        Chain such as "PEMnE"; the method's own by default.
    base : FeatureBank, optional
        Features of the base classes. Without it, step Mb uses the means that the bank holds, and a method that needs
        base features uses those bundled with the bank, if any; `Result.notes` says so.
    device : str
        "cpu" (NumPy), a torch device such as "cuda", or "auto".
    engine : str
        One of `sinkshot.engines.ENGINES`, or "auto": the fastest that can do the job on that device.
    progress : callable, optional
        Called with the number of episodes done and the total.
    **hyper
        Hyper-parameters of the method. Under `dirichlet` and `long-tail` the defaults are its authors' constants for
        unequal class sizes, if there are any. A method with a `prior` also accepts "oracle": the true class proportions
        of each episode.

    Returns
    -------
    Result
        Accuracy of each episode, their mean and confidence interval, and all settings.

    See Also
    --------
    compare : The paired difference of two results.
    tune : Choose hyper-parameters.
    sinkshot.METHODS : The methods to choose from.

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
    """Resolve everything but the engine; the notes list choices that the caller did not make."""
    if base is not None and base.width != bank.width:
        raise InputError(f"the base features have {base.width} columns and the bank has {bank.width}.")
    _check_episodes(episodes, bank)
    chosen = methods.get(method)
    recipe = episodes if isinstance(episodes, Recipe) else episodes.recipe
    _check_prior(hyper.get("prior"), recipe.way)
    network = bank.meta.get("weights_sha256", "unknown")
    at_hand = _bundled_base(network) if base is None else base
    steps = preprocessing.parse(chosen.preprocess if chain is None else chain)
    if chain is None and chosen.with_base and at_hand is not None and preprocessing.has_classes(at_hand):
        steps = preprocessing.parse(chosen.with_base)
    whitens = preprocessing.needs_base_features(steps)
    same_network = base is not None and base.meta.get("weights_sha256") == network
    means = bank.base if base is None or (whitens and same_network) else {}
    notes = []
    if base is None and at_hand is not None and (chosen.features or whitens or not _means_known(steps, means)):
        base = at_hand
        notes.append(f"{method}: the features of the base classes are those bundled with the bank.")
    if chain is None and base is None and not _means_known(steps, means):
        steps = preprocessing.parse(chosen.without_base)
    chosen.check_base(base)
    chosen.check_shots(_fewest_shots(episodes))
    own = chosen.imbalanced if recipe.unequal else {}
    return Job(bank, episodes, chosen, chosen.bind({**own, **hyper}), steps, base, means), tuple(notes)


def _check_prior(prior: Any, way: int) -> None:
    """Refuse a prior that is neither a name nor one list of proportions; per-episode priors belong to a Task."""
    if isinstance(prior, str) and prior in ("oracle", "estimated"):
        return
    shares = proportions(prior, way)
    if shares is not None and shares.ndim > 1:
        raise InputError("a prior for evaluation is one proportion per class, the same for all episodes, or 'oracle'.")


def _means_known(steps: preprocessing.Chain, means: Mapping[str, Any]) -> bool:
    """Whether the base means for every step Mb of a chain are stored."""
    return all(preprocessing.spell(steps[:i]) in means for i, step in enumerate(steps) if step.name == "Mb")


@cache
def _bundled_base(weights_sha256: str) -> FeatureBank | None:
    """Return the bundled sample of base classes that the same network was trained on, if there is one."""
    for name in formats.bundled():
        if name.endswith("_base") and (bank := load(name)).meta.get("weights_sha256") == weights_sha256:
            return bank
    return None


def _check_episodes(episodes: Episodes | Recipe, bank: FeatureBank) -> None:
    """Refuse an empty job, and episodes that were drawn for another bank."""
    total = episodes.episodes if isinstance(episodes, Recipe) else len(episodes)
    if total < 1:
        raise InputError(f"at least one episode must be evaluated; {total} were requested.")
    if total == 1:
        warnings.warn("one episode has no confidence interval: ci95 is reported as zero.", DataWarning, stacklevel=4)
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
    """The smallest number of supports of any class in any episode."""
    if isinstance(episodes, Recipe):
        return episodes.shot
    counts = (episodes.support_labels[..., None] == np.arange(episodes.recipe.way)).sum(axis=1)  # [R, way]
    return int(counts.min())


def _run(job: Job, engine: Engine, notes: tuple[str, ...], progress: Progress | None) -> Result:
    """Collect results chunk by chunk; after an interrupt, raise `Interrupted` with the finished ones."""
    start = time.perf_counter()
    parts: list[dict[str, NDArray[np.float64]]] = []  # per-episode metrics by name
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
