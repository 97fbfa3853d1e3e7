"""Paired comparison of settings on the same episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.episodes import Recipe
from sinkshot.evaluate import half_width
from sinkshot.metrics import sign
from sinkshot.report.table_cells import Standing, standing
from sinkshot.studies.compare import Number, holm, p_value
from sinkshot.studies.study import BankKey, Cell, Study

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult


@dataclass(frozen=True)
class Match:
    """The difference of two settings in percentage points, and in how many episodes the first wins, ties, loses."""

    difference: float
    ci95: float
    wins: int
    ties: int
    losses: int
    better: int = 1  # -1 where less is better

    @property
    def standing(self) -> Standing:
        """`level` if the interval of the difference includes zero or there is one episode; else `above` if better."""
        single = self.wins + self.ties + self.losses < 2
        return "level" if single else standing(self.better * self.difference, self.ci95)


def paired(a: NDArray[Any], b: NDArray[Any], metric: str) -> tuple[NDArray[np.float64], tuple[int, int, int]]:
    """Return a - b [R] on the same episodes, and in how many a wins, ties and loses; the longer one is cut."""
    same = min(len(a), len(b))
    apart = np.asarray(a[:same], dtype=np.float64) - np.asarray(b[:same], dtype=np.float64)
    won, lost = (int((side * sign(metric) * apart > 0).sum()) for side in (1, -1))
    return apart, (won, same - won - lost, lost)


def match(a: NDArray[Any], b: NDArray[Any], metric: str = "accuracy") -> Match:
    """Compare values [R] on the same episodes."""
    apart, counts = paired(a, b, metric)
    return Match(100 * float(apart.mean()), 100 * half_width(apart), *counts, sign(metric))


@dataclass(frozen=True)
class Setting:
    """A method with its preprocessing and hyper-parameters, and its results by recipe."""

    method: str
    preprocess: str
    hyper: tuple[tuple[str, Any], ...]
    reached: Mapping[Recipe, StoredResult]

    def __str__(self) -> str:
        changed = [f"{name}={value}" for name, value in self.hyper]
        return " ".join([self.method, self.preprocess or "without preprocessing", *changed])

    @property
    def mean(self) -> float:
        """Mean accuracy over recipes."""
        return float(np.mean([stored.accuracy for stored in self.reached.values()]))


@dataclass(frozen=True)
class Line:
    """A setting compared with another; the best on average over the recipes has no other."""

    setting: Setting
    against: Setting | None
    matches: tuple[Match | None, ...]  # one for each recipe


@dataclass(frozen=True)
class Meeting:
    """All settings on one bank and the same episodes, by method, the best on average first."""

    bank: BankKey
    recipes: tuple[Recipe, ...]
    methods: tuple[tuple[Line, ...], ...]

    @property
    def heads(self) -> list[str]:
        """The recipes as column heads; query, seed and protocol stand there only if two heads would be the same."""
        heads = [f"{recipe.way}-way {recipe.shot}-shot" for recipe in self.recipes]
        usual = ("balanced", "official")
        heads = [h if r.protocol in usual else f"{h}, {r.drawn_by}" for h, r in zip(heads, self.recipes, strict=True)]
        for text in ("{0.query} queries", "{0.protocol}", "seed {0.seed}", "{0.episodes:,} episodes"):
            told = {text.format(recipe) for recipe in self.recipes}
            if len(told) > 1 and len(set(heads)) < len(heads):
                heads = [f"{head}, {text.format(recipe)}" for head, recipe in zip(heads, self.recipes, strict=True)]
        return heads


def meetings(studies: Iterable[Study], results: Mapping[Cell, StoredResult]) -> list[Meeting]:
    """Compare the measured cells of all tables that share bank and recipe.

    The best setting of a method is compared with the best of all, its other settings with its best. Best is what has
    the largest mean accuracy over the recipes.
    """
    cells = [cell for study in studies if study.kind == "table" for cell in study.cells() if cell in results]
    banks = dict.fromkeys(cell.bank for cell in cells)
    found = [_meeting(bank, [cell for cell in cells if cell.bank == bank], results) for bank in banks]
    return [meeting for meeting in found if meeting is not None]


def _meeting(bank: BankKey, cells: list[Cell], results: Mapping[Cell, StoredResult]) -> Meeting | None:
    reached: dict[tuple[str, str, tuple[tuple[str, Any], ...]], dict[Recipe, StoredResult]] = {}
    for cell in cells:
        stored = results[cell]
        reached.setdefault((cell.method, stored.preprocess, cell.hyper), {})[cell.recipe] = stored
    shared = [recipe for recipe in dict.fromkeys(c.recipe for c in cells) if _meet(recipe, reached.values())]
    settings = [Setting(*key, {r: of[r] for r in shared if r in of}) for key, of in reached.items()]
    ranked = sorted((s for s in settings if s.reached), key=lambda setting: -setting.mean)
    if not ranked:
        return None
    groups = []
    for method in dict.fromkeys(setting.method for setting in ranked):
        first, *rest = (setting for setting in ranked if setting.method == method)
        lines = [(first, None if first is ranked[0] else ranked[0]), *((setting, first) for setting in rest)]
        groups.append(tuple(_line(setting, against, shared) for setting, against in lines))
    return Meeting(bank, tuple(shared), tuple(groups))


def _meet(recipe: Recipe, settings: Iterable[Mapping[Recipe, StoredResult]]) -> bool:
    return sum(recipe in reached for reached in settings) > 1


def _line(setting: Setting, against: Setting | None, recipes: Iterable[Recipe]) -> Line:
    def at(recipe: Recipe) -> Match | None:
        if against is None or recipe not in setting.reached or recipe not in against.reached:
            return None
        return match(setting.reached[recipe].per_episode, against.reached[recipe].per_episode)

    return Line(setting, against, tuple(at(recipe) for recipe in recipes))


def holm_of_meeting(meeting: Meeting) -> dict[int, float]:
    """Return p-values by `id` of a match, adjusted by Holm for all comparisons with the same recipe."""
    adjusted: dict[int, float] = {}
    for i in range(len(meeting.recipes)):
        found = [one for lines in meeting.methods for line in lines if (one := line.matches[i]) is not None]
        values = [p_value(Number(one.difference, one.ci95)) or 0.0 for one in found]
        adjusted |= dict(zip(map(id, found), holm(values), strict=True))
    return adjusted
