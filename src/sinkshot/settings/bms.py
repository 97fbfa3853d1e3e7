"""Hyper-parameters of BMS, and the class sizes that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from sinkshot.arrays import Array, one_hot


@dataclass(frozen=True)
class BMSSettings:
    """The hyper-parameters of BMS for one size of task, checked and fully resolved."""

    lam: float
    epochs: int
    steps: int
    passes: int
    lr: float
    momentum: float
    kappa: float
    prior: np.ndarray[Any, Any] | None  # class proportions, [way] or [R, way]
    variant: str


def first_min_size(settings: BMSSettings, shots: Array, queries: int, way: int) -> Array:
    """Return the initial minimum size, the smallest shot, [R, 1, 1] for shots [R, way, 1]."""
    xp = array_namespace(shots)
    smallest = xp.min(shots, axis=-2, keepdims=True)  # [R, 1, 1]
    return xp.clip(smallest, max=float(max(1, queries // way))) if settings.variant == "robust" else smallest


def column_target(settings: BMSSettings, shots: Array, queries: int) -> Array | None:
    """Return the column sums for a prior, [R or 1, way, 1]; None without a prior."""
    if settings.prior is None:
        return None
    xp = array_namespace(shots)
    share = queries * xp.asarray(settings.prior[..., None], dtype=shots.dtype, device=device(shots))
    return share + shots if settings.variant == "letter" else share


def min_size_of(assignment: Array, queries: int, variant: str) -> Array:
    """Return the size of the smallest class by the labels of an allocation (Eq. 15), [R, 1, 1]."""
    xp = array_namespace(assignment)
    way, rows = assignment.shape[-2:]
    counted = assignment[..., rows - queries :] if variant == "robust" else assignment
    label = xp.argmax(counted, axis=-2)  # [R, n]
    sizes = xp.sum(one_hot(label, way, assignment), axis=-1, keepdims=True)
    smallest = xp.min(sizes, axis=-2, keepdims=True)
    return xp.clip(smallest, min=1.0) if variant == "robust" else smallest
