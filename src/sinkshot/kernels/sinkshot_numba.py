"""The method `sinkshot` on the CPU, fused: from row numbers to probabilities in one compiled pass per episode.

Steps and names are those of `sinkshot.methods.sinkshot`, the arrays those of `bms_numba`: class-major, eight rows in a
register, queries first, then supports. The graph is stored as lists of neighbours. Every sum has a fixed order and
episodes are independent, so results do not depend on the number of threads or on the batch.
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.bms_sinkhorn_numba import (
    INSIDE,
    SHOT,
    TARGET,
    V,
    balanced_sinkhorn,
    softmax_numerators,
)
from sinkshot.kernels.gram_numba import Scratch, centre_and_normalise, centre_by_classes, gram_matrix, scratch
from sinkshot.kernels.gram_products_numba import centroid_scores
from sinkshot.kernels.jit import engine, in_batches
from sinkshot.kernels.neighbour_graph_numba import Links, link, links, smooth
from sinkshot.kernels.simd import (
    LOG2_E,
    ONE,
    ZERO,
    Floats,
    Ints,
    each,
    exp2,
    load,
    log2,
    part,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.kernels.sinkshot_strangers_numba import (
    ASKED,
    MOVES,
    NEAREST,
    ROWS,
    UNKNOWN,
    Evidence,
    collect,
    evidence_constants,
    reject,
    share_of_strangers,
)
from sinkshot.settings.sinkshot import FAINT, SinkShotSettings

SHARE, LOG_SHARE = 5, 6  # rows of `_Work.classes`, beside those of `bms_sinkhorn_numba`
_FAINT, _SOME = np.float32(FAINT), np.float32(1e-20)


class _Constants(NamedTuple):
    """Constants of all episodes; `settings.sinkshot` explains them."""

    centre: bool
    class_centre: bool  # the centre is that of Mc
    normalise: bool
    sharpness: np.float32
    spread: np.float32
    spreads: int
    distance_doubt: np.float32
    most_spread: np.float32
    power: np.float32
    lams: Floats  # [steps]
    stranger_step: int
    lam: np.float32
    passes: int
    support_weight: np.float32
    noise: np.float32
    bias: np.float32
    doubt: np.float32
    least_share: np.float32
    unsure_noise: np.float32
    unsure_from: np.float32
    log_temperature: np.float32
    temperature_change: np.float32
    temperature_spread: np.float32


class _Work(NamedTuple):
    """Work space of one episode of n rows (n8 with padding), besides its Gram matrix."""

    everywhere: Floats  # [way, n8 + 8] class probabilities of all rows
    kernel: Floats  # [way, n8 + 8] those of the queries, which Sinkhorn scales
    mass: Floats  # [way, n8 + 8] coefficients of the class weights
    scores: Floats  # [way, n8 + 8] their cosines
    space: Floats  # [4 * way, n8 + 8]
    rows: Floats  # [ROWS, n8 + 8] a number per row
    classes: Floats  # [7, way] a number per class


def _work(n: int, way: int) -> _Work:
    n8 = -(-n // 8) * 8 + 8
    shapes = [*[(way, n8)] * 4, (4 * way, n8), (ROWS, n8), (7, way)]
    return _Work(*(np.zeros(shape, np.float32) for shape in shapes))


@part
def _begin(labels: Ints, q: int, work: _Work) -> None:
    """Coefficients of the support means, equal shares, and which rows are queries."""
    way, n = len(work.mass), q + len(labels)
    for j in range(way):
        work.classes[SHOT, j] = ZERO
        work.classes[SHARE, j] = ONE / np.float32(way)
        for i in range(0, n, 8):
            store(work.mass, j, i, ZERO)
            store(work.everywhere, j, i, ZERO)
    for i in range(len(labels)):
        work.classes[SHOT, labels[i]] += ONE
    for i in range(len(labels)):
        work.mass[labels[i], q + i] = ONE / work.classes[SHOT, labels[i]]
        work.everywhere[labels[i], q + i] = ONE
    for i in range(0, n, 8):
        store(work.rows, ASKED, i, ZERO)
        store(work.rows, INSIDE, i, ZERO)
    for i in range(q):
        work.rows[ASKED, i] = work.rows[INSIDE, i] = work.rows[MOVES, i] = ONE


@part
def _nearest(scores: Floats, q: int, by_row: Floats) -> None:
    """The class of the nearest support mean."""
    for i in range(0, q, 8):
        best, which = load(scores, 0, i), zeros()
        for j in range(1, len(scores)):
            s = load(scores, j, i)
            which = where_larger(s, best, np.float32(j), which)
            best = where_larger(s, best, s, best)
        store(by_row, NEAREST, i, which)


@part
def _to_one(values: Floats, i: int) -> None:
    """Divide class values of the eight rows from i by their sum; where all are zero, every class gets the same."""
    s = zeros()
    for j in range(len(values)):
        s += load(values, j, i)
    equal = ONE / np.float32(len(values))
    for j in range(len(values)):
        store(values, j, i, where_larger(s, ZERO, load(values, j, i) / s, equal))


@part
def _likely(scores: Floats, q: int, lam: float, classes: Floats, kernel: Floats) -> None:
    """Probabilities softmax(lam cosine + log share)."""
    scale = lam * LOG2_E
    for j in range(len(scores)):
        classes[LOG_SHARE, j] = np.log(classes[SHARE, j]) * LOG2_E
    for i in range(0, q, 8):
        top = load(scores, 0, i) * scale + each(classes, LOG_SHARE, 0)
        for j in range(1, len(scores)):
            s = load(scores, j, i) * scale + each(classes, LOG_SHARE, j)
            top = where_larger(s, top, s, top)
        for j in range(len(scores)):
            store(kernel, j, i, exp2(load(scores, j, i) * scale + each(classes, LOG_SHARE, j) - top))
        _to_one(kernel, i)


@part
def _reach(constants: _Constants, closeness: float) -> tuple[np.float32, int]:
    """The share that neighbours of this mean cosine give, and the averages (`SinkShotSettings.reach`)."""
    distance = ONE - closeness
    spread = max(ONE - constants.distance_doubt * distance * distance, constants.spread)
    spread = min(spread, constants.most_spread)
    fading = np.float32(constants.spreads) * np.log(constants.spread) / np.log(spread)
    return np.float32(spread), int(np.ceil(fading - np.float32(0.01)))


@part
def _smoothed(constants: _Constants, q: int, spread: float, times: int, graph: Links, work: _Work) -> None:
    """Average class probabilities over neighbours, and sharpen them again: `kernel`, and the queries of `everywhere`.

    The last eight rows may hold supports, which are put back.
    """
    way, kernel, everywhere = len(work.kernel), work.kernel, work.everywhere
    for j in range(way):
        for i in range(q):
            everywhere[j, i] = kernel[j, i]
    smooth(everywhere, q, spread, times, graph)
    for j in range(way):
        for i in range(q):
            kernel[j, i] = everywhere[j, i]
    for i in range(0, q, 8):
        _to_one(kernel, i)
        for j in range(way):
            store(kernel, j, i, exp2(log2(load(kernel, j, i)) * constants.power))
        _to_one(kernel, i)


@part
def _count(constants: _Constants, q: int, work: _Work) -> None:
    """Class shares, counted and shrunk to equal ones (`methods.priors.shrunken_shares`), and class sums in Sinkhorn."""
    kernel, by_row, classes = work.kernel, work.rows, work.classes
    way = np.float32(len(kernel))
    s = doubtful = zeros()
    for i in range(0, q, 8):
        s += load(by_row, INSIDE, i)
    known = total(s)
    rows, square = max(known, ONE), ZERO
    for j in range(len(kernel)):
        s = zeros()
        for i in range(0, q, 8):
            p = load(kernel, j, i)
            counted = load(by_row, INSIDE, i) * p
            s, doubtful = s + counted, doubtful + counted * (ONE - p)
        classes[SHARE, j] = total(s) / rows - ONE / way
        square += classes[SHARE, j] * classes[SHARE, j]
    belief = ZERO
    if square > _SOME:
        unsure = total(doubtful) / rows
        noise = constants.noise * unsure / rows + constants.bias
        noise += constants.unsure_noise * max(unsure - constants.unsure_from, ZERO)
        belief = ONE / (ONE + (noise / square) ** constants.doubt)
    for j in range(len(kernel)):
        classes[SHARE, j] = max(ONE / way + belief * classes[SHARE, j], constants.least_share / way)
        classes[TARGET, j] = classes[SHARE, j] * known


@part
def _allocate(constants: _Constants, q: int, work: _Work) -> None:
    """Sinkhorn to the class sums; each row is then divided by its sum."""
    m = -(-q // 8) * 8
    balanced_sinkhorn(work.kernel, constants.passes, m, work.rows, work.classes)
    for i in range(0, m, 8):
        for j in range(len(work.kernel)):
            store(work.kernel, j, i, load(work.kernel, j, i) * each(work.classes, V, j))
        _to_one(work.kernel, i)


@part
def _weigh(constants: _Constants, panels: Floats, labels: Ints, q: int, work: _Work) -> None:
    """Class weights of supports and known queries, and their cosines."""
    for j in range(len(work.mass)):
        for i in range(0, q, 8):
            p = load(work.kernel, j, i)
            store(work.mass, j, i, load(work.rows, INSIDE, i) * load(work.rows, MOVES, i) * p * p)
        for i in range(len(labels)):
            work.mass[j, q + i] = constants.support_weight if labels[i] == j else ZERO
    centroid_scores(panels, work.mass, q + len(labels), work.scores)


@part
def _calibrated(constants: _Constants, q: int, work: _Work, out: Floats) -> None:
    """Soften the probabilities by the temperature of the episode, out [q, way]."""
    kernel, by_row = work.kernel, work.rows
    way = len(kernel)
    s = stayed = zeros()
    for i in range(0, q, 8):
        s += load(by_row, INSIDE, i)
    known, spread = total(s), -ONE
    for j in range(way):
        s = zeros()
        for i in range(0, q, 8):
            p = load(kernel, j, i) * load(by_row, INSIDE, i)
            distance = load(by_row, NEAREST, i) - np.float32(j)
            s, stayed = s + p, stayed + where_larger(np.float32(0.5), distance * distance, p, ZERO)
        size = total(s) / known
        spread += np.float32(way) * size * size
    change = constants.temperature_change * (ONE - total(stayed) / known)
    logarithm = constants.log_temperature + change + constants.temperature_spread * spread
    inverse = np.float32(np.exp(-max(logarithm, ZERO)))
    for i in range(0, q, 8):
        for j in range(way):
            p = load(kernel, j, i)
            store(kernel, j, i, exp2(log2(where_larger(p, _FAINT, p, _FAINT)) * inverse))
        _to_one(kernel, i)
    for i in range(q):
        for j in range(way):
            out[i, j] = kernel[j, i]


@part
def _gram(
    features: Floats, rows: Ints, following: Ints, labels: Ints, shots: Floats, constants: _Constants, space: Scratch
) -> None:
    """The Gram matrix of the prepared episode in panels."""
    gram_matrix(features, rows, following, constants.centre or constants.class_centre, space.x, space.gram)
    if constants.class_centre:
        centre_by_classes(space, labels, shots, constants.normalise)
    else:
        centre_and_normalise(space.gram, len(rows), constants.centre, constants.normalise, space.rows, space.panels)


@engine
def _episodes(
    features: Floats,
    rows: Ints,
    labels: Ints,
    constants: _Constants,
    evidence: Evidence,
    space: Scratch,
    graph: Links,
    work: _Work,
    out: Floats,
    unknown: Floats,
) -> None:
    """Steps 1 to 5 for each episode; rows [R, q + l], queries first, labels [R, l], out [R, q, way], unknown [R, q]."""
    episodes, q, _ = out.shape
    n, panels = rows.shape[1], space.panels
    for r in range(episodes):
        _begin(labels[r], q, work)
        _gram(features, rows[r], rows[min(r + 1, episodes - 1)], labels[r], work.classes[SHOT], constants, space)
        spread, times = _reach(constants, link(panels, n, constants.sharpness, graph))
        centroid_scores(panels, work.mass, n, work.scores)
        _nearest(work.scores, q, work.rows)
        for step in range(len(constants.lams)):
            _likely(work.scores, q, constants.lams[step], work.classes, work.kernel)
            _smoothed(constants, q, spread, times, graph, work)
            if step == constants.stranger_step:
                for j in range(len(work.kernel)):
                    for i in range(q):
                        work.everywhere[j, i] = work.kernel[j, i]
                next_class = collect(panels, work.everywhere, q, work.space, work.rows, graph, evidence)
                seen = share_of_strangers(work.everywhere, q, n, work.rows, next_class, evidence)
                reject(work.rows, q, len(work.kernel), seen, evidence)
            _count(constants, q, work)
            _allocate(constants, q, work)
            _weigh(constants, panels, labels[r], q, work)
        for i in range(0, q, 8):
            softmax_numerators(work.scores, i, constants.lam, work.kernel)
        _allocate(constants, q, work)
        _smoothed(constants, q, spread, times, graph, work)
        _allocate(constants, q, work)
        _calibrated(constants, q, work, out[r])
        for i in range(q):
            unknown[r, i] = work.rows[UNKNOWN, i]


def sinkshot_episodes(
    features: Floats,
    support: Ints,
    support_labels: Ints,
    query: Ints,
    *,
    way: int,
    centre: bool,
    class_centre: bool,
    normalise: bool,
    settings: SinkShotSettings,
    threads: int | None = None,
) -> tuple[Floats, Floats]:
    """Probabilities [R, q, way] and scores of the unknown [R, q] for R episodes of l support and q query rows.

    Arguments are those of `bms_numba.bms_episodes`; `class_centre` subtracts the mean of the class means (Mc).
    """
    episodes, q = query.shape
    n, s = q + support.shape[1], settings
    rows = np.concatenate([query, support], axis=1).astype(np.int32)
    labels = np.ascontiguousarray(support_labels, np.int32)
    out, unknown = np.empty((episodes, q, way), np.float32), np.empty((episodes, q), np.float32)
    constants, evidence = constants_of(s, way, support.shape[1], centre, class_centre, normalise)

    def classify(batch: slice) -> None:
        spaces = scratch(n, features.shape[1]), links(n, way, s.neighbours), _work(n, way)
        _episodes(features, rows[batch], labels[batch], constants, evidence, *spaces, out[batch], unknown[batch])

    in_batches(_episodes, episodes, classify, threads)
    return out, unknown


def constants_of(
    s: SinkShotSettings, way: int, supports: int, centre: bool, class_centre: bool, normalise: bool
) -> tuple[_Constants, Evidence]:
    """What compiled code needs of the settings, for one size of task."""
    shots, single = supports / way, np.float32
    noise, bias, doubt, least, unsure_noise, unsure_from = map(single, s.doubts(way, shots))
    constants = _Constants(
        centre=centre,
        class_centre=class_centre,
        normalise=normalise,
        sharpness=single(s.sharpness),
        spread=single(s.spread),
        spreads=s.spreads,
        distance_doubt=single(s.distance_doubt),
        most_spread=single(s.most_spread),
        power=single(s.power),
        lams=np.asarray([s.lam_at(step) for step in range(s.steps)], single),
        stranger_step=s.stranger_step,
        lam=single(s.lam),
        passes=s.passes,
        support_weight=single(s.support_weight),
        noise=noise,
        bias=bias,
        doubt=doubt,
        least_share=least,
        unsure_noise=unsure_noise,
        unsure_from=unsure_from,
        log_temperature=single(s.log_temperature(shots, way)),
        temperature_change=single(s.temperature_change),
        temperature_spread=single(s.temperature_spread),
    )
    return constants, evidence_constants(s)
