"""BMS and BMS* on the CPU, fused: from row numbers to probabilities in one compiled pass per episode.

The Gram form. With G = X X^T of one preprocessed episode every weight is w_j = X^T a_j, and only its scores G a_j are
ever needed: Sinkhorn reads scores, and logistic regression moves them by products of G with its residual. Once G is
known the width of the features is gone. Arrays are class-major, [way, rows], so that eight rows fill one vector
register; the rows of an episode stand queries first, then support, then padding up to a multiple of eight.

The code is compiled on first use (some seconds) and cached on disk. Every sum has one fixed order and no episode sees
another: results depend neither on the number of threads nor on how episodes are cut into batches.
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.gram_numba import Scratch, centre_and_normalise, gram_matrix, scratch
from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.simd import (
    INFINITE,
    LOG2_E,
    ONE,
    TINY,
    TWO,
    ZERO,
    Floats,
    Ints,
    each,
    exp2,
    load,
    part,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.settings.bms import BMSSettings


class _Settings(NamedTuple):
    """What is the same for every episode."""

    centre: bool
    normalise: bool
    lam: np.float32
    epochs: int
    steps: int
    passes: int
    lr: np.float32
    momentum: np.float32
    kappa: np.float32
    balanced: bool  # BMS*: column sums are given
    clamped: bool  # support rows are one-hot and stay out of Sinkhorn
    counts_support: bool  # the min size counts support rows by their label
    first: np.float32  # no min size starts above this
    least: np.float32  # nor falls below this later


class _Work(NamedTuple):
    """What one episode of n rows, n8 with padding, writes on beside its Gram matrix."""

    assignment: Floats  # [way, n8 + 8] P
    kernel: Floats  # [way, n8 + 8] K = exp(lam (S - rowmax))
    scores: Floats  # [way, n8 + 8] S
    residual: Floats  # [way, n8 + 8] D
    step: Floats  # [way, n8 + 8] G D
    buffer: Floats  # [way, n8 + 8] G times the momentum buffer
    rows: Floats  # [4, n8 + 8] a number per row, by the names below
    classes: Floats  # [7, way] a number per class, by the names below


_INSIDE, _U, _MASS, _ARGMAX = range(4)  # takes part in Sinkhorn; u; row sum and argmax of P
_V, _SUM, _SHOT, _TARGET, _COUNT, _WB, _BB = range(7)  # v; K^T u; shots; BMS* column sum; argmax counts; w . b; b . b


def _work(n: int, way: int) -> _Work:
    n8 = -(-n // 8) * 8
    return _Work(*(np.zeros(shape, np.float32) for shape in [*[(way, n8 + 8)] * 6, (4, n8 + 8), (7, way)]))


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
def _times_gram(panels: Floats, n: int, a: Floats, columns: int, out: Floats) -> None:
    """out[:columns] = a[:columns] @ G."""
    count, fours = (n + 15) // 16, columns // 4 * 4
    depth = len(panels) // count
    for p in range(count):
        for j in range(0, fours, 4):
            _four_columns(panels, p * depth, n, a, j, out, 16 * p)
        for j in range(fours, columns):
            _one_column(panels, p * depth, n, a, j, out, 16 * p)


@part
def _centroid_scores(panels: Floats, assignment: Floats, n: int, scores: Floats) -> None:
    """S = G P / |X^T P|: the scores of unit-length centroids."""
    _times_gram(panels, n, assignment, len(scores), scores)
    for j in range(len(scores)):
        square = zeros()
        for i in range(0, n, 8):
            square += load(assignment, j, i) * load(scores, j, i)
        scale = ONE / np.sqrt(max(total(square), np.float32(1e-24)))
        for i in range(0, n, 8):
            store(scores, j, i, load(scores, j, i) * scale)


@part
def _softmax_numerators(scores: Floats, i: int, scale: float, out: Floats) -> None:
    """out = exp(scale (S - rowmax)) for the eight rows from i."""
    top = load(scores, 0, i)
    for j in range(1, len(scores)):
        s = load(scores, j, i)
        top = where_larger(s, top, s, top)
    for j in range(len(scores)):
        store(out, j, i, exp2((load(scores, j, i) - top) * (scale * LOG2_E)))


@part
def _sweep_five(kernel: Floats, m: int, rows: Floats, classes: Floats) -> None:
    """The sweep below for five classes, as most tasks have: K is read once and the sums stay in registers."""
    v0, v1, v2 = each(classes, _V, 0), each(classes, _V, 1), each(classes, _V, 2)
    v3, v4 = each(classes, _V, 3), each(classes, _V, 4)
    c0 = c1 = c2 = c3 = c4 = zeros()
    for i in range(0, m, 8):
        k0, k1, k2 = load(kernel, 0, i), load(kernel, 1, i), load(kernel, 2, i)
        k3, k4 = load(kernel, 3, i), load(kernel, 4, i)
        u = load(rows, _INSIDE, i) / ((k0 * v0 + k1 * v1) + (k2 * v2 + k3 * v3 + k4 * v4))
        store(rows, _U, i, u)
        c0, c1, c2, c3, c4 = c0 + k0 * u, c1 + k1 * u, c2 + k2 * u, c3 + k3 * u, c4 + k4 * u
    for j, c in ((0, c0), (1, c1), (2, c2), (3, c3), (4, c4)):
        classes[_SUM, j] = max(total(c), TINY)


@part
def _sweep(kernel: Floats, m: int, rows: Floats, classes: Floats) -> None:
    """Row step u = 1 / (K v), with u = 0 for rows that take no part, and the sums K^T u for the column step."""
    way = len(kernel)
    if way == 5:
        _sweep_five(kernel, m, rows, classes)
        return
    for i in range(0, m, 8):
        s = load(kernel, 0, i) * each(classes, _V, 0)
        for j in range(1, way):
            s += load(kernel, j, i) * each(classes, _V, j)
        store(rows, _U, i, load(rows, _INSIDE, i) / s)
    for j in range(way):
        s = zeros()
        for i in range(0, m, 8):
            s += load(kernel, j, i) * load(rows, _U, i)
        classes[_SUM, j] = max(total(s), TINY)


@part
def _min_size_sinkhorn(kernel: Floats, min_size: float, passes: int, m: int, rows: Floats, classes: Floats) -> None:
    """Algorithm 1: rows to one, then columns below min_size up to it; a pass that lifts none is the fixed point."""
    for j in range(len(kernel)):
        classes[_V, j] = ONE
    for _ in range(passes):
        _sweep(kernel, m, rows, classes)
        lifted, largest = False, ONE
        for j in range(len(kernel)):
            if classes[_V, j] * classes[_SUM, j] < min_size:
                classes[_V, j] = min_size / classes[_SUM, j]
                lifted = True
            largest = max(largest, classes[_V, j])
        if not lifted:
            break
        if largest > np.float32(1e15):  # a min size out of reach lifts v for ever: hand the common factor to u
            for j in range(len(kernel)):
                classes[_V, j] /= largest
            for i in range(0, m, 8):
                store(rows, _U, i, load(rows, _U, i) * largest)


@part
def _balanced_sinkhorn(kernel: Floats, passes: int, m: int, rows: Floats, classes: Floats) -> None:
    """BMS*: every column to its own target, then rows to one."""
    for j in range(len(kernel)):
        classes[_V, j] = ONE
    _sweep(kernel, m, rows, classes)
    for _ in range(passes):
        for j in range(len(kernel)):
            classes[_V, j] = classes[_TARGET, j] / classes[_SUM, j]
        _sweep(kernel, m, rows, classes)


@part
def _smallest_class(kernel: Floats, m: int, rows: Floats, classes: Floats) -> np.float32:
    """The size of the smallest class: rows in Sinkhorn by the argmax of P, on top of what classes[_COUNT] holds."""
    for i in range(0, m, 8):
        best, which = load(kernel, 0, i) * each(classes, _V, 0), zeros()
        for j in range(1, len(kernel)):
            s = load(kernel, j, i) * each(classes, _V, j)
            which = where_larger(s, best, np.float32(j), which)
            best = where_larger(s, best, s, best)
        store(rows, _ARGMAX, i, which)
    smallest, later = INFINITE, ZERO
    for j in range(len(kernel) - 1, -1, -1):
        s = zeros()
        for i in range(0, m, 8):
            s += where_larger(load(rows, _ARGMAX, i), np.float32(j - 0.5), load(rows, _INSIDE, i), ZERO)
        these_and_later = total(s)
        smallest = min(smallest, classes[_COUNT, j] + these_and_later - later)
        later = these_and_later
    return smallest


@part
def _assign(kernel: Floats, m: int, rows: Floats, classes: Floats, assignment: Floats) -> None:
    """P = diag(u) K diag(v), and its row sums."""
    for i in range(0, m, 8):
        u, mass = load(rows, _U, i), zeros()
        for j in range(len(kernel)):
            p = load(kernel, j, i) * each(classes, _V, j) * u
            store(assignment, j, i, p)
            mass += p
        store(rows, _MASS, i, mass)


@part
def _residual(scores: Floats, assignment: Floats, rows: Floats, kappa: float, n: int, residual: Floats) -> None:
    """D = kappa (softmax(kappa S) * rowsum(P) - P) / N."""
    share = kappa / np.float32(n)
    for i in range(0, n, 8):
        _softmax_numerators(scores, i, kappa, residual)
        normaliser = zeros()
        for j in range(len(scores)):
            normaliser += load(residual, j, i)
        factor = load(rows, _MASS, i) * share / normaliser
        for j in range(len(scores)):
            store(residual, j, i, load(residual, j, i) * factor - load(assignment, j, i) * share)


@part
def _logistic_regression(settings: _Settings, panels: Floats, n: int, work: _Work) -> None:
    """Move the scores of unit weights w by SGD with momentum on the cross-entropy with P; kappa is learnt on the way.

    Per column: gradient g = D - (w . D) w, buffer b = momentum b + g, w = (w - lr b) / |w - lr b|. Multiplied by G, all
    of this happens to scores; w . b and b . b, which give the norm, follow from dot products with D. The columns of D
    sum to zero, so that G D of the last class follows from the others.
    """
    scores, residual, step, buffer, classes = work.scores, work.residual, work.step, work.buffer, work.classes
    way, lr, momentum, kappa = len(scores), settings.lr, settings.momentum, settings.kappa
    pull = ZERO  # the momentum buffer of kappa
    for j in range(way):
        classes[_WB, j] = classes[_BB, j] = ZERO
        for i in range(0, n, 8):
            store(buffer, j, i, ZERO)
    for _ in range(settings.epochs):
        _residual(scores, work.assignment, work.rows, kappa, n, residual)
        _times_gram(panels, n, residual, way - 1, step)
        for i in range(0, n, 8):
            s = zeros()
            for j in range(way - 1):
                s = s - load(step, j, i)
            store(step, way - 1, i, s)
        slope = ZERO
        for j in range(way):
            wd = bd = dd = zeros()
            for i in range(0, n, 8):
                d = load(residual, j, i)
                wd, bd, dd = wd + load(scores, j, i) * d, bd + load(buffer, j, i) * d, dd + load(step, j, i) * d
            along = total(wd)
            slope += along
            wb, bb = classes[_WB, j], classes[_BB, j]
            bb = momentum * momentum * bb + TWO * momentum * (total(bd) - along * wb) + total(dd) - along * along
            wb *= momentum
            scale = ONE / np.sqrt(ONE - TWO * lr * wb + lr * lr * bb)
            classes[_WB, j], classes[_BB, j] = (wb - lr * bb) * scale, bb
            for i in range(0, n, 8):
                s = load(scores, j, i)
                b = load(buffer, j, i) * momentum + load(step, j, i) - s * along
                store(buffer, j, i, b)
                store(scores, j, i, (s - b * lr) * scale)
        pull = momentum * pull + slope / kappa
        kappa -= lr * pull


@engine
def _episodes(
    features: Floats,
    rows: Ints,
    labels: Ints,
    prior: Floats,
    settings: _Settings,
    space: Scratch,
    work: _Work,
    out: Floats,
) -> None:
    """Algorithm 2 for each episode; rows [R, q + l], queries first, labels [R, l], prior [R, way], out [R, q, way]."""
    kernel, scores, assignment, by_row, classes = work.kernel, work.scores, work.assignment, work.rows, work.classes
    episodes, q, way = out.shape
    n = rows.shape[1]
    inside = q if settings.clamped else n
    m = -(-inside // 8) * 8
    for i in range(inside):
        by_row[_INSIDE, i] = ONE
    for r in range(episodes):
        gram_matrix(features, rows[r], rows[min(r + 1, episodes - 1)], settings.centre, space.x, space.gram)
        centre_and_normalise(space.gram, n, settings.centre, settings.normalise, space.rows, space.panels)
        for j in range(way):
            classes[_SHOT, j] = ZERO
            for i in range(0, n, 8):
                store(assignment, j, i, ZERO)
        for i in range(n - q):
            assignment[labels[r, i], q + i] = ONE
            classes[_SHOT, labels[r, i]] += ONE
        min_size = settings.first
        for j in range(way):
            min_size = min(min_size, classes[_SHOT, j])
            classes[_TARGET, j] = np.float32(q) * prior[r, j] + (ZERO if settings.clamped else classes[_SHOT, j])
        for step in range(settings.steps):
            _centroid_scores(space.panels, assignment, n, scores)
            if step > 0 and settings.epochs > 0:
                _logistic_regression(settings, space.panels, n, work)
            for i in range(0, m, 8):
                _softmax_numerators(scores, i, settings.lam, kernel)
            if settings.balanced:
                _balanced_sinkhorn(kernel, settings.passes, m, by_row, classes)
            else:
                _min_size_sinkhorn(kernel, min_size, settings.passes, m, by_row, classes)
                for j in range(way):
                    classes[_COUNT, j] = classes[_SHOT, j] if settings.counts_support else ZERO
                min_size = max(settings.least, _smallest_class(kernel, m, by_row, classes))
            _assign(kernel, m, by_row, classes, assignment)
            if settings.clamped:
                for i in range(n - q):
                    assignment[labels[r, i], q + i] = by_row[_MASS, q + i] = ONE
        for i in range(q):
            for j in range(way):
                out[r, i, j] = assignment[j, i] / by_row[_MASS, i]


def bms_episodes(
    features: Floats,
    support: Ints,
    support_labels: Ints,
    query: Ints,
    *,
    way: int,
    centre: bool,
    normalise: bool,
    settings: BMSSettings,
    threads: int | None = None,
) -> Floats:
    """Probabilities [R, q, way] of BMS, or of BMS* given a prior, for R episodes of l support and q query rows.

    `features` [n, d], d a multiple of eight (`gram.padded`), have been through those steps of the chain that treat each
    row alone; `centre` then subtracts the mean of the task (Mn), `normalise` makes rows unit length (E). `support`,
    `support_labels` [R, l] and `query` [R, q] are row numbers and labels 0 .. way-1, every class with at least one
    support row. The prior of `settings` is [way] or [R, way]. `threads`: as many as numba would take, unless given.
    """
    episodes, q = query.shape
    out = np.empty((episodes, q, way), np.float32)
    rows = np.concatenate([query, support], axis=1).astype(np.int32)
    labels = np.ascontiguousarray(support_labels, np.int32)
    given = np.zeros(way) if settings.prior is None else settings.prior
    prior = np.ascontiguousarray(np.broadcast_to(given, (episodes, way)), np.float32)
    robust = settings.variant == "robust"
    numbers = _Settings(
        centre=centre,
        normalise=normalise,
        lam=np.float32(settings.lam),
        epochs=settings.epochs,
        steps=settings.steps,
        passes=settings.passes,
        lr=np.float32(settings.lr),
        momentum=np.float32(settings.momentum),
        kappa=np.float32(settings.kappa),
        balanced=settings.prior is not None,
        clamped=settings.variant != "letter",
        counts_support=settings.variant == "published",
        first=np.float32(max(1, q // way)) if robust else INFINITE,
        least=np.float32(robust),
    )

    def classify(batch: slice) -> None:
        space, work = scratch(rows.shape[1], features.shape[1]), _work(rows.shape[1], way)
        _episodes(features, rows[batch], labels[batch], prior[batch], numbers, space, work, out[batch])

    in_batches(_episodes, episodes, classify, threads)
    return out
