"""Statistics of feature matrices, used by several reports and commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.floating[Any]]
_CACHED = 1 << 15  # entries of a block that stay in a processor's cache


def skewness(x: Float) -> Float:
    """Third standardised moment of each column of x [n, d]; zero where a column is constant."""
    varies = x.min(axis=0) < x.max(axis=0)
    z = (x - x.mean(axis=0)) / np.where(varies, x.std(axis=0), 1.0)
    return np.where(varies, (z**3).mean(axis=0), 0.0)


def skewness_by_blocks(x: Float, function: Callable[[Float], Float] | None = None) -> tuple[Float, NDArray[np.bool_]]:
    """Skewness of each column of function(x) for x [n, d] of any length, and which columns are not constant.

    One pass: moments about the mean of the first rows, which become those about the mean of all.
    """
    step = max(1, _CACHED // x.shape[1])
    sums, about = np.zeros((3, x.shape[1])), None
    low, high = np.full(x.shape[1], np.inf), np.full(x.shape[1], -np.inf)
    for begin in range(0, len(x), step):
        part: Float = x[begin : begin + step].astype(np.float64)
        part = part if function is None else function(part)
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        about = part.mean(axis=0) if about is None else about
        part -= about
        square = part * part
        sums += np.stack([part.sum(axis=0), square.sum(axis=0), np.einsum("nd,nd->d", square, part)])
    shift, second, third = sums / len(x)
    variance = second - shift**2
    varies = (low < high) & (variance > 0)
    third = third - 3 * shift * second + 2 * shift**3
    return np.where(varies, third / np.where(varies, variance, 1.0) ** 1.5, 0.0), varies


def principal_components(x: Float, components: int) -> tuple[Float, Float]:
    """First principal components of rows x [n, d]: points [n, components], and their fractions of the variance.

    If the rows span fewer dimensions, the remaining coordinates are zero.
    """
    from scipy.linalg import eigh

    x = x - x.mean(axis=0)
    wide = x.shape[1] > x.shape[0]
    square = x @ x.T if wide else x.T @ x
    kept = min(components, len(square))
    variance, vectors = eigh(square, subset_by_index=[len(square) - kept, len(square) - 1])
    variance, vectors = np.clip(variance[::-1], 0.0, None), vectors[:, ::-1]
    points = np.zeros((len(x), components))
    points[:, :kept] = vectors * np.sqrt(variance) if wide else x @ vectors
    furthest = points[np.abs(points).argmax(axis=0), np.arange(components)]
    shares = np.zeros(components)
    shares[:kept] = variance / max(float(np.trace(square)), 1e-30)
    return points * np.where(furthest < 0, -1, 1), shares
