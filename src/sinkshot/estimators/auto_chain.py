"""Choose the preprocessing chain by looking at the features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.methods import Method

WHITENED = ("sinkshot",)
"""Methods whose chain goes on with "WE" for non-negative features, where there are no base features.

Chosen on validation classes, 20 draws with strangers: accuracy +4.9 on birds by EfficientNet-Lite0 (15 classes), +0.8
on CIFAR-FS by our WRN-28-10 (10 classes), +0.9 and +0.4 with 48, 24, 12, 6 and 3 unlabelled rows. Shrinkages of 3 and
30 were not better on both. Sentence vectors, which are signed, lose 0.1.
"""
LEAST_SHOTS = 3  # labels per class from which W helps; with one, accuracy on CIFAR-FS (10 classes) falls by 1.6
LEAST_SKEWNESS = 1.0
"""Skewness from which non-negative features go through P, which is for features such as those after a ReLU.

Features of our networks have 2.3 to 3.6, those of EfficientNet-Lite0 on birds 2.2, pixels 0.1 (scikit-learn's digits)
to 1.1 (MNIST), coordinates of a pen 0.1: docs/spread-labels-choice.md.
"""
_ROWS_READ = 2_000
_LEAST_ROWS = 50  # of which a skewness is known: of n rows it cannot be above (n - 2) / sqrt(n - 1)
SIGNED_POWER = False  # whether signed features go through Ps; chosen on validation features, see `auto_chain`


def auto_chain(method: Method, features: NDArray[Any], has_base: bool, shots: float = 0.0) -> str:
    """Return the method's own chain, adapted to the features.

    The power step P is for non-negative, skewed features, such as those after a ReLU. It is left out for signed
    features, such as sentence vectors, and for features that are not skewed, such as pixels. For `sinkshot` without
    base features, features after P are then whitened with shrinkage (W) and brought to unit length, which makes up for
    networks that were not trained for few-shot classification.

    Parameters
    ----------
    method : Method
    features : array of shape (n, d)
    has_base : bool
        Whether features of base classes are available for the step Mb.
    shots : float, optional
        Labels per class, where known; W needs a few.
    """
    spelled = method.preprocess if has_base else method.without_base
    steps = preprocess.parse(spelled)
    if preprocess.needs_base(steps) and not has_base:
        steps = tuple(step for step in steps if step.name != "Mb")
    if features.size and float(features.min()) < 0:
        signed = (preprocess.Step("Ps", step.beta) if step.name == "P" else step for step in steps)
        steps = tuple(step for step in signed if SIGNED_POWER or step.name != "Ps")
    elif mean_skewness(features) < LEAST_SKEWNESS:
        steps = tuple(step for step in steps if step.name != "P")
    if method.name in WHITENED and shots >= LEAST_SHOTS and not has_base and any(step.name == "P" for step in steps):
        steps = (*steps, *preprocess.parse("WE"))
    return preprocess.spell(steps)


def rows_looked_at(count: int) -> NDArray[np.int64]:
    """Return the numbers of at most 2,000 evenly spaced rows, which tell the skewness of a pool of `count` rows."""
    return np.unique(np.linspace(0, count - 1, min(count, _ROWS_READ)).astype(np.int64))


def mean_skewness(features: NDArray[Any]) -> float:
    """Return the mean skewness of the columns, weighted by their variances; infinite if it is not known.

    Parameters
    ----------
    features : array of shape (n, d)
        `rows_looked_at` of it are read.
    """
    if len(features) < _LEAST_ROWS:
        return float("inf")
    some = features[rows_looked_at(len(features))].astype(np.float64)
    with np.errstate(all="ignore"):  # rows that are not finite are refused elsewhere
        centred = some / np.abs(some).max(initial=0.0)
        centred -= centred.mean(axis=0)
        variances = np.mean(centred**2, axis=0)
        vary = variances > 0
        found = np.sum(np.mean(centred[:, vary] ** 3, axis=0) / np.sqrt(variances[vary])) / np.sum(variances)
    return float(found) if np.isfinite(found) else float("inf")
