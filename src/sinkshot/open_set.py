"""How well a score tells queries of unknown classes from the others: AUROC, AUPR and FPR at 95 % TPR, per episode.

Unknown queries are the positives, and a higher score means more unknown. Each measure is taken within an episode and
averaged afterwards: scores of different episodes are never compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError

Floats = NDArray[np.float64]


def auroc(unknown: Any, strange: Any) -> Floats:
    """Area under the ROC curve: the chance that an unknown query scores above a known one, ties counting half.

    Parameters
    ----------
    unknown : array [..., q]
        Scores of the queries.
    strange : array [..., q] of bool
        Which queries belong to unknown classes; each episode needs both kinds.

    Examples
    --------
    >>> float(auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.75
    """
    scores, positive = _checked(unknown, strange)
    order = np.argsort(scores, axis=-1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=-1)
    rank = _mean_rank(ranked)
    of_positive = np.where(np.take_along_axis(positive, order, axis=-1), rank, 0.0).sum(axis=-1)
    positives = positive.sum(axis=-1)
    pairs = positives * (positive.shape[-1] - positives)
    return np.asarray((of_positive - positives * (positives + 1) / 2) / pairs)


def aupr(unknown: Any, strange: Any) -> Floats:
    """Area under the precision-recall curve as average precision: sum over thresholds of precision x gain in recall.

    Parameters are those of `auroc`. Half unknown queries, as in our protocol, and a score without worth give 0.5.

    Examples
    --------
    >>> float(aupr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.8333333333333333
    """
    hits, alarms = _curve(unknown, strange)
    precision = hits / np.maximum(hits + alarms, 1)
    gain = np.diff(hits, axis=-1, prepend=0) / hits[..., -1:]
    return np.asarray((precision * gain).sum(axis=-1))


def fpr_at_tpr(unknown: Any, strange: Any, tpr: float = 0.95) -> Floats:
    """Share of known queries rejected at the highest threshold that rejects a share `tpr` of the unknown ones.

    Parameters are those of `auroc`; lower is better.

    Examples
    --------
    >>> float(fpr_at_tpr([0.1, 0.4, 0.35, 0.8], [False, False, True, True]))
    0.5
    """
    hits, alarms = _curve(unknown, strange)
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


def _mean_rank(ranked: Floats) -> Floats:
    """Ranks from 1 of rising scores, equal scores sharing the mean of theirs."""
    size = ranked.shape[-1]
    first = np.concatenate([np.ones_like(ranked[..., :1], dtype=bool), np.diff(ranked, axis=-1) > 0], axis=-1)
    last = np.concatenate([first[..., 1:], np.ones_like(first[..., :1])], axis=-1)
    at = np.arange(size)
    lowest = np.maximum.accumulate(np.where(first, at, 0), axis=-1)
    highest = np.flip(np.minimum.accumulate(np.flip(np.where(last, at, size), axis=-1), axis=-1), axis=-1)
    return np.asarray((lowest + highest) / 2 + 1)


def _curve(unknown: Any, strange: Any) -> tuple[Floats, Floats]:
    """Unknown and known queries at or above each score, from the highest score down [..., q].

    Within a group of equal scores all places hold the numbers of its end: a threshold cannot part them.
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
