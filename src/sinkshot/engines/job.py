"""The job of an engine: what to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.episodes import Episodes, Recipe
from sinkshot.methods import Method


@dataclass(frozen=True)
class Job:
    """What to evaluate, fully resolved except for the engine."""

    bank: FeatureBank
    episodes: Episodes | Recipe
    method: Method
    hyper: dict[str, Any]
    steps: preprocess.Chain
    base: FeatureBank | None = None
    means: Mapping[str, NDArray[Any]] = field(
        default_factory=dict
    )  # of base classes, by chain prefix; these have priority over `base`

    @property
    def recipe(self) -> Recipe:
        """The recipe that the episodes are drawn by."""
        return self.episodes if isinstance(self.episodes, Recipe) else self.episodes.recipe

    @property
    def total(self) -> int:
        """Episodes in all."""
        return self.recipe.episodes if isinstance(self.episodes, Recipe) else len(self.episodes)

    @property
    def rows(self) -> int:
        """Rows in an episode, supports and queries."""
        way, shot, query = self.recipe.way, self.recipe.shot, self.recipe.query
        return way * (shot + (2 if self.recipe.protocol == "open-set" else 1) * query)


def prior_is(hyper: Mapping[str, Any], *names: str) -> bool:
    """Whether the method has a prior with one of these names."""
    return isinstance(hyper.get("prior"), str) and hyper["prior"] in names


def true_shares(chunk: Episodes) -> NDArray[np.float64]:
    """Class proportions among the queries of known classes, [R, way]."""
    counts = (chunk.query_labels[..., None] == np.arange(chunk.recipe.way)).sum(axis=1)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
