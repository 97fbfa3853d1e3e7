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


def binomial_probability(successes: Float, trials: Float, chance: Float) -> Float:
    """Probability of this number of successes in at least one independent trial, each succeeding with `chance`.

    The saddle-point form of Loader (2000) is exact up to rounding for any number of trials. `scipy.stats.binom` gives
    the same numbers, but importing it takes longer than a small evaluation.
    """
    k, n, p = (np.asarray(a, dtype=np.float64) for a in (successes, trials, chance))
    inside = (k > 0) & (k < n) & (p > 0) & (p < 1)
    a, m, q = np.where(inside, k, 1.0), np.where(inside, n, 2.0), np.where(inside, p, 0.5)
    b = m - a
    exponent = (
        _stirling_error(m) - _stirling_error(a) - _stirling_error(b) - _deviance(a, m * q) - _deviance(b, m * (1 - q))
    )
    middle = np.exp(exponent) * np.sqrt(m / (2 * np.pi * a * b))
    ends = np.where(k == 0, (1 - p) ** n, np.where(k == n, p**n, 0.0))
    return np.where(inside, middle, np.where((k > 0) & (k < n), 0.0, ends))


def _stirling_error(n: Float) -> Float:
    """log(n!) minus Stirling's formula, for n >= 1."""
    from scipy.special import gammaln

    series = 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)
    direct = gammaln(n + 1) - (n + 0.5) * np.log(n) + n - 0.5 * np.log(2 * np.pi)
    return np.where(n < 16, direct, series)


def _deviance(x: Float, mean: Float) -> Float:
    """x log(x / mean) + mean - x, without cancellation."""
    apart = (x - mean) / mean
    return np.asarray(mean * ((1 + apart) * np.log1p(apart) - apart))


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
