"""Bank + episodes + preprocessing + method -> Result: accuracy over many episodes, in chunks of bounded memory."""

from __future__ import annotations

import importlib.util
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.episodes import Episodes, Recipe
from sinkshot.errors import InputError, unknown_name
from sinkshot.task import Array, Scores, Task

ENGINES = ("auto", "numpy", "torch")
STAGES = ("sample", "prepare", "classify")
_DRAWN_AT_ONCE = 4096  # episodes
_CHUNK_BYTES = {"numpy": 8 << 20, "torch": 1 << 30}  # of features in one batch; on a CPU it should stay in the cache

Progress = Callable[[int, int], None]
"""Called with the number of episodes done and in all."""


@dataclass(frozen=True)
class Result:
    """Accuracy of one method on a set of episodes, with everything that decided it."""

    method: str
    preprocess: str
    recipe: Recipe
    per_episode: NDArray[np.float64]  # [R] accuracy on the queries of known classes
    seconds: dict[str, float]  # sample, prepare, classify, total
    engine: str
    hyper: dict[str, Any] = field(default_factory=dict)
    auroc_per_episode: NDArray[np.float64] | None = None  # [R], under `open-set`

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
    def auroc(self) -> float | None:
        """Mean over episodes of the area under the ROC curve of unknown against known queries."""
        return None if self.auroc_per_episode is None else float(self.auroc_per_episode.mean())

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `sinkshot eval --json` prints."""
        recipe = self.recipe
        answer = {
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
        if self.auroc is not None:
            answer["auroc"] = self.auroc
        return answer


@dataclass(frozen=True)
class Paired:
    """How far method a is above method b on the same episodes."""

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
    """Mean difference in accuracy of two results on the same episodes, and its 95 % half-width."""
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
    episodes : Episodes or Recipe
        Drawn ones, or a recipe that is drawn part by part: memory stays bounded whatever its size.
    method : str
        A registered name, see `sinkshot.methods.METHODS`.
    preprocess : str, optional
        Chain such as "PEMnE"; the method's own by default.
    base : FeatureBank, optional
        Features of the base classes; without it, steps Mb use the means the bank holds.
    device : str
        "cpu" (NumPy), a torch device such as "cuda", or "auto".
    engine : {"auto", "numpy", "torch"}
    progress : callable, optional
        Called with the episodes done and in all.
    **hyper
        Hyper-parameters of the method.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
    >>> recipe = sinkshot.Recipe(way=5, shot=1, query=15, episodes=50)
    >>> sinkshot.evaluate(bank, recipe, method="bms").accuracy > 0.8
    True
    """
    return _Evaluation(bank, episodes, method, preprocess, base, device, engine, hyper).run(progress)


class _Evaluation:
    """One call of `evaluate`: what was decided before the first episode, and the sums so far."""

    def __init__(
        self,
        bank: FeatureBank,
        episodes: Episodes | Recipe,
        method: str,
        chain: str | None,
        base: FeatureBank | None,
        device: str,
        engine: str,
        hyper: dict[str, Any],
    ) -> None:
        self.bank, self.episodes, self.base = bank, episodes, base
        self.recipe = episodes if isinstance(episodes, Recipe) else episodes.recipe
        self.method = methods.get(method)
        self.hyper = self.method.bind(hyper)
        self.engine, self.device = pick_engine(engine, device)
        self.steps = self._chain(chain)
        if base is not None and base.width != bank.width:
            raise InputError(f"the base features have {base.width} columns and the bank has {bank.width}.")
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.zero_rows = 0

    def _chain(self, given: str | None) -> preprocess.Chain:
        """Parse the chain given, or the method's own as far as the base classes are known."""
        if given is not None:
            return preprocess.parse(given)
        steps = preprocess.parse(self.method.preprocess)
        if not preprocess.needs_base(steps) or self.base is not None:
            return steps
        before_mean = preprocess.spell(steps[: [step.name for step in steps].index("Mb")])
        return steps if before_mean in self.bank.base else preprocess.parse(self.method.without_base)

    def run(self, progress: Progress | None) -> Result:
        """Evaluate chunk by chunk; an interrupt hands out what is finished."""
        start = time.perf_counter()
        accuracies: list[NDArray[np.float64]] = []
        aurocs: list[NDArray[np.float64]] = []
        total = self.recipe.episodes if isinstance(self.episodes, Recipe) else len(self.episodes)
        try:
            row_wise, task_wise = preprocess.split(self.steps)
            rows = self._rows(row_wise)
            done = 0
            for chunk in self._chunks(rows.shape[-1] * rows.dtype.itemsize if hasattr(rows.dtype, "itemsize") else 4):
                task = self._task(rows, chunk, task_wise)
                with self._timed("classify"):
                    scores = self.method.function(task, **self.hyper)
                    accuracies.append(_accuracy(scores, chunk))
                    if self.recipe.protocol == "open-set":
                        aurocs.append(_auroc(scores, chunk))
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
        except KeyboardInterrupt:
            raise Interrupted(self._result(accuracies, aurocs, start) if accuracies else None) from None
        preprocess.warn_of_zero_rows(self.zero_rows)
        return self._result(accuracies, aurocs, start)

    def _result(self, accuracies: list[NDArray[np.float64]], aurocs: list[NDArray[np.float64]], start: float) -> Result:
        return Result(
            method=self.method.name,
            preprocess=preprocess.spell(self.steps),
            recipe=self.recipe,
            per_episode=np.concatenate(accuracies),
            seconds={**self.seconds, "total": time.perf_counter() - start},
            engine=self.engine,
            hyper=self.hyper,
            auroc_per_episode=np.concatenate(aurocs) if aurocs else None,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start

    def _rows(self, steps: preprocess.Chain) -> Array:
        """Apply the part of the chain that acts on rows alone to the whole bank, once."""
        with self._timed("prepare"):
            if steps and steps[0].name == "P":
                preprocess.refuse_negative(self.bank.features, "row")
            means = preprocess.base_mean_of(self.bank.base, self.base)
            done = preprocess.run(self._array(self.bank.features), steps, base_mean=means)
            self.zero_rows += done.zero_rows
            return done.x

    def _array(self, values: NDArray[Any]) -> Array:
        """Bring an array to the engine's library and device."""
        if self.engine == "numpy":
            return values
        import torch

        return torch.from_numpy(np.array(values)).to(self.device)

    def _chunks(self, row_bytes: int) -> Iterator[Episodes]:
        """Episodes in parts that the engine takes at once."""
        first = 0
        while first < self.recipe.episodes:
            if isinstance(self.episodes, Recipe):
                count = min(_DRAWN_AT_ONCE, self.recipe.episodes - first)
                with self._timed("sample"):
                    drawn = self.recipe.draw(self.bank.labels, first, count, self.bank.class_names)
            else:
                drawn = self.episodes
            rows = drawn.support.shape[1] + drawn.query.shape[1]
            size = max(1, _CHUNK_BYTES[self.engine] // (rows * row_bytes))
            for begin in range(0, len(drawn), size):
                yield drawn[begin : begin + size]
            first += len(drawn)
            if not isinstance(self.episodes, Recipe):
                return

    def _task(self, rows: Array, chunk: Episodes, steps: preprocess.Chain) -> Task:
        """Gather the rows of a chunk and apply the rest of the chain."""
        with self._timed("prepare"):
            both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
            means = preprocess.base_mean_of(self.bank.base, self.base)
            done = preprocess.run(rows[both], steps, base_mean=means)
            self.zero_rows += done.zero_rows
            supports = chunk.support.shape[1]
            labels = self._array(chunk.support_labels)
            return Task(done.x[:, :supports], labels, done.x[:, supports:], self.recipe.way, self.base)


def pick_engine(engine: str, device: str) -> tuple[str, str]:
    """Settle "auto": torch where a torch device is asked for or a GPU is in the machine, else NumPy."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if device == "auto":
        has_gpu = shutil.which("nvidia-smi") is not None and importlib.util.find_spec("torch") is not None
        device = "cuda" if has_gpu and engine != "numpy" else "cpu"
    if engine == "auto":
        engine = "numpy" if device == "cpu" else "torch"
    if engine == "numpy" and device != "cpu":
        raise InputError(f"the engine numpy runs on the cpu; the device asked for is {device!r}.")
    if engine == "torch":
        _check_torch(device)
    return engine, device


def _check_torch(device: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise InputError("this engine needs torch, which is not installed: pip install 'sinkshot[torch]'.")
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"torch cannot use the device {device!r} here: {reason}") from None


def _numpy(array: Array) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu())


def _accuracy(scores: Scores, chunk: Episodes) -> NDArray[np.float64]:
    """Share of the queries of known classes that are labelled right, [R]."""
    predicted = _numpy(scores.probabilities).argmax(axis=-1)
    known = chunk.query_labels >= 0
    right = (predicted == chunk.query_labels) & known
    return np.asarray(right.sum(axis=1) / known.sum(axis=1))


def _auroc(scores: Scores, chunk: Episodes) -> NDArray[np.float64]:
    """Area under the ROC curve of unknown against known queries in each episode, [R].

    A method without a score of its own is judged by one minus its largest probability.
    """
    unknown = 1 - _numpy(scores.probabilities).max(axis=-1) if scores.unknown is None else _numpy(scores.unknown)
    known_queries = int((chunk.query_labels[0] >= 0).sum())  # they come first
    known, strange = unknown[:, :known_queries, None], unknown[:, None, known_queries:]
    return np.asarray((strange > known).mean(axis=(1, 2)) + 0.5 * (strange == known).mean(axis=(1, 2)))
