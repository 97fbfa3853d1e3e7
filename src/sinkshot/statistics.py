"""Statistics of feature matrices, used by several reports and commands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.floating[Any]]


def skewness(x: Float) -> Float:
    """Third standardised moment of each column of x [n, d]; zero where a column is constant."""
    varies = x.min(axis=0) < x.max(axis=0)
    z = (x - x.mean(axis=0)) / np.where(varies, x.std(axis=0), 1.0)
    return np.where(varies, (z**3).mean(axis=0), 0.0)


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
