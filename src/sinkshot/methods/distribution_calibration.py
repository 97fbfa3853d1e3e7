"""Distribution calibration: Yang, Liu, Xu, "Free lunch for few-shot learning: distribution calibration", ICLR 2021.

Each support borrows mean and covariance from the two base classes nearest to it. Logistic regression is trained on the
supports and on samples from these normal distributions. Queries are classified independently: the method is inductive.
"""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array
from numpy.typing import NDArray

from sinkshot.arrays import to_numpy
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError, number, whole
from sinkshot.methods.registry import register
from sinkshot.preprocess import refuse_negative
from sinkshot.task import Scores, Task

Floats = NDArray[np.float64]
Statistics = tuple[Floats, list[Floats]]  # means [C, d]; for each class F [., d] with F^T F its covariance
_STATISTICS: WeakKeyDictionary[FeatureBank, Statistics] = WeakKeyDictionary()
_IMPORTING = Lock()


@register(
    "distribution-calibration",
    transductive=False,
    preprocess="",
    features=True,
    random=True,
    ordered=True,
    reference="Yang, Liu, Xu 2021 (distribution calibration)",
)
def distribution_calibration(
    task: Task,
    *,
    beta: float = 0.5,
    neighbours: int = 2,
    alpha: float = 0.21,
    samples: int = 750,
    seed: int = 0,
) -> Scores:
    """Train logistic regression on the supports and on samples of distributions borrowed from base classes.

    Parameters
    ----------
    beta : float
        The exponent applied to supports and queries; base statistics use the plain features.
    neighbours : int
        Number of base classes from which a support borrows.
    alpha : float
        Added to every entry of a covariance, as in the public code: a common shift of all features, not a ridge.
    samples : int
        Samples drawn for each class, divided among its supports.
    seed : int
        Seed of the samples. All episodes use the same draws, so that no episode depends on others in the batch.
    """
    beta, alpha = number("beta", beta, above=0), number("alpha", alpha)
    if alpha < 0:
        raise InputError(f"alpha is a variance and must not be negative; {alpha:g} was given.")
    neighbours, samples = whole("neighbours", neighbours, least=1), whole("samples", samples, least=0)
    seed = whole("seed", seed, least=0)
    assert task.base is not None  # the registry asks for it
    if task.base not in _STATISTICS:
        _STATISTICS[task.base] = class_statistics(task.base)
    statistics = _STATISTICS[task.base]
    refuse_negative(task.support, "support")
    refuse_negative(task.query, "query")
    xp = array_namespace(task.query)
    if is_torch_array(task.query) and _alike(task, statistics, samples):
        from sinkshot.kernels.calibrated_torch import probabilities, training_of

        rows, asked = (xp.astype(part, xp.float64) ** beta for part in (task.support, task.query))
        count = samples // (task.supports // task.way)
        training = training_of(rows, task.labels, task.way, statistics, neighbours, alpha, count, seed)
        return Scores(xp.astype(probabilities(training, asked), task.query.dtype))
    support, labels, query = (to_numpy(a) for a in (task.support, task.labels, task.query))
    support, query = support.astype(np.float64) ** beta, query.astype(np.float64) ** beta
    answers = []
    for rows, classes, asked in zip(support, labels, query, strict=True):
        x, y = augmented(rows, classes, statistics, neighbours, alpha, samples, np.random.default_rng(seed))
        answers.append(_logistic_regression(x, y, asked))
    return Scores(xp.asarray(np.stack(answers), dtype=task.query.dtype, device=device(task.query)))


def _alike(task: Task, statistics: Statistics, samples: int) -> bool:
    """Whether all episodes have equal shots and all base classes factors of one size, so that they share the draws."""
    labels = to_numpy(task.labels)
    counts = (labels[..., None] == np.arange(task.way)).sum(axis=1)  # [R, way]
    sizes = {len(factor) for factor in statistics[1]}
    several = task.way > 2  # two classes are another problem to scikit-learn
    return several and samples > 0 and len(np.unique(counts)) == 1 and len(sizes) == 1


def augmented(
    support: Floats,
    labels: NDArray[Any],
    statistics: Statistics,
    neighbours: int,
    alpha: float,
    samples: int,
    rng: np.random.Generator,
) -> tuple[Floats, NDArray[Any]]:
    """Return the supports [l, d] of one episode and the samples of each, and their labels."""
    x, y = [support], [labels]
    for row, label in zip(support, labels, strict=True):
        count = samples // int((labels == label).sum())
        mean, factor = calibrated(row, statistics, neighbours, alpha)
        x.append(mean + rng.standard_normal((count, len(factor))) @ factor)
        y.append(np.full(count, label, dtype=labels.dtype))
    return np.concatenate(x), np.concatenate(y)


def calibrated(row: Floats, statistics: Statistics, neighbours: int, alpha: float) -> tuple[Floats, Floats]:
    """Return the calibrated mean [d] of a support, and F [., d] with F^T F its covariance."""
    means, factors = statistics
    nearest = np.argsort(np.linalg.norm(means - row, axis=1), kind="stable")[:neighbours]
    mean = (means[nearest].sum(axis=0) + row) / (len(nearest) + 1)
    shift = np.full((1, len(row)), alpha**0.5)
    return mean, np.concatenate([factors[c] / len(nearest) ** 0.5 for c in nearest] + [shift])


def class_statistics(base: FeatureBank) -> Statistics:
    """Return mean and a factor of the covariance (ddof 1) of each base class."""
    means, factors = [], []
    for label in range(base.classes):
        rows = base.features[base.labels == label].astype(np.float64)
        means.append(rows.mean(axis=0))
        centred = (rows - means[-1]) / max(1, len(rows) - 1) ** 0.5
        factors.append(np.asarray(np.linalg.qr(centred, mode="r")) if len(rows) > base.width else centred)
    return np.stack(means), factors


def _logistic_regression(x: Floats, y: NDArray[Any], query: Floats) -> Floats:
    """Return the probabilities [q, way] of the queries."""
    with _IMPORTING:  # threads that import one package at the same time may see half-initialised modules
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(LogisticRegression(max_iter=1000).fit(x, y).predict_proba(query))
