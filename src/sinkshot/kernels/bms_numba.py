"""BMS and BMS* on the CPU, fused: from row numbers to probabilities in one compiled pass per episode.

The Gram form: with G = X X^T of one preprocessed episode every weight is w_j = X^T a_j, and only its scores G a_j are
needed: Sinkhorn reads scores, and logistic regression updates them by products of G with its residual. Once G is known,
the cost does not depend on the width of the features. Arrays are class-major, [way, rows], so that eight rows fill one
vector register; the rows of an episode are queries first, then supports, then padding up to a multiple of eight.

The code is compiled on first use (a few seconds) and cached on disk. Every sum has a fixed order and episodes are
independent: results depend neither on the number of threads nor on how episodes are batched.
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.bms_sinkhorn_numba import (
    BB,
    COUNT,
    INSIDE,
    MASS,
    SHOT,
    TARGET,
    WB,
    assign,
    balanced_sinkhorn,
    min_size_sinkhorn,
    smallest_class,
    softmax_numerators,
)
from sinkshot.kernels.gram_numba import Scratch, centre_and_normalise, gram_matrix, scratch
from sinkshot.kernels.gram_products_numba import centroid_scores, times_gram
from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.simd import INFINITE, ONE, TWO, ZERO, Floats, Ints, load, part, store, total, zeros
from sinkshot.settings.bms import BMSSettings


class _Constants(NamedTuple):
    """Parameters shared by all episodes."""

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
    counts_support: bool  # the min size also counts support rows, by their labels
    first: np.float32  # upper bound of the initial min size
    least: np.float32  # lower bound of later min sizes


class _Work(NamedTuple):
    """Work arrays of one episode of n rows, n8 with padding, besides its Gram matrix."""

    assignment: Floats  # [way, n8 + 8] P
    kernel: Floats  # [way, n8 + 8] K = exp(lam (S - rowmax))
    scores: Floats  # [way, n8 + 8] S
    residual: Floats  # [way, n8 + 8] D
    step: Floats  # [way, n8 + 8] G D
    buffer: Floats  # [way, n8 + 8] G times the momentum buffer
    rows: Floats  # [4, n8 + 8] values per row, indexed by the names in `bms_sinkhorn_numba`
    classes: Floats  # [7, way] values per class, likewise


def _work(n: int, way: int) -> _Work:
    n8 = -(-n // 8) * 8
    return _Work(*(np.zeros(shape, np.float32) for shape in [*[(way, n8 + 8)] * 6, (4, n8 + 8), (7, way)]))


@part
def _residual(scores: Floats, assignment: Floats, rows: Floats, kappa: float, n: int, residual: Floats) -> None:
    """D = kappa (softmax(kappa S) * rowsum(P) - P) / N."""
    share = kappa / np.float32(n)
    for i in range(0, n, 8):
        softmax_numerators(scores, i, kappa, residual)
        normaliser = zeros()
        for j in range(len(scores)):
            normaliser += load(residual, j, i)
        factor = load(rows, MASS, i) * share / normaliser
        for j in range(len(scores)):
            store(residual, j, i, load(residual, j, i) * factor - load(assignment, j, i) * share)


@part
def _logistic_regression(constants: _Constants, panels: Floats, n: int, work: _Work) -> None:
    """Update the scores of unit weights w by SGD with momentum on the cross-entropy with P; kappa is learnt as well.

    Per column: gradient g = D - (w . D) w, buffer b = momentum b + g, w = (w - lr b) / |w - lr b|. Multiplied by G, all
    of this acts on scores; w . b and b . b, which give the norm, follow from dot products with D. The columns of D sum
    to zero, so G D of the last class follows from the others.
    """
    scores, residual, step, buffer, classes = work.scores, work.residual, work.step, work.buffer, work.classes
    way, lr, momentum, kappa = len(scores), constants.lr, constants.momentum, constants.kappa
    pull = ZERO  # the momentum buffer of kappa
    for j in range(way):
        classes[WB, j] = classes[BB, j] = ZERO
        for i in range(0, n, 8):
            store(buffer, j, i, ZERO)
    for _ in range(constants.epochs):
        _residual(scores, work.assignment, work.rows, kappa, n, residual)
        times_gram(panels, n, residual, way - 1, step)
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
            wb, bb = classes[WB, j], classes[BB, j]
            bb = momentum * momentum * bb + TWO * momentum * (total(bd) - along * wb) + total(dd) - along * along
            wb *= momentum
            scale = ONE / np.sqrt(ONE - TWO * lr * wb + lr * lr * bb)
            classes[WB, j], classes[BB, j] = (wb - lr * bb) * scale, bb
            for i in range(0, n, 8):
                s = load(scores, j, i)
                b = load(buffer, j, i) * momentum + load(step, j, i) - s * along
                store(buffer, j, i, b)
                store(scores, j, i, (s - b * lr) * scale)
        pull = momentum * pull + slope / kappa
        kappa -= lr * pull


@part
def _begin(constants: _Constants, labels: Ints, prior: Floats, q: int, work: _Work) -> np.float32:
    """Assign the supports to their classes, count shots, set the targets of BMS*, and return the first min size."""
    assignment, classes = work.assignment, work.classes
    for j in range(len(prior)):
        classes[SHOT, j] = ZERO
        for i in range(0, q + len(labels), 8):
            store(assignment, j, i, ZERO)
    for i in range(len(labels)):
        assignment[labels[i], q + i] = ONE
        classes[SHOT, labels[i]] += ONE
    min_size = constants.first
    for j in range(len(prior)):
        min_size = min(min_size, classes[SHOT, j])
        classes[TARGET, j] = np.float32(q) * prior[j] + (ZERO if constants.clamped else classes[SHOT, j])
    return min_size


@engine
def _episodes(
    features: Floats,
    rows: Ints,
    labels: Ints,
    prior: Floats,
    constants: _Constants,
    space: Scratch,
    work: _Work,
    out: Floats,
) -> None:
    """Algorithm 2 for each episode; rows [R, q + l], queries first, labels [R, l], prior [R, way], out [R, q, way]."""
    kernel, scores, assignment, by_row, classes = work.kernel, work.scores, work.assignment, work.rows, work.classes
    episodes, q, way = out.shape
    n = rows.shape[1]
    inside = q if constants.clamped else n
    m = -(-inside // 8) * 8
    for i in range(inside):
        by_row[INSIDE, i] = ONE
    for r in range(episodes):
        gram_matrix(features, rows[r], rows[min(r + 1, episodes - 1)], constants.centre, space.x, space.gram)
        centre_and_normalise(space.gram, n, constants.centre, constants.normalise, space.rows, space.panels)
        min_size = _begin(constants, labels[r], prior[r], q, work)
        for step in range(constants.steps):
            centroid_scores(space.panels, assignment, n, scores)
            if step > 0 and constants.epochs > 0:
                _logistic_regression(constants, space.panels, n, work)
            for i in range(0, m, 8):
                softmax_numerators(scores, i, constants.lam, kernel)
            if constants.balanced:
                balanced_sinkhorn(kernel, constants.passes, m, by_row, classes)
            else:
                min_size_sinkhorn(kernel, min_size, constants.passes, m, by_row, classes)
                for j in range(way):
                    classes[COUNT, j] = classes[SHOT, j] if constants.counts_support else ZERO
                min_size = max(constants.least, smallest_class(kernel, m, by_row, classes))
            assign(kernel, m, by_row, classes, assignment)
            if constants.clamped:
                for i in range(n - q):
                    assignment[labels[r, i], q + i] = by_row[MASS, q + i] = ONE
        for i in range(q):
            for j in range(way):
                out[r, i, j] = assignment[j, i] / by_row[MASS, i]


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

    `features` [n, d], with d a multiple of eight (`gram.padded`), are those after the row-wise steps of the chain;
    `centre` then subtracts the mean of the task (Mn), `normalise` scales rows to unit length (E). `support`,
    `support_labels` [R, l] and `query` [R, q] are row numbers and labels 0 .. way-1; every class has at least one
    support row. The prior of `settings` is [way] or [R, way]. `threads` is numba's number of threads by default.
    """
    episodes, q = query.shape
    out = np.empty((episodes, q, way), np.float32)
    rows = np.concatenate([query, support], axis=1).astype(np.int32)
    labels = np.ascontiguousarray(support_labels, np.int32)
    given = np.zeros(way) if settings.prior is None else settings.prior
    prior = np.ascontiguousarray(np.broadcast_to(given, (episodes, way)), np.float32)
    robust = settings.variant == "robust"
    numbers = _Constants(
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
