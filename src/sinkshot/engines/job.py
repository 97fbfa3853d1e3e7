"""What an engine is asked to do, and what about it decides which engine can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.episodes import Episodes, Recipe
from sinkshot.methods import Method, bms


@dataclass(frozen=True)
class Job:
    """What is to be evaluated; everything is settled but the way to compute it."""

    bank: FeatureBank
    episodes: Episodes | Recipe
    method: Method
    hyper: dict[str, Any]
    steps: preprocess.Chain
    base: FeatureBank | None = None
    means: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of base classes, by chain prefix; before `base`'s

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


def by_inner_products(job: Job) -> bool:
    """Whether a job can be done on Gram matrices alone, with the digits of float32.

    Fused logistic regression follows the lengths of weights by their changes, which is exact enough for rows of unit
    length; on longer ones digits cancel, so a chain must end in E where there is any.
    """
    ends_in_unit_length = bool(job.steps) and job.steps[-1].name == "E"
    if job.method.fused and not ends_in_unit_length and epochs_of(job) > 0:
        return False
    return job.method.gram and preprocess.centring(preprocess.split(job.steps)[1]) is not None


def epochs_of(job: Job) -> int:
    """Steps of logistic regression in BMS; that there is a prior counts, not which."""
    known = "balanced" if prior_is(job.hyper, "oracle", "estimated") else job.hyper["prior"]
    return bms.decide(job.recipe.way, job.recipe.way * job.recipe.shot, **{**job.hyper, "prior": known}).epochs


def prior_is(hyper: Mapping[str, Any], *names: str) -> bool:
    """Whether the method has a prior, and it goes by one of these names."""
    return isinstance(hyper.get("prior"), str) and hyper["prior"] in names


def true_shares(chunk: Episodes) -> NDArray[np.float64]:
    """Shares of the classes among the queries of known classes, [R, way]."""
    counts = (chunk.query_labels[..., None] == np.arange(chunk.recipe.way)).sum(axis=1)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
