"""Choose hyper-parameters of a method on validation classes; keep the published ones unless others are clearly better.

All candidates see the same episodes. After each round half of the candidates are dropped and the number of episodes
doubles (successive halving). The best candidate of the last round is then compared with the published defaults on as
many fresh episodes. If it does not win by more than its paired interval, the defaults stay.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods
from sinkshot import preprocess as preprocessing
from sinkshot.bank import FeatureBank
from sinkshot.classes import check_split, part
from sinkshot.engines import pick
from sinkshot.episodes import Episodes, Recipe
from sinkshot.errors import InputError, whole
from sinkshot.evaluate import Paired, Progress, evaluate, half_width, resolve_job
from sinkshot.metrics import Metric, sign
from sinkshot.open_set import OPEN_SET

_LEAST = 25  # episodes in the first round: fewer would drop candidates by chance
_MOST = 10_000  # candidates


@dataclass(frozen=True)
class Candidate:
    """A setting of the method, and its results on the episodes evaluated so far.

    Parameters
    ----------
    hyper : mapping
        What differs from the published defaults.
    preprocess : str, optional
        The chain; None for the method's own.
    values : array of shape (r,)
        The metric on the first r episodes.

    See Also
    --------
    sinkshot.tune : Makes and ranks them.

    Examples
    --------
    >>> from sinkshot.tuning import Candidate
    >>> Candidate({"lam": 6.0}, "PE").options
    '--preprocess PE --set lam=6.0'
    """

    hyper: Mapping[str, Any] = field(default_factory=dict)  # what differs from the published defaults
    preprocess: str | None = None  # None: the method's own chain
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # [r], of the first r episodes

    @property
    def mean(self) -> float:
        """Mean over the episodes evaluated so far."""
        return float(self.values.mean())

    @property
    def ci95(self) -> float:
        """95 % CI half-width of the mean."""
        return half_width(self.values)

    @property
    def options(self) -> str:
        """The setting as options of `sinkshot eval`; empty for the published defaults."""
        words = [] if self.preprocess is None else ["--preprocess", self.preprocess]
        for name, value in self.hyper.items():
            words += ["--set", f"{name}={written(value)}"]
        return shlex.join(words)


@dataclass(frozen=True)
class Tuned:
    """The result of a search: every candidate, the best one, and its comparison with the defaults.

    Parameters
    ----------
    method : str
        The method.
    recipe : Recipe
        Episodes of the search; the check uses as many fresh ones.
    metric : str
        The metric that candidates were chosen by.
    default : Candidate
        The published defaults.
    candidates : tuple of Candidate
        The best first, by the round they reached.
    check : Paired, optional
        The best against the defaults on fresh episodes; None if no candidate was above the defaults.

    See Also
    --------
    sinkshot.tune : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import Recipe
    >>> from sinkshot.tuning import Candidate, Tuned
    >>> default, better = Candidate(values=np.array([0.7, 0.8])), Candidate({"lam": 6.0}, values=np.array([0.8, 0.9]))
    >>> found = Tuned("bms", Recipe(episodes=2), "accuracy", default, (better,))
    >>> found.improved, found.best is default  # without a check the defaults stay
    (False, True)
    """

    method: str
    recipe: Recipe  # of the search; the check uses as many fresh episodes
    metric: Metric
    default: Candidate
    candidates: tuple[Candidate, ...]  # the best first, by the round they reached
    check: Paired | None = None  # the best against the defaults, on fresh episodes; None if none was above them

    @property
    def improved(self) -> bool:
        """Whether the best candidate is better than the defaults by more than the interval of the difference."""
        return self.check is not None and sign(self.metric) * self.check.difference > self.check.ci95

    @property
    def best(self) -> Candidate:
        """The setting to use: the best candidate if it is an improvement, else the defaults."""
        return self.candidates[0] if self.improved else self.default

    def against(self, candidate: Candidate) -> Paired:
        """Return the mean difference between a candidate and the defaults on the episodes that the candidate saw.

        Parameters
        ----------
        candidate : Candidate
            One of `candidates`.

        Returns
        -------
        Paired
            The difference and its interval.
        """
        apart = candidate.values - self.default.values[: len(candidate.values)]
        return Paired(candidate.options, "default", float(apart.mean()), half_width(apart))

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `sinkshot tune --json` prints.

        Returns
        -------
        dict
            Plain Python values.
        """

        def as_dict(candidate: Candidate) -> dict[str, Any]:
            return {
                "preprocess": candidate.preprocess,
                "hyper": dict(candidate.hyper),
                "options": candidate.options,
                "episodes": len(candidate.values),
                "mean": candidate.mean,
                "ci95": candidate.ci95,
            }

        def pair(paired: Paired) -> dict[str, float]:
            return {"difference": paired.difference, "ci95": paired.ci95}

        recipe = self.recipe
        return {
            "method": self.method,
            **{name: getattr(recipe, name) for name in ("protocol", "way", "shot", "query", "episodes", "seed")},
            "metric": self.metric,
            "default": as_dict(self.default),
            "candidates": [{**as_dict(one), "against_default": pair(self.against(one))} for one in self.candidates],
            "check": None if self.check is None else pair(self.check),
            "improved": self.improved,
            "best": as_dict(self.best),
        }


class Stopped(KeyboardInterrupt):
    """An interrupted search; `tuned` holds the results so far, if any."""

    def __init__(self, tuned: Tuned | None) -> None:
        super().__init__()
        self.tuned = tuned


def tune(
    bank: FeatureBank,
    recipe: Recipe,
    *,
    method: str,
    grid: Mapping[str, Sequence[Any]] | None = None,
    preprocess: Sequence[str] = (),
    random: int | None = None,
    classes: str | None = None,
    metric: Metric = "accuracy",
    base: FeatureBank | None = None,
    device: str = "auto",
    engine: str = "auto",
    progress: Progress | None = None,
) -> Tuned:
    """Choose hyper-parameters of a method on validation classes.

    Parameters
    ----------
    bank : FeatureBank
        Classes that no result will be reported on. A bank of novel classes, according to its meta, is refused.
    recipe : Recipe
        The tasks to optimise for; `episodes` is the number in the last round, and again in the check.
    method : str
        A registered name.
    grid : mapping of str to sequence
        Values to try for each hyper-parameter; candidates are all combinations.
    preprocess : sequence of str
        Chains to try; the method's own is always tried.
    random : int, optional
        Try this number of random combinations, drawn with the recipe's seed, instead of all.
    classes : str, optional
        Use only these classes of the bank, by number: "0-9,12". The bank may then be of any split; report on the rest.
    metric : {"accuracy", "auroc", "aupr", "fpr95"}
        The metric to choose by; all but accuracy need `open-set`, and lower is better for fpr95.
    base, device, engine, progress
        As in `evaluate`.

    Returns
    -------
    Tuned
        Every candidate, the best of them, and whether it beats the published defaults on fresh episodes.

    See Also
    --------
    evaluate : Measure one setting.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.load("cifar-fs_wrn-28-10_base")
    >>> found = sinkshot.tune(bank, sinkshot.Recipe(episodes=40), method="matching", grid={"temperature": [0.1, 1]})
    >>> found.best.hyper, found.improved
    ({}, False)
    """
    if classes is None:
        check_split(bank)
    else:
        bank = part(bank, classes)
    whole("episodes", recipe.episodes, 2)
    if metric not in ("accuracy", *OPEN_SET) or (metric != "accuracy" and recipe.protocol != "open-set"):
        raise InputError(
            f"metric must be accuracy, or auroc, aupr or fpr95 under the protocol open-set; {metric!r} was given."
        )
    listed = _candidates(method, grid or {}, preprocess, random, recipe)
    how = {"base": base, "device": device, "engine": engine}
    return _Search(bank, recipe, method, metric, how, progress).run(listed)


@dataclass
class _Search:
    """A running search."""

    bank: FeatureBank
    recipe: Recipe
    method: str
    metric: Metric
    how: dict[str, Any]
    progress: Progress | None
    done: int = 0
    total: int = 0

    def run(self, listed: Sequence[Candidate]) -> Tuned:
        rounds = _rounds(len(listed), self.recipe.episodes)
        sizes = [math.ceil(len(listed) / 2**i) for i in range(len(rounds))]
        self.total = sum(int(n) * (size + 1) for n, size in zip(np.diff([0, *rounds]), sizes, strict=True))
        self.total += 2 * self.recipe.episodes
        default, left, out = Candidate(), list(listed), list[Candidate]()
        try:
            for end in rounds:
                seen = self._draw(len(default.values), end - len(default.values))
                default = self._extended(default, seen)
                left = sorted((self._extended(one, seen) for one in left), key=self._worse)
                keep = len(left) if end == rounds[-1] else math.ceil(len(left) / 2)
                left, out = left[:keep], left[keep:] + out
            found = Tuned(self.method, self.recipe, self.metric, default, (*left, *out))
            if self._worse(left[0]) >= self._worse(default):
                return found
            fresh = self._draw(self.recipe.episodes, self.recipe.episodes)
            difference = self._values(left[0], fresh) - self._values(default, fresh)
            check = Paired(left[0].options, "default", float(difference.mean()), half_width(difference))
            return replace(found, check=check)
        except KeyboardInterrupt:
            seen_any = [one for one in (*left, *out) if len(one.values)]
            ranked = sorted(seen_any, key=lambda one: (-len(one.values), self._worse(one)))
            found = Tuned(self.method, self.recipe, self.metric, default, tuple(ranked))
            raise Stopped(found if ranked else None) from None

    def _worse(self, candidate: Candidate) -> float:
        """Sort key: higher for worse candidates."""
        return -sign(self.metric) * candidate.mean

    def _draw(self, first: int, count: int) -> Episodes:
        return self.recipe.draw(self.bank.labels, first, count, self.bank.class_names)

    def _extended(self, candidate: Candidate, episodes: Episodes) -> Candidate:
        return replace(candidate, values=np.append(candidate.values, self._values(candidate, episodes)))

    def _values(self, candidate: Candidate, episodes: Episodes) -> NDArray[np.float64]:
        """The metric of a candidate on episodes, [r]."""
        chain, hyper = candidate.preprocess, dict(candidate.hyper)
        try:
            job, _ = resolve_job(self.bank, self.recipe, self.method, chain, self.how["base"], hyper)
            engine = pick(self.how["engine"], self.how["device"], job).name  # the same for short and long rounds
            how = {**self.how, "engine": engine, "preprocess": chain, **hyper}
            result = evaluate(self.bank, episodes, method=self.method, **how)
        except InputError as error:
            setting = f" with {candidate.options}" if candidate.options else ""
            raise InputError(f"{self.method}{setting} cannot be evaluated: {error}") from error
        self.done += len(episodes)
        if self.progress is not None:
            self.progress(self.done, self.total)
        return np.asarray(result.values(self.metric))


def _rounds(candidates: int, episodes: int) -> list[int]:
    """Cumulative episodes by round: doubled while the number of candidates is halved, all of them in the last round.

    >>> _rounds(12, 500)
    [62, 125, 250, 500]
    """
    count = max(1, math.ceil(math.log2(max(1, candidates))))
    ends = [max(min(_LEAST, episodes), episodes >> back) for back in reversed(range(count))]
    return sorted(set(ends))


def _candidates(
    method: str, grid: Mapping[str, Sequence[Any]], chains: Sequence[str], random: int | None, recipe: Recipe
) -> list[Candidate]:
    """Every combination except the published defaults, or a random selection of them."""
    chosen = methods.get(method)
    chosen.bind(dict.fromkeys(grid))
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise InputError(f"the values of {name} must be a list with at least one entry; {values!r} was given.")
    for chain in chains:
        preprocessing.parse(chain)
    if math.prod(map(len, grid.values())) * (len(chains) + 1) > _MOST and random is None:
        raise InputError(f"the grid has more than {_MOST:,} combinations; try a random selection (--random 50).")
    usual = preprocessing.spell(preprocessing.parse(chosen.preprocess))
    own = [chain for chain in chains if preprocessing.spell(preprocessing.parse(chain)) != usual]
    published = {**chosen.hyper, **(chosen.imbalanced if recipe.unequal else {})}
    found: dict[str, Candidate] = {}
    for chain, *values in _combinations([None, *own], list(grid.values()), random, recipe.seed):
        hyper = {name: value for name, value in zip(grid, values, strict=True) if not _same(value, published[name])}
        if hyper or chain is not None:
            one = Candidate(hyper, chain)
            found.setdefault(one.options, one)
    if not found:
        raise InputError(
            f"the defaults of {method} are the only candidate. Give values to try, such as "
            "--grid lam=4,6,8 on the command line or grid={'lam': [4, 6, 8]}, or other chains with preprocess."
        )
    return list(found.values())


def _same(a: Any, b: Any) -> bool:
    return written(a) == written(b) or (isinstance(a, int | float) and isinstance(b, int | float) and a == b)


def _combinations(
    chains: Sequence[str | None], lists: Sequence[Sequence[Any]], random: int | None, seed: int
) -> Iterator[tuple[Any, ...]]:
    """All combinations in order, or `random` different ones, drawn with the seed."""
    if random is None:
        yield from product(chains, *lists)
        return
    axes = [chains, *lists]
    count = math.prod(map(len, axes))
    rng = np.random.default_rng([seed, count])
    few = whole("random", random, 1)
    places = rng.choice(count, size=min(few, count), replace=False) if count <= _MOST else rng.integers(0, count, few)
    for place in places:
        combination = []
        for axis in axes:
            place, here = divmod(int(place), len(axis))
            combination.append(axis[here])
        yield tuple(combination)


def written(value: Any) -> str:
    """Format a value as `--set` reads it.

    >>> written([0.5, 0.5]), written(None), written("auto"), written(True)
    ('0.5,0.5', 'none', 'auto', 'true')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(written, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
