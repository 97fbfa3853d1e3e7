"""Label rows that come after `fit` with one prototype per class, computed from the labelled pool.

A transductive method labels only its pool. The head keeps the mean of each class over the pool, with rows weighted by
their class probabilities, after subtracting the mean of the class means. Its logits are `scale` times the cosines plus
the log of the class shares; `scale` is chosen so that the head is as confident as the method was on the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Floats = NDArray[np.floating[Any]]
SCALES = (1.0, 200.0)  # search range of the scale
DEFAULT_SCALE = 10.0  # if no row is informative
_MOST_ROWS = 20_000  # rows of a pool used to choose the scale
_BLOCK = 4_096  # rows whose squares are held at once


@dataclass(frozen=True)
class PrototypeHead:
    """Prototypes after centring, and the scale of their logits."""

    centre: Floats  # [d]
    prototypes: Floats  # [way, d], of unit length
    scale: float
    shares: Floats  # [way], of the classes

    def cosines(self, rows: Floats) -> Floats:
        """Return the cosines [n, way] of rows [n, d] to the prototypes."""
        return np.asarray(seen_from(self.centre, rows) @ self.prototypes.T)

    def probabilities(self, rows: Floats) -> Floats:
        """Return the class probabilities [n, way] of rows [n, d], independent of the other rows."""
        return _softmax(self.scale * self.cosines(rows) + np.log(self.shares))


@dataclass(frozen=True)
class FittedHead:
    """A head, its training rows as it sees them, and their cosines, each to prototypes computed without that row."""

    head: PrototypeHead
    rows: Floats  # [n, d], from the centre, of unit length
    left_out: Floats  # [n, way]

    def probabilities(self) -> Floats:
        """Return the class probabilities [n, way] of these rows, each by prototypes computed without that row."""
        return _softmax(self.head.scale * self.left_out + np.log(self.head.shares))


def fit_head(rows: Floats, membership: Floats, target: Floats) -> FittedHead:
    """Fit a head to rows [n, d].

    Parameters
    ----------
    rows : array of shape (n, d)
    membership : array of shape (n, way)
        Weight of each row in each class; every class has a positive sum.
    target : array of shape (n, way)
        Probabilities of each row that the head should approximate.
    """
    sizes = membership.sum(axis=0)  # [way]
    centre = ((membership.T @ rows) / sizes[:, None]).mean(axis=0)
    if len(sizes) == 1:
        centre = np.zeros_like(centre)  # centring would make a single class zero
    z = seen_from(centre, rows)
    sums = membership.T @ z  # [way, d]
    head = PrototypeHead(centre, unit_length(sums), DEFAULT_SCALE, _shares(sizes).astype(rows.dtype))
    left_out, usable = _leave_one_out(z, sums, membership)
    chosen = np.flatnonzero(usable)[:: max(1, int(usable.sum()) // _MOST_ROWS)]
    if len(chosen) and len(sizes) > 1:
        scale = _scale(left_out[chosen], target[chosen], np.log(head.shares))
        head = PrototypeHead(centre, head.prototypes, scale, head.shares)
    return FittedHead(head, z, left_out)


def _shares(sizes: Floats) -> Floats:
    """Class shares with one additional row per class, so that an absent class stays possible."""
    return np.asarray((sizes + 1) / (sizes.sum() + len(sizes)))


def _leave_one_out(z: Floats, sums: Floats, membership: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Cosines [n, way] of each row to class sums without it, and whether each class still has rows."""
    inner = z @ sums.T  # [n, way]
    blocks = (z[at : at + _BLOCK] for at in range(0, len(z), _BLOCK))  # squares of all entries would be a copy of them
    own = np.concatenate([np.sum(some * some, axis=1, keepdims=True) for some in blocks])  # one, or zero
    squares = np.sum(sums * sums, axis=1) - 2 * membership * inner + membership**2 * own
    least = 1e-6 * np.maximum(np.sum(sums * sums, axis=1), 1e-30)
    alone = squares <= least
    cosines = np.where(alone, 0.0, (inner - membership * own) / np.sqrt(np.where(alone, 1.0, squares)))
    return np.clip(cosines, -1, 1).astype(z.dtype), ~(alone & (membership > 0.5)).any(axis=1)


def _scale(cosines: Floats, target: Floats, log_shares: Floats) -> float:
    """The scale of the cosines that minimises the head's cross-entropy to the target."""

    def cross_entropy(log_scale: float) -> float:
        logits = np.exp(log_scale) * cosines + log_shares
        logits = logits - logits.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - np.sum(target * logits, axis=1)))

    bounds = (float(np.log(SCALES[0])), float(np.log(SCALES[1])))
    return float(np.exp(minimize_scalar(cross_entropy, bounds=bounds, method="bounded").x))


def seen_from(centre: Floats, rows: Floats) -> Floats:
    """Return rows less a centre, of unit length; a zero row stays zero. One copy of the rows is made."""
    seen = np.asarray(rows - centre)
    length = np.sqrt(np.vecdot(seen, seen))[..., None]  # a norm would hold squares of all entries
    seen /= np.where(length > 0, length, 1)
    return seen


def unit_length(rows: Floats) -> Floats:
    """Return rows of unit length; a zero row stays zero."""
    return seen_from(np.zeros((), rows.dtype), rows)


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
