"""Shrunken whitening, the steps W and Wb of a chain: directions in which rows differ much are shortened."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from sinkshot.arrays import Array


def whitened(x: Array, shrinkage: float) -> Array:
    """Multiply rows [..., N, d] by (S + a I)^(-1/2), S their covariance and a the shrinkage times its mean eigenvalue.

    The mean is over min(N - 1, d) eigenvalues, all that can differ from zero. Rows that are all equal stay as they are.
    """
    xp = array_namespace(x)
    rows, width = x.shape[-2:]
    if rows > width:
        return x @ whitening(x, shrinkage)
    centred = x - xp.mean(x, axis=-2, keepdims=True)
    turned = xp.matrix_transpose(centred)
    values, vectors = xp.linalg.eigh(centred @ turned / rows)  # of inner products of rows, which are fewer
    some = values > 1e-6 * values[..., -1:]
    length = xp.sqrt(rows * xp.where(some, values, xp.ones_like(values)))
    directions = turned @ (vectors * xp.where(some, 1.0 / length, xp.zeros_like(length))[..., None, :])
    return x + ((x @ directions) * _shorter(values, centred, shrinkage)) @ xp.matrix_transpose(directions)


def whitening(x: Array, shrinkage: float) -> Array:
    """Return the matrix [..., d, d] that `whitened` multiplies rows [..., N, d] by, where there are more than d."""
    xp = array_namespace(x)
    centred = x - xp.mean(x, axis=-2, keepdims=True)
    values, directions = xp.linalg.eigh(xp.matrix_transpose(centred) @ centred / x.shape[-2])
    turned = xp.matrix_transpose(directions)
    plain = xp.eye(x.shape[-1], dtype=x.dtype, device=device(x))
    return (directions * _shorter(values, centred, shrinkage)) @ turned + plain


def within_classes(x: NDArray[Any], labels: NDArray[np.integer[Any]], shrinkage: float) -> NDArray[np.float32]:
    """Return the matrix [d, d] of `whitening` for rows [N, d] less the mean of their class, labels [N]."""
    classes, codes = np.unique(labels, return_inverse=True)
    rows = np.asarray(x, dtype=np.float64)
    sums = np.zeros((len(classes), rows.shape[1]))
    np.add.at(sums, codes, rows)
    within = rows - (sums / np.bincount(codes)[:, None])[codes]
    return np.asarray(whitening(within, shrinkage), dtype=np.float32)


def _shorter(values: Array, centred: Array, shrinkage: float) -> Array:
    """Return what is added to one as the factor of each direction [..., 1, k], from its eigenvalue [..., k].

    The plain row stands beside it, so that the length is kept where the covariance is zero.
    """
    xp = array_namespace(values)
    rows, width = centred.shape[-2:]
    total = xp.sum(centred * centred, axis=(-2, -1)) / rows  # [...]
    level = shrinkage * total / max(1, min(rows - 1, width))
    level = xp.where(level > 0, level, xp.ones_like(level))[..., None, None]
    values = xp.where(values > 0, values, xp.zeros_like(values))[..., None, :]
    return xp.sqrt(level / (values + level)) - 1.0
