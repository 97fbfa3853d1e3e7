"""The score of unknown queries of `methods.sinkshot.strangers` on one episode, compiled: a part of `sinkshot_numba`.

Rows stand queries first, then supports. Numbers per row stand in one array, by the names below; the first four are
those of `bms_sinkhorn_numba`.
"""

from typing import Any, NamedTuple

import numpy as np

from sinkshot.kernels.bms_sinkhorn_numba import INSIDE
from sinkshot.kernels.gram_products_numba import times_gram
from sinkshot.kernels.neighbour_graph_numba import Links, average
from sinkshot.kernels.simd import (
    ONE,
    TWO,
    ZERO,
    Floats,
    load,
    part,
    root,
    sigmoid,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.settings.sinkshot import (
    FEWEST,
    LEAST_GAP,
    LEAST_KNOWN,
    LEAST_SQUARE,
    LEAST_STRANGERS,
    LEAST_VARIANCE,
    PROBIT,
    SinkShotSettings,
)

ASKED, NEAREST, PART, ALONG, SCALE, OVERALL, EVIDENCE, NEAR, UNKNOWN, MOVES = range(4, 14)
ROWS = 14
_EPSILON = np.float32(4 * np.finfo(np.float32).eps)
_LEAST_KNOWN, _LEAST_VARIANCE = np.float32(LEAST_KNOWN), np.float32(LEAST_VARIANCE)
_LEAST_GAP, _LEAST_SQUARE = np.float32(LEAST_GAP), np.float32(LEAST_SQUARE)
_LEAST_STRANGERS, _FEWEST = np.float32(LEAST_STRANGERS), np.float32(FEWEST)
_HALF, _PROBIT, _MOST_ODDS = np.float32(0.5), np.float32(PROBIT), np.float32(80)


class Evidence(NamedTuple):
    """The constants of strangers, as `settings.sinkshot` names and explains them."""

    spread: np.float32
    by_classes: np.float32
    overall: np.float32
    support_evidence: np.float32
    evidence_spreads: int
    inlier: np.float32
    depth: np.float32
    offset: np.float32
    offset_unsure: np.float32
    offset_few: np.float32
    offset_torn: np.float32
    few_strangers: np.float32
    most_strangers: np.float32
    wary: np.float32
    wary_from: np.float32
    suspicion_slope: np.float32
    suspicion_few: np.float32
    suspicion_unsure: np.float32
    suspicion_evidence: np.float32
    suspicion_from: np.float32
    suspicion_rows: np.float32
    suspicion_below: np.float32
    suspicion_width: np.float32
    rounds: int
    least_within: np.float32


def evidence_constants(settings: SinkShotSettings) -> Evidence:
    """What compiled code needs of the settings to tell strangers."""
    values: list[Any] = [getattr(settings, name) for name in Evidence._fields]
    return Evidence._make(value if isinstance(value, int) else np.float32(value) for value in values)


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
def _nearness(a: Floats, cosine: Floats, n: int, by_row: Floats) -> None:
    """The largest cosine of each row to a class weight without the row itself; `a` is scaled."""
    for j in range(len(a)):
        s = zeros()
        for i in range(0, n, 8):
            s += load(a, j, i) * load(cosine, j, i)
        length = total(s)
        scale = ONE / length if length > ZERO else ONE
        for i in range(0, n, 8):
            store(a, j, i, load(a, j, i) * scale)
    for i in range(0, n, 8):
        directed, best = where_larger(load(by_row, SCALE, i), ZERO, ONE, ZERO), zeros() - TWO
        for j in range(len(a)):
            scaled, c = load(a, j, i), load(cosine, j, i)
            itself = scaled * directed
            square = ONE - TWO * scaled * c + scaled * itself
            near = (c - itself) / root(where_larger(square, _LEAST_SQUARE, square, _LEAST_SQUARE))
            best = where_larger(near, best, near, best)
        store(by_row, NEAR, i, best)


@part
def _left_out(everywhere: Floats, cosine: Floats, q: int, by_row: Floats) -> np.float32:
    """Mean over queries of the largest cosine to a class other than their own."""
    s = zeros()
    for i in range(0, q, 8):
        best, which = load(everywhere, 0, i), zeros()
        for j in range(1, len(everywhere)):
            p = load(everywhere, j, i)
            which = where_larger(p, best, np.float32(j), which)
            best = where_larger(p, best, p, best)
        second = zeros() - np.float32(9)
        for j in range(len(everywhere)):
            distance = which - np.float32(j)
            c = where_larger(distance * distance, _HALF, load(cosine, j, i), -np.float32(9))
            second = where_larger(c, second, c, second)
        s += second * load(by_row, ASKED, i)
    return np.float32(total(s) / np.float32(q))


@part
def collect(
    panels: Floats,
    everywhere: Floats,
    q: int,
    space: Floats,
    by_row: Floats,
    graph: Links,
    constants: Evidence,
) -> np.float32:
    """Put evidence and nearness in by_row[EVIDENCE] and [NEAR], return how near the next class is, as `evidence_of`.

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
    _nearness(a, cosine, n, by_row)
    for i in range(q, n):
        by_row[EVIDENCE, i] = constants.support_evidence
    average(by_row, EVIDENCE, constants.spread, constants.evidence_spreads, graph)
    average(by_row, NEAR, constants.spread, constants.evidence_spreads, graph)
    return _left_out(everywhere, cosine, q, by_row) if way > 1 else ZERO


@part
def share_of_strangers(
    everywhere: Floats, q: int, n: int, by_row: Floats, left_out: float, constants: Evidence
) -> tuple[np.float32, np.float32, np.float32]:
    """The estimated share of queries that belong to no class, `shortfall`, and that less what few labels explain.

    Rows from q to n are supports.
    """
    queries, supports = np.float32(q), np.float32(n - q)
    reference = attracted = few = mean = spread = ZERO
    of_queries = squares = zeros()
    for i in range(0, q, 8):
        of_queries += load(by_row, NEAR, i) * load(by_row, ASKED, i)
    for j in range(len(everywhere)):
        counted, shots, near = zeros(), ZERO, ZERO
        for i in range(0, q, 8):
            p = load(everywhere, j, i) * load(by_row, ASKED, i)
            counted, squares = counted + p, squares + p * p
        for i in range(q, n):
            shots += everywhere[j, i]
            near += everywhere[j, i] * by_row[NEAR, i]
        size = total(counted) / queries
        reference += size * near / shots
        attracted += size / (shots * np.sqrt(shots))
        few += size * size / shots
    for i in range(q, n):
        mean += by_row[NEAR, i] / supports
    for i in range(q, n):
        spread += (by_row[NEAR, i] - mean) ** 2 / max(supports - ONE, ONE)
    gap = max(reference - left_out, _LEAST_GAP)
    unsure = ONE - total(squares) / queries
    offset = constants.offset + constants.offset_unsure * unsure * attracted
    offset += np.sqrt(few * spread) / gap + constants.offset_few * few + constants.offset_torn * unsure**8
    short = (reference - total(of_queries) / queries) / gap
    share = min(max((short - offset) / constants.depth, np.float32(1e-3)), constants.most_strangers)
    doubt = constants.few_strangers * constants.few_strangers
    low = short - constants.suspicion_few * few - constants.suspicion_unsure * unsure
    part = max(share * share * share / (share * share + doubt), _LEAST_STRANGERS)
    return np.float32(part), np.float32(short), np.float32(low)


@part
def _suspicion(low: float, by_class: float, constants: Evidence) -> np.float32:
    """How likely it is that some queries are outliers, as `suspicion_of`; `by_class` are the queries over the way."""
    odds = constants.suspicion_slope * (low + constants.suspicion_from)
    fade = min(ONE, constants.suspicion_rows / by_class)
    return np.float32(fade * fade / (ONE + np.exp(-max(odds, -_MOST_ODDS))))


@part
def reject(by_row: Floats, q: int, way: int, seen: tuple[float, float, float], constants: Evidence) -> None:
    """Mixture of two kinds of evidence: by_row[UNKNOWN], and what is known and moves.

    `seen` is what `share_of_strangers` returns.
    """
    count, s = np.float32(q), zeros()
    share, short, low = seen
    least = constants.wary * (short - constants.wary_from)
    for i in range(0, q, 8):
        store(by_row, MOVES, i, sigmoid((load(by_row, EVIDENCE, i) - least) * (ONE / constants.inlier)))
    for i in range(0, q, 8):
        s += load(by_row, EVIDENCE, i) * load(by_row, ASKED, i)
    centre, s = total(s) / count, zeros()
    for i in range(0, q, 8):
        distance = load(by_row, EVIDENCE, i) - centre
        s += distance * distance * load(by_row, ASKED, i)
    width = np.sqrt(max(total(s) / count, _LEAST_VARIANCE))
    suspicion = _suspicion(low - constants.suspicion_evidence * centre, count / np.float32(way), constants)
    prior = np.log(share / (ONE - share))
    for i in range(0, q, 8):
        standard = (load(by_row, EVIDENCE, i) - centre) / width
        store(by_row, EVIDENCE, i, standard)
        store(by_row, UNKNOWN, i, sigmoid((prior / _PROBIT - standard) * TWO))
    for _ in range(constants.rounds):
        mass = lower = upper = within = zeros()
        for i in range(0, q, 8):
            asked, e = load(by_row, ASKED, i), load(by_row, EVIDENCE, i)
            unknown = load(by_row, UNKNOWN, i) * asked
            mass, lower, upper = mass + unknown, lower + unknown * e, upper + (asked - unknown) * e
        strange = total(mass) + _FEWEST
        low, high = total(lower) / strange, total(upper) / (count - strange + TWO * _FEWEST)
        for i in range(0, q, 8):
            asked, e = load(by_row, ASKED, i), load(by_row, EVIDENCE, i)
            unknown = load(by_row, UNKNOWN, i) * asked
            within += unknown * (e - low) * (e - low) + (asked - unknown) * (e - high) * (e - high)
        slope = (low - high) / max(total(within) / count, constants.least_within)
        middle = _HALF * (low + high)
        for i in range(0, q, 8):
            store(by_row, UNKNOWN, i, sigmoid((load(by_row, EVIDENCE, i) - middle) * slope + prior))
    for i in range(0, q, 8):
        below = sigmoid((constants.suspicion_below - load(by_row, EVIDENCE, i)) * (ONE / constants.suspicion_width))
        weight, moves = root(ONE - below * suspicion), load(by_row, MOVES, i)
        known = (ONE - load(by_row, UNKNOWN, i)) * weight
        known = where_larger(known, _LEAST_KNOWN, known, _LEAST_KNOWN)
        store(by_row, INSIDE, i, known * load(by_row, ASKED, i))
        store(by_row, MOVES, i, weight * (moves + (ONE - moves) * suspicion))
