"""Methods that run in one kernel, from row numbers to probabilities: what each takes, and how its kernels are called.

A method names its entry of `KERNELS` (`fused=` in `sinkshot.register`). Engines know no method by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sinkshot import preprocess
from sinkshot.engines.job import Job, prior_is
from sinkshot.methods import bms
from sinkshot.settings.sinkshot import SETTINGS
from sinkshot.task import Array, Scores


class Question(NamedTuple):
    """R episodes of a bank, in the arrays of the engine."""

    rows: Array  # [n, d], after the steps of the chain that act on each row alone
    support: Array  # [R, l] row numbers
    labels: Array  # [R, l]
    query: Array  # [R, q] row numbers
    way: int
    centring: preprocess.Centring  # the rest of the chain
    hyper: dict[str, Any]


@dataclass(frozen=True)
class FusedKernel:
    """One method as kernels."""

    numba: Callable[[Question], Scores]
    triton: Callable[[Question], Scores] | None  # None: Gram matrices by a kernel, the rest by readable code
    products: Callable[[Job], int]  # with the Gram matrix in an episode, about: its cost over rows^2 * way
    takes: Callable[[Job], bool] = lambda _: True
    centres_by_classes: bool = False  # it can also do Mc, which leans on labels

    def can(self, centring: preprocess.Centring | None) -> bool:
        """Whether it can do the rest of a chain."""
        return centring is not None and not centring.apart and (self.centres_by_classes or not centring.classes)


def bms_epochs(job: Job) -> int:
    """Steps of logistic regression in BMS; that there is a prior counts, not which."""
    known = "balanced" if prior_is(job.hyper, "oracle", "estimated") else job.hyper["prior"]
    return bms.decide(job.recipe.way, job.recipe.way * job.recipe.shot, **{**job.hyper, "prior": known}).epochs


def _bms_takes(job: Job) -> bool:
    """Fused logistic regression follows the lengths of weights by their changes.

    That is exact enough for rows of unit length; on longer ones digits cancel, so a chain must end in E then.
    """
    return (bool(job.steps) and job.steps[-1].name == "E") or bms_epochs(job) == 0


def _bms_arguments(asked: Question) -> tuple[tuple[Array, ...], dict[str, Any]]:
    arrays = (asked.rows, asked.support, asked.labels, asked.query)
    settings = bms.decide(asked.way, asked.support.shape[1], **asked.hyper)
    steps = {"centre": asked.centring.centre, "normalise": asked.centring.normalise}
    return arrays, {"way": asked.way, **steps, "settings": settings}


def _bms_numba(asked: Question) -> Scores:
    from sinkshot.kernels.bms_numba import bms_episodes

    arrays, options = _bms_arguments(asked)
    return Scores(bms_episodes(*arrays, **options))


def _bms_triton(asked: Question) -> Scores:
    from sinkshot.kernels.bms_triton import bms_episodes

    arrays, options = _bms_arguments(asked)
    return Scores(bms_episodes(*arrays, **options))


def _sinkshot_arguments(asked: Question) -> tuple[tuple[Array, ...], dict[str, Any]]:
    arrays, how = (asked.rows, asked.support, asked.labels, asked.query), asked.centring
    steps = {"centre": how.centre, "class_centre": how.classes, "normalise": how.normalise}
    return arrays, {"way": asked.way, **steps, "settings": SETTINGS, **asked.hyper}


def _sinkshot_numba(asked: Question) -> Scores:
    from sinkshot.kernels.sinkshot_numba import sinkshot_episodes

    arrays, options = _sinkshot_arguments(asked)
    return Scores(*sinkshot_episodes(*arrays, **options))


def _sinkshot_triton(asked: Question) -> Scores:
    from sinkshot.kernels.sinkshot_triton import sinkshot_episodes

    arrays, options = _sinkshot_arguments(asked)
    return Scores(*sinkshot_episodes(*arrays, **options))


KERNELS = {
    "bms": FusedKernel(_bms_numba, _bms_triton, lambda job: bms_epochs(job) + 1, _bms_takes),
    "sinkshot": FusedKernel(_sinkshot_numba, _sinkshot_triton, lambda _: 2 * SETTINGS.steps, centres_by_classes=True),
}
"""By the names that methods use."""
