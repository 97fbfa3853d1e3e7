"""Matrix products of five classes with the rows of an episode, ten sums in ten registers at a time."""

from typing import Any

from sinkshot.kernels.simd import Floats, each, load, part, total, zeros

Sums = Any  # five pairs of vectors of eight float32: exist in compiled code only


@part
def products(x: Floats, weights: Floats, first: int, last: int, out: Floats) -> None:
    """out[:, first:last] = weights @ x[first:last].T, five classes by two rows in ten registers."""
    for i in range(first, last, 2):
        for k in range(0, len(weights), 5):
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = s40 = s41 = zeros()
            for j in range(0, weights.shape[1], 8):
                x0, x1 = load(x, i, j), load(x, i + 1, j)
                w = load(weights, k, j)
                s00, s01 = s00 + w * x0, s01 + w * x1
                w = load(weights, k + 1, j)
                s10, s11 = s10 + w * x0, s11 + w * x1
                w = load(weights, k + 2, j)
                s20, s21 = s20 + w * x0, s21 + w * x1
                w = load(weights, k + 3, j)
                s30, s31 = s30 + w * x0, s31 + w * x1
                w = load(weights, k + 4, j)
                s40, s41 = s40 + w * x0, s41 + w * x1
            for r, a, b in ((0, s00, s01), (1, s10, s11), (2, s20, s21), (3, s30, s31), (4, s40, s41)):
                out[k + r, i], out[k + r, i + 1] = total(a), total(b)


@part
def no_sums() -> Sums:
    """Five pairs of zeros."""
    s = zeros()
    return (s, s), (s, s), (s, s), (s, s), (s, s)


@part
def add_weighted_rows(x: Floats, weights: Floats, k: int, j: int, begin: int, end: int, sums: Sums) -> Sums:
    """Add weights[k:k+5, begin:end] @ x[begin:end, j:j+16] to sums."""
    (s00, s01), (s10, s11), (s20, s21), (s30, s31), (s40, s41) = sums
    for i in range(begin, end):
        x0, x1 = load(x, i, j), load(x, i, j + 8)
        a = each(weights, k, i)
        s00, s01 = s00 + a * x0, s01 + a * x1
        a = each(weights, k + 1, i)
        s10, s11 = s10 + a * x0, s11 + a * x1
        a = each(weights, k + 2, i)
        s20, s21 = s20 + a * x0, s21 + a * x1
        a = each(weights, k + 3, i)
        s30, s31 = s30 + a * x0, s31 + a * x1
        a = each(weights, k + 4, i)
        s40, s41 = s40 + a * x0, s41 + a * x1
    return (s00, s01), (s10, s11), (s20, s21), (s30, s31), (s40, s41)
