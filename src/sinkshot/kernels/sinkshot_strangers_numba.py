"""The score of unknown queries of `methods.sinkshot.strangers` on one episode, compiled: a part of `sinkshot_numba`.

Rows stand queries first, then supports. Numbers per row stand in one array, by the names below; the first four are
those of `bms_sinkhorn_numba`.
"""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.bms_sinkhorn_numba import INSIDE
from sinkshot.kernels.gram_products_numba import times_gram
from sinkshot.kernels.neighbour_graph_numba import Links, average
from sinkshot.kernels.simd import (
    LOG2_E,
    ONE,
    TWO,
    ZERO,
    Floats,
    Lanes,
    exp2,
    load,
    part,
    sigmoid,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.settings.sinkshot import LEAST_KNOWN, LEAST_VARIANCE

ASKED, NEAREST, PART, ALONG, SCALE, OVERALL, EVIDENCE, NULL, RESPONSE, UNKNOWN = range(4, 14)
ROWS = 14
_EPSILON = np.float32(4 * np.finfo(np.float32).eps)
_LEAST_KNOWN, _LEAST_VARIANCE = np.float32(LEAST_KNOWN), np.float32(LEAST_VARIANCE)


class Evidence(NamedTuple):
    """The constants of strangers, as `settings.sinkshot` names and explains them."""

    spread: np.float32
    by_classes: np.float32
    overall: np.float32
    support_evidence: np.float32
    evidence_spreads: int
    inlier: np.float32
    other_lam: np.float32
    other_overall: np.float32
    rounds: int
    null_pooling: np.float32
    null_shift: np.float32
    few_strangers: np.float32
    few_fall: np.float32
    few_rows: np.float32
    most_strangers: np.float32


@part
def _centre(panels: Floats, everywhere: Floats, n: int, by_classes: float, by_row: Floats) -> np.float32:
    """Products of the middle of the pool with each row, and 1 / length of the rows less it; its own squared length."""
    depth, way = len(panels) // ((n + 15) // 16), np.float32(len(everywhere))
    for i in range(0, n, 8):
        store(by_row, PART, i, ZERO)
        store(by_row, SCALE, i, ZERO)
    for i in range(n):
        by_row[PART, i] = (ONE - by_classes) / np.float32(n)
    for j in range(len(everywhere)):
        s = zeros()
        for i in range(0, n, 8):
            s += load(everywhere, j, i)
        share = by_classes / (way * total(s))
        for i in range(0, n, 8):
            store(by_row, PART, i, load(by_row, PART, i) + load(everywhere, j, i) * share)
    times_gram(panels, n, by_row[PART : PART + 1], 1, by_row[ALONG : ALONG + 1])
    s = zeros()
    for i in range(0, n, 8):
        s += load(by_row, PART, i) * load(by_row, ALONG, i)
    square, typical = total(s), ZERO
    for i in range(n):
        by_row[SCALE, i] = panels[i // 16 * depth + i, i % 16] - TWO * by_row[ALONG, i] + square
        typical += abs(by_row[SCALE, i]) / np.float32(n)
    for i in range(n):
        some = by_row[SCALE, i] > _EPSILON * typical
        by_row[SCALE, i] = ONE / np.sqrt(by_row[SCALE, i]) if some else ZERO
    return np.float32(square)


@part
def _cosines(panels: Floats, n: int, a: Floats, by_row: Floats, square: float, scaled: Floats, out: Floats) -> None:
    """Cosines [way, n] of centred rows to the weights with coefficients `a`."""
    for j in range(len(a)):
        for i in range(0, n, 8):
            store(scaled, j, i, load(a, j, i) * load(by_row, SCALE, i))
    times_gram(panels, n, scaled, len(a), out)
    for j in range(len(a)):
        mass = dot = zeros()
        for i in range(0, n, 8):
            mass += load(scaled, j, i)
            dot += load(scaled, j, i) * load(by_row, ALONG, i)
        whole = total(mass)
        shift, length = whole * square - total(dot), zeros()
        for i in range(0, n, 8):
            inner = (load(out, j, i) - load(by_row, ALONG, i) * whole + shift) * load(by_row, SCALE, i)
            store(out, j, i, inner)
            length += load(a, j, i) * inner
        along = total(length)
        scale = ONE / np.sqrt(along) if along > ZERO else ONE
        for i in range(0, n, 8):
            store(out, j, i, load(out, j, i) * scale)


@part
def _others(everywhere: Floats, cosine: Floats, by_supports: Floats, i: int, constants: Evidence) -> Lanes:
    """Evidence of the eight rows from i for the classes other than their own."""
    way = len(everywhere)
    best, which = load(everywhere, 0, i), zeros()
    for j in range(1, way):
        p = load(everywhere, j, i)
        which = where_larger(p, best, np.float32(j), which)
        best = where_larger(p, best, p, best)
    normaliser = second = mean = zeros()
    for j in range(way):
        distance = which - np.float32(j)
        other = where_larger(distance * distance, np.float32(0.5), ONE, ZERO)
        c = load(cosine, j, i)
        e = exp2((c - ONE) * (constants.other_lam * LOG2_E)) * other
        normaliser, second = normaliser + e, second + e * c
        mean += load(by_supports, j, i) * other
    return second / normaliser + mean * (constants.overall * constants.other_overall / np.float32(way - 1))


@part
def collect(
    panels: Floats,
    everywhere: Floats,
    q: int,
    space: Floats,
    by_row: Floats,
    graph: Links,
    constants: Evidence,
) -> None:
    """Put evidence and evidence without the own class in by_row[EVIDENCE] and [NULL], as `evidence_of`.

    `everywhere` are class probabilities [way, n] of queries and supports, zero beyond; `space` is [4 * way, n].
    """
    way, n = len(everywhere), len(graph.degree)
    by_supports, cosine, scaled, a = space[:way], space[way : 2 * way], space[2 * way : 3 * way], space[3 * way :]
    square = _centre(panels, everywhere, n, constants.by_classes, by_row)
    for j in range(way):
        for i in range(0, n, 8):
            store(a, j, i, load(everywhere, j, i) * (ONE - load(by_row, ASKED, i)))
    _cosines(panels, n, a, by_row, square, scaled, by_supports)
    for i in range(0, n, 8):
        s = zeros()
        for j in range(way):
            s += load(by_supports, j, i)
        store(by_row, OVERALL, i, s * (ONE / np.float32(way)))
        store(by_row, EVIDENCE, i, load(by_row, OVERALL, i))
    for i in range(q, n):
        by_row[EVIDENCE, i] = constants.support_evidence
    average(by_row, EVIDENCE, constants.spread, constants.evidence_spreads, graph)
    for i in range(0, n, 8):
        asked = load(by_row, ASKED, i)
        share = sigmoid(load(by_row, EVIDENCE, i) * (ONE / constants.inlier)) * asked + (ONE - asked)
        for j in range(way):
            store(a, j, i, load(everywhere, j, i) * share)
    _cosines(panels, n, a, by_row, square, scaled, cosine)
    for i in range(0, n, 8):
        own = load(by_row, OVERALL, i) * constants.overall
        for j in range(way):
            own += load(everywhere, j, i) * load(cosine, j, i)
        store(by_row, EVIDENCE, i, own)
        store(by_row, NULL, i, _others(everywhere, cosine, by_supports, i, constants) if way > 1 else zeros())
    for i in range(q, n):
        by_row[EVIDENCE, i] = constants.support_evidence
    average(by_row, EVIDENCE, constants.spread, constants.evidence_spreads, graph)
    average(by_row, NULL, constants.spread, constants.evidence_spreads, graph)


@part
def reject(by_row: Floats, q: int, constants: Evidence) -> None:
    """Tell strangers from known queries by their evidence, a mixture of two: by_row[UNKNOWN], and what is known."""
    count, s = np.float32(q), zeros()
    for i in range(0, q, 8):
        s += load(by_row, NULL, i) * load(by_row, ASKED, i)
    centre, s = total(s) / count, zeros()
    for i in range(0, q, 8):
        distance = load(by_row, NULL, i) - centre
        s += distance * distance * load(by_row, ASKED, i)
    spread = max(total(s) / count, _LEAST_VARIANCE)
    width = np.sqrt(spread)
    centre += constants.null_shift * width
    for i in range(0, q, 8):
        known = sigmoid((load(by_row, EVIDENCE, i) - centre) * (TWO / width))
        store(by_row, RESPONSE, i, known * load(by_row, ASKED, i))
    for step in range(constants.rounds):
        mass = moment = deviation = zeros()
        for i in range(0, q, 8):
            known = load(by_row, RESPONSE, i)
            mass, moment = mass + known, moment + known * load(by_row, EVIDENCE, i)
        known_rows = total(mass)
        part_of = min(max(ONE - known_rows / count, np.float32(1e-3)), constants.most_strangers)
        rest = known_rows + np.float32(1e-3)
        mean = max(total(moment) / rest, centre + width)
        for i in range(0, q, 8):
            distance = load(by_row, EVIDENCE, i) - mean
            deviation += load(by_row, RESPONSE, i) * distance * distance
        variance = max(total(deviation) / rest, _LEAST_VARIANCE)
        common = constants.null_pooling * spread + (ONE - constants.null_pooling) * variance
        if step == constants.rounds - 1:
            blur = max(np.float32(3) * np.sqrt(common) / (mean - centre), ONE)
            doubt = constants.few_strangers * constants.few_strangers * blur**constants.few_fall
            doubt += constants.few_rows / count
            part_of = part_of * part_of * part_of / (part_of * part_of + doubt)
        slope, middle = (centre - mean) / common, (centre + mean) / TWO
        offset = np.log(part_of / (ONE - part_of))
        for i in range(0, q, 8):
            unknown = sigmoid((load(by_row, EVIDENCE, i) - middle) * slope + offset)
            store(by_row, UNKNOWN, i, unknown)
            store(by_row, RESPONSE, i, (ONE - unknown) * load(by_row, ASKED, i))
    for i in range(0, q, 8):
        known = ONE - load(by_row, UNKNOWN, i)
        known = where_larger(known, _LEAST_KNOWN, known, _LEAST_KNOWN)
        store(by_row, INSIDE, i, known * load(by_row, ASKED, i))
