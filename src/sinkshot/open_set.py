"""How well a score separates queries of unknown classes from known ones: AUROC, AUPR and FPR at 95 % TPR, per episode.

Unknown queries are the positives, and a higher score means more unknown. Each metric is computed within an episode and
then averaged: scores of different episodes are never compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError, number

Floats = NDArray[np.float64]
OPEN_SET = ("auroc", "aupr", "fpr95")
"""Metrics that the protocol `open-set` adds."""


def auroc(unknown: Any, strange: Any) -> Floats:
    """Area under the ROC curve: the probability that an unknown query scores above a known one; ties count half.

    Parameters
    ----------
    unknown : array of shape (..., q)
        Scores of the queries.
    strange : array of bool of shape (..., q)
        Which queries belong to unknown classes; each episode needs both kinds.

    Returns
    -------
    array of shape (...)
        The area of each episode.

    See Also
    --------
    aupr : Area under the precision-recall curve.
    fpr_at_tpr : False positive rate at one threshold.

    Examples
    --------
    >>> float(auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.75
    """
    return _auroc(*_curve(unknown, strange))


def aupr(unknown: Any, strange: Any) -> Floats:
    """Area under the precision-recall curve as average precision: sum over thresholds of precision x gain in recall.

    With half of the queries unknown, as under the protocol `open-set`, a useless score gives 0.5.

    Parameters
    ----------
    unknown, strange : array of shape (..., q)
        As in `auroc`.

    Returns
    -------
    array of shape (...)
        The area of each episode.

    See Also
    --------
    auroc : Area under the ROC curve.

    Examples
    --------
    >>> float(aupr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.8333333333333333
    """
    return _aupr(*_curve(unknown, strange))


def fpr_at_tpr(unknown: Any, strange: Any, tpr: float = 0.95) -> Floats:
    """Fraction of known queries rejected at the highest threshold that rejects a fraction `tpr` of the unknown ones.

    Parameters
    ----------
    unknown, strange : array of shape (..., q)
        As in `auroc`.
    tpr : float
        The fraction of unknown queries to reject.

    Returns
    -------
    array of shape (...)
        The fraction in each episode; lower is better.

    See Also
    --------
    auroc : A metric over all thresholds.

    Examples
    --------
    >>> float(fpr_at_tpr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.5
    """
    if not 0 < number("tpr", tpr) <= 1:
        raise InputError(f"tpr must be above 0 and at most 1, such as 0.95; {tpr:g} was given.")
    return _fpr_at_tpr(*_curve(unknown, strange), tpr)


def measures(unknown: Any, strange: Any) -> dict[str, Floats]:
    """All three by their names in results: auroc, aupr and fpr95. Parameters as in `auroc`."""
    curve = _curve(unknown, strange)
    return {"auroc": _auroc(*curve), "aupr": _aupr(*curve), "fpr95": _fpr_at_tpr(*curve, 0.95)}


def _auroc(hits: Floats, alarms: Floats) -> Floats:
    below = np.concatenate([np.zeros_like(hits[..., :1]), hits[..., :-1]], axis=-1)
    area = (np.diff(alarms, axis=-1, prepend=0) * (hits + below) / 2).sum(axis=-1)
    return np.asarray(area / (hits[..., -1] * alarms[..., -1]))


def _aupr(hits: Floats, alarms: Floats) -> Floats:
    precision = hits / (hits + alarms)
    gained = np.diff(hits, axis=-1, prepend=0)
    area = (precision * gained).sum(axis=-1) / hits[..., -1]
    return np.asarray(np.minimum(area, 1.0))  # a perfect score is exactly one


def _fpr_at_tpr(hits: Floats, alarms: Floats, tpr: float) -> Floats:
    enough = hits >= tpr * hits[..., -1:] - 1e-9
    first = enough.argmax(axis=-1)[..., None]
    return np.asarray((np.take_along_axis(alarms, first, axis=-1) / alarms[..., -1:])[..., 0])


def _checked(unknown: Any, strange: Any) -> tuple[Floats, NDArray[np.bool_]]:
    scores, positive = np.asarray(unknown, dtype=np.float64), np.asarray(strange, dtype=bool)
    if scores.shape != positive.shape or scores.ndim == 0:
        raise InputError(f"scores {scores.shape} and kinds {positive.shape} of the queries must have one shape.")
    if not np.isfinite(scores).all():
        raise InputError("scores of the queries must be finite numbers.")
    if not (positive.any(axis=-1) & ~positive.all(axis=-1)).all():
        raise InputError("every episode needs queries of known and of unknown classes.")
    return scores, positive


def _curve(unknown: Any, strange: Any) -> tuple[Floats, Floats]:
    """Numbers of unknown and known queries at or above each score, from the highest score down [..., q].

    Equal scores all get the numbers at the end of their group, since no threshold can separate them.
    """
    scores, positive = _checked(unknown, strange)
    order = np.argsort(-scores, axis=-1, kind="stable")
    falling = np.take_along_axis(scores, order, axis=-1)
    hit = np.take_along_axis(positive, order, axis=-1)
    last = np.concatenate([np.diff(falling, axis=-1) < 0, np.ones_like(hit[..., :1])], axis=-1)
    at = np.arange(scores.shape[-1])
    end = np.flip(np.minimum.accumulate(np.flip(np.where(last, at, len(at)), axis=-1), axis=-1), axis=-1)
    hits, alarms = np.cumsum(hit, axis=-1), np.cumsum(~hit, axis=-1)
    return (
        np.take_along_axis(hits, end, axis=-1).astype(np.float64),
        np.take_along_axis(alarms, end, axis=-1).astype(np.float64),
    )
