"""Products of coefficients with the Gram matrix of an episode, as `kernels.gram_numba` lays it out, compiled.

Coefficients and products are class-major, [way, rows], zero from the last row to the next multiple of eight.
"""

import numpy as np

from sinkshot.kernels.simd import ONE, Floats, each, load, part, store, total, zeros


@part
def _four_columns(panels: Floats, at: int, n: int, a: Floats, j: int, out: Floats, i: int) -> None:
    """out[j:j+4, i:i+16] = a[j:j+4] @ one panel of G: eight sums in eight registers."""
    s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = zeros()
    for k in range(n):
        g0, g1 = load(panels, at + k, 0), load(panels, at + k, 8)
        a0, a1, a2, a3 = each(a, j, k), each(a, j + 1, k), each(a, j + 2, k), each(a, j + 3, k)
        s00, s01, s10, s11 = s00 + a0 * g0, s01 + a0 * g1, s10 + a1 * g0, s11 + a1 * g1
        s20, s21, s30, s31 = s20 + a2 * g0, s21 + a2 * g1, s30 + a3 * g0, s31 + a3 * g1
    for r, low, high in ((0, s00, s01), (1, s10, s11), (2, s20, s21), (3, s30, s31)):
        store(out, j + r, i, low)
        store(out, j + r, i + 8, high)


@part
def _one_column(panels: Floats, at: int, n: int, a: Floats, j: int, out: Floats, i: int) -> None:
    """out[j, i:i+16] = a[j] @ one panel of G, four rows at a time (beyond n they hold zeros)."""
    s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = zeros()
    for k in range(0, n, 4):
        a0, a1, a2, a3 = each(a, j, k), each(a, j, k + 1), each(a, j, k + 2), each(a, j, k + 3)
        s00, s01 = s00 + a0 * load(panels, at + k, 0), s01 + a0 * load(panels, at + k, 8)
        s10, s11 = s10 + a1 * load(panels, at + k + 1, 0), s11 + a1 * load(panels, at + k + 1, 8)
        s20, s21 = s20 + a2 * load(panels, at + k + 2, 0), s21 + a2 * load(panels, at + k + 2, 8)
        s30, s31 = s30 + a3 * load(panels, at + k + 3, 0), s31 + a3 * load(panels, at + k + 3, 8)
    store(out, j, i, (s00 + s10) + (s20 + s30))
    store(out, j, i + 8, (s01 + s11) + (s21 + s31))


@part
def times_gram(panels: Floats, n: int, a: Floats, columns: int, out: Floats) -> None:
    """out[:columns] = a[:columns] @ G."""
    count, fours = (n + 15) // 16, columns // 4 * 4
    depth = len(panels) // count
    for p in range(count):
        for j in range(0, fours, 4):
            _four_columns(panels, p * depth, n, a, j, out, 16 * p)
        for j in range(fours, columns):
            _one_column(panels, p * depth, n, a, j, out, 16 * p)


@part
def centroid_scores(panels: Floats, assignment: Floats, n: int, scores: Floats) -> None:
    """S = G P / |X^T P|: the scores of unit-length centroids."""
    times_gram(panels, n, assignment, len(scores), scores)
    for j in range(len(scores)):
        square = zeros()
        for i in range(0, n, 8):
            square += load(assignment, j, i) * load(scores, j, i)
        scale = ONE / np.sqrt(max(total(square), np.float32(1e-24)))
        for i in range(0, n, 8):
            store(scores, j, i, load(scores, j, i) * scale)
