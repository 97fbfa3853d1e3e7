"""Gram matrices of episodes, from a bank and row numbers, without copying all features of an episode.

Row-wise steps of a chain are applied to the bank once, beforehand. The other steps, subtracting the mean of the task
(Mn) and unit length (E), act on the Gram matrix: it is centred on both sides, and entry ij is divided by
sqrt(g_ii g_jj).
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.simd import ONE, TWO, WIDTH, ZERO, Floats, Ints, load, part, prefetch, store, total, zeros

MEAN, SCALE = 0, 1  # rows of `Scratch.rows`


class Scratch(NamedTuple):
    """Work arrays for the Gram matrix of n rows, n8 with padding."""

    x: Floats  # [n + 8, chunk + 8] a slice of the gathered rows
    gram: Floats  # [n + 8, n8 + 16]
    panels: Floats  # [count * depth, 16] the final G in panels of 16 columns: row k of panel p is row p * depth + k
    rows: Floats  # [2, n8 + 8] mean and scale of each row


def scratch(n: int, width: int) -> Scratch:
    """Allocate for episodes of n rows."""
    n8, depth = -(-n // 8) * 8, -(-n // 4) * 4
    chunk = min(width, 640, max(64, 65536 // n // 8 * 8))  # 256 KiB of rows: half the second cache of a core
    shapes = [(n + 8, chunk + 8), (n + 8, n8 + 16), (-(-n // 16) * depth, 16), (2, n8 + 8)]
    return Scratch(*(np.zeros(shape, np.float32) for shape in shapes))


def padded(features: Floats) -> Floats:
    """Return features whose width is a multiple of the vector's."""
    features = np.ascontiguousarray(features, np.float32)
    return np.pad(features, ((0, 0), (0, -features.shape[1] % WIDTH))) if features.shape[1] % WIDTH else features


@part
def _gram_tile(x: Floats, i: int, j: int, width: int, gram: Floats) -> None:
    """Add to gram[i:i+4, j:j+3] the products of four rows with three: twelve sums in twelve registers."""
    s00 = s01 = s02 = s10 = s11 = s12 = s20 = s21 = s22 = s30 = s31 = s32 = zeros()
    for k in range(0, width, 8):
        b0, b1, b2 = load(x, j, k), load(x, j + 1, k), load(x, j + 2, k)
        a = load(x, i, k)
        s00, s01, s02 = s00 + a * b0, s01 + a * b1, s02 + a * b2
        a = load(x, i + 1, k)
        s10, s11, s12 = s10 + a * b0, s11 + a * b1, s12 + a * b2
        a = load(x, i + 2, k)
        s20, s21, s22 = s20 + a * b0, s21 + a * b1, s22 + a * b2
        a = load(x, i + 3, k)
        s30, s31, s32 = s30 + a * b0, s31 + a * b1, s32 + a * b2
    for r, a, b, c in ((0, s00, s01, s02), (1, s10, s11, s12), (2, s20, s21, s22), (3, s30, s31, s32)):
        gram[i + r, j] += total(a)
        gram[i + r, j + 1] += total(b)
        gram[i + r, j + 2] += total(c)


@part
def gram_matrix(features: Floats, rows: Ints, following: Ints, centre: bool, x: Floats, gram: Floats) -> None:
    """G = X X^T slice by slice, the lower triangle mirrored; while one slice is multiplied the next one is fetched.

    Before centring, the first row is subtracted from all: the centred G is the same, and a large common offset does no
    harm.
    """
    n, width, chunk = len(rows), features.shape[1], x.shape[1] - 8
    shift = ONE if centre else ZERO
    for i in range(n):
        for j in range(0, n, 8):
            store(gram, i, j, ZERO)
    for first in range(0, width, chunk):
        last = min(first + chunk, width)
        for i in range(n):
            for k in range(first, last, 8):
                store(x, i, k - first, load(features, rows[i], k) - shift * load(features, rows[0], k))
        ahead, start = (rows, last) if last < width else (following, 0)
        stop = min(start + chunk, width)
        quota = 1 + 2 * (stop - start) // (n + 12)  # cache lines to prefetch per tile, so that all arrive in time
        r, k = 0, start
        for i in range(0, n, 4):
            for j in range(0, i + 4, 3):
                for _ in range(quota):
                    if r < n:
                        prefetch(features, ahead[r], k)
                        r, k = (r, k + 16) if k + 16 < stop else (r + 1, start)
                _gram_tile(x, i, j, last - first, gram)
    for i in range(n):
        for j in range(i):
            gram[j, i] = gram[i, j]


@part
def centre_and_normalise(gram: Floats, n: int, centre: bool, normalise: bool, rows: Floats, panels: Floats) -> None:
    """Subtract the task mean on both sides of G, divide by sqrt(g_ii g_jj), and store the result in panels."""
    grand = ZERO  # mean of all G
    for i in range(n):
        mean = ZERO
        if centre:
            s = zeros()
            for j in range(0, n, 8):
                s += load(gram, i, j)
            mean = total(s) / np.float32(n)
        rows[MEAN, i] = mean
        grand += mean / np.float32(n)
    lay_out(gram, n, grand, normalise, rows, panels)


@part
def centre_by_classes(space: Scratch, labels: Ints, shots: Floats, normalise: bool) -> None:
    """As above with the centre of Mc (`preprocess.class_centre`) instead; shots [way]; supports stand last."""
    gram, rows, n, way = space.gram, space.rows, len(space.gram) - 8, np.float32(len(shots))
    everywhere = ZERO
    for j in range(len(shots)):
        everywhere += ONE / (shots[j] + ONE) / way
    for i in range(n):
        rows[SCALE, i] = everywhere / np.float32(n)
    for i in range(len(labels)):
        rows[SCALE, n - len(labels) + i] += ONE / (shots[labels[i]] + ONE) / way
    square = ZERO  # of the centre's length
    for i in range(n):
        s = ZERO
        for j in range(n):
            s += gram[j, i] * rows[SCALE, j]
        rows[MEAN, i] = s
        square += s * rows[SCALE, i]
    lay_out(gram, n, square, normalise, rows, space.panels)


@part
def lay_out(gram: Floats, n: int, grand: float, normalise: bool, rows: Floats, panels: Floats) -> None:
    """Subtract a centre whose product with each row is rows[MEAN], and with itself `grand`; unit length; panels."""
    diagonal = ZERO  # mean of that of G
    for i in range(n):
        diagonal += gram[i, i] / np.float32(n)
    for i in range(n):
        square = gram[i, i] - TWO * rows[MEAN, i] + grand
        rows[SCALE, i] = ONE
        if normalise:  # a row that equals the mean up to rounding is a zero row, which stays zero
            rows[SCALE, i] = ONE / np.sqrt(square) if square > np.float32(3e-7) * diagonal else ZERO
    depth = len(panels) // ((n + 15) // 16)
    for i in range(0, n, 8):
        mean8, scale8 = load(rows, MEAN, i), load(rows, SCALE, i)
        for k in range(n):
            centred = load(gram, k, i) - mean8 + (grand - rows[MEAN, k])
            store(panels, i // 16 * depth + k, i % 16, centred * (scale8 * rows[SCALE, k]))


@engine
def _matrices(features: Floats, rows: Ints, centre: bool, normalise: bool, work: Scratch, out: Floats) -> None:
    """Gram matrices out [R, n, n] of the episodes with rows [R, n]."""
    episodes, n = rows.shape
    depth = len(work.panels) // ((n + 15) // 16)
    for r in range(episodes):
        gram_matrix(features, rows[r], rows[min(r + 1, episodes - 1)], centre, work.x, work.gram)
        centre_and_normalise(work.gram, n, centre, normalise, work.rows, work.panels)
        for i in range(n):
            for k in range(n):
                out[r, k, i] = work.panels[i // 16 * depth + k, i % 16]


def gram_matrices(features: Floats, rows: Ints, *, centre: bool, normalise: bool, threads: int | None = None) -> Floats:
    """Return the Gram matrices [R, N, N] of episodes after Mn (`centre`) and E (`normalise`); rows [R, N] as given."""
    out = np.empty((len(rows), rows.shape[1], rows.shape[1]), np.float32)
    rows = np.ascontiguousarray(rows, np.int32)

    def classify(batch: slice) -> None:
        work = scratch(rows.shape[1], features.shape[1])
        _matrices(features, rows[batch], centre, normalise, work, out[batch])

    in_batches(_matrices, len(rows), classify, threads)
    return out
