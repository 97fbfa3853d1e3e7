# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The score of unknown queries of `methods.sinkshot.strangers` on the GPU: a part of `sinkshot_triton`."""

from __future__ import annotations

import triton
import triton.language as tl

from sinkshot.kernels.bms_triton import _product
from sinkshot.kernels.gram_triton import SCALE
from sinkshot.settings.sinkshot import FEWEST, LEAST_GAP, LEAST_SQUARE, LEAST_STRANGERS, LEAST_VARIANCE, PROBIT

_LOG2_E, _LEAST_VARIANCE = tl.constexpr(1.4426950408889634), tl.constexpr(LEAST_VARIANCE)
_EPSILON = tl.constexpr(4 * 2.0**-23)
_LEAST_GAP, _LEAST_SQUARE = tl.constexpr(LEAST_GAP), tl.constexpr(LEAST_SQUARE)
_LEAST_STRANGERS, _FEWEST, _PROBIT = tl.constexpr(LEAST_STRANGERS), tl.constexpr(FEWEST), tl.constexpr(PROBIT)


@triton.jit
def _sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    return 1.0 / (1.0 + tl.exp2(-tl.maximum(x, -80.0) * _LOG2_E))


@triton.jit
def _column(values, label, at):
    """Column `at` of values [ROWS, WAYS]."""
    return tl.sum(tl.where(label[None, :] == at, values, 0.0), 1)


@triton.jit
def _averaged(first, second, label, near, nearer, root, spread, EVIDENCE_SPREADS: tl.constexpr):
    """Mix two values of each row with neighbours' values by D^-1 A."""
    values = tl.where(label[None, :] == 0, first[:, None], tl.where(label[None, :] == 1, second[:, None], 0.0))
    values *= root[:, None]
    mixed = values
    for _ in range(EVIDENCE_SPREADS):
        mixed = (1.0 - spread) * values + (spread / (SCALE * SCALE)) * _product(near, nearer, mixed * SCALE)
    mixed /= root[:, None]
    return _column(mixed, label, 0), _column(mixed, label, 1)


@triton.jit
def _cosines(a, upper, lower, unit, along, square, scale):
    """Cosines [ROWS, WAYS] of centred rows to the weights with coefficients `a`, and the coefficients at length one."""
    scaled = a * scale[:, None]
    largest = tl.max(scaled, 0)
    factor = (1.0 / tl.where(largest > 0, largest, 1.0))[None, :]
    scaled, a = scaled * factor, a * factor  # unit length will hide the factor
    whole, dot = tl.sum(scaled, 0), tl.sum(scaled * along[:, None], 0)
    inner = _product(upper, lower, scaled * SCALE) * (unit / (SCALE * SCALE))
    inner += (whole * square - dot)[None, :] - along[:, None] * whole[None, :]
    inner *= scale[:, None]
    length = tl.sum(a * inner, 0)
    short = tl.where(length > 0, tl.rsqrt(tl.where(length > 0, length, 1.0)), 1.0)[None, :]
    return inner * short, a * short


@triton.jit
def evidence_of(everywhere, flags, operands, numbers, count, EVIDENCE_SPREADS: tl.constexpr, WAY: tl.constexpr):
    """Evidence of being known and how near rows are to a class, [ROWS] each; how near queries are to the next."""
    asked, is_real, exists, label = flags
    upper, lower, unit, diagonal, near, nearer, root, spread = operands
    by_classes, weight, support_evidence, inlier_width, _, _, _ = numbers
    size = tl.sum(everywhere, 0)
    of_classes = tl.sum(everywhere / tl.where(size > 0, size, 1.0)[None, :], 1) / WAY
    part = tl.where(is_real, by_classes * of_classes + (1.0 - by_classes) / count, 0.0)
    column = tl.where(label[None, :] == 0, part[:, None], 0.0)
    along = _column(_product(upper, lower, column * SCALE), label, 0) * (unit / (SCALE * SCALE))
    square = tl.sum(along * part, 0)
    squares = tl.where(is_real, diagonal - 2.0 * along + square, 0.0)
    some = squares > _EPSILON * tl.sum(tl.abs(squares), 0) / count
    scale = tl.where(some, tl.rsqrt(tl.where(some, squares, 1.0)), 0.0)

    supported = tl.where(asked[:, None], 0.0, everywhere)
    by_supports, _ = _cosines(supported, upper, lower, unit, along, square, scale)
    overall = tl.sum(tl.where(exists, by_supports, 0.0), 1) / WAY
    given = is_real & ~asked
    first = tl.where(given, support_evidence, overall)
    spread_out, _ = _averaged(first, first, label, near, nearer, root, spread, EVIDENCE_SPREADS)
    inlier = tl.where(asked, _sigmoid(spread_out / inlier_width), 1.0)
    cosine, scaled = _cosines(everywhere * inlier[:, None], upper, lower, unit, along, square, scale)
    own = tl.sum(everywhere * cosine, 1)
    evidence = tl.where(given, support_evidence, own + weight * overall)

    itself = tl.where(some[:, None], scaled, 0.0)
    without = tl.sqrt(tl.maximum(1.0 - 2.0 * scaled * cosine + scaled * itself, _LEAST_SQUARE))
    near_class = tl.max(tl.where(exists, (cosine - itself) / without, -2.0), 1)
    evidence, near_class = _averaged(evidence, near_class, label, near, nearer, root, spread, EVIDENCE_SPREADS)

    largest = tl.max(tl.where(exists, everywhere, -1.0), 1)
    best = tl.min(tl.where(exists & (everywhere == largest[:, None]), label[None, :], 99), 1)
    second = tl.max(tl.where(exists & (label[None, :] != best[:, None]), cosine, -9.0 if WAY > 1 else 0.0), 1)
    queries = tl.sum(tl.where(asked, 1.0, 0.0), 0)
    next_class = tl.sum(tl.where(asked, second, 0.0), 0) / queries
    return evidence, near_class, next_class


@triton.jit
def share_of_strangers(everywhere, near_class, next_class, flags, numbers):
    """The estimated share of queries that belong to no class, `shortfall`, how many labels count, how unsure p is."""
    asked, is_real, _, _ = flags
    depth, first_offset, by_unsure, by_few, by_torn, shrink, most = numbers
    given = is_real & ~asked
    queries, supports = tl.sum(tl.where(asked, 1.0, 0.0), 0), tl.sum(tl.where(given, 1.0, 0.0), 0)
    member = tl.where(given[:, None], everywhere, 0.0)
    belongs = tl.where(asked[:, None], everywhere, 0.0)
    shots = tl.maximum(tl.sum(member, 0), 1.0)  # [WAYS]
    size = tl.sum(belongs, 0) / queries
    reference = tl.sum(size * tl.sum(member * near_class[:, None], 0) / shots, 0)
    gap = tl.maximum(reference - next_class, _LEAST_GAP)
    unsure = 1.0 - tl.sum(tl.sum(belongs * belongs, 1), 0) / queries
    attracted = tl.sum(size / (shots * tl.sqrt(shots)), 0)
    few = tl.sum(size * size / shots, 0)
    distance = tl.where(given, near_class - tl.sum(tl.where(given, near_class, 0.0), 0) / supports, 0.0)
    spread = tl.sum(distance * distance, 0) / tl.maximum(supports - 1.0, 1.0)
    offset = first_offset + by_unsure * unsure * attracted + tl.sqrt(few * spread) / gap + by_few * few
    torn = unsure * unsure * unsure * unsure
    offset += by_torn * torn * torn
    short = (reference - tl.sum(tl.where(asked, near_class, 0.0), 0) / queries) / gap
    part = tl.minimum(tl.maximum((short - offset) / depth, 1e-3), most)
    part = tl.maximum(part * part * part / (part * part + shrink * shrink), _LEAST_STRANGERS)
    return part, short, few, unsure


@triton.jit
def weights_of(evidence, short, few, unsure, asked, numbers, WAY: tl.constexpr):
    """How far queries count, and how far they move class weights, [ROWS] each."""
    _, _, _, inlier_width, wary, wary_from, suspicions = numbers
    slope, by_few, by_unsure, by_evidence, start, rows, below, step = suspicions
    standard, centre, queries = _standardised(evidence, asked)
    fade = tl.minimum(rows * WAY / queries, 1.0)
    low = short - by_few * few - by_unsure * unsure - by_evidence * centre
    suspicion = fade * fade * _sigmoid(slope * (low + start))
    weight = tl.sqrt(1.0 - suspicion * _sigmoid((below - standard) / step))
    moves = _sigmoid((evidence - wary * (short - wary_from)) / inlier_width)
    return weight, weight * (moves + suspicion * (1.0 - moves))


@triton.jit
def _standardised(evidence, asked):
    """Evidence [ROWS] less its mean, over its deviation; the mean, and the number of queries."""
    queries = tl.sum(tl.where(asked, 1.0, 0.0), 0)
    centre = tl.sum(tl.where(asked, evidence, 0.0), 0) / queries
    distance = tl.where(asked, evidence - centre, 0.0)
    width = tl.sqrt(tl.maximum(tl.sum(distance * distance, 0) / queries, _LEAST_VARIANCE))
    return distance / width, centre, queries


@triton.jit
def rejected(evidence, part, asked, least_within, ROUNDS: tl.constexpr):
    """Probability [ROWS] of being the lower of two kinds of evidence, of which a share `part` is."""
    standard, _, queries = _standardised(evidence, asked)
    prior = tl.log(part / (1.0 - part))
    odds = 2.0 * (prior / _PROBIT - standard)
    for _ in range(ROUNDS):
        unknown = tl.where(asked, _sigmoid(odds), 0.0)
        known = tl.where(asked, 1.0 - unknown, 0.0)
        strange = tl.sum(unknown, 0) + _FEWEST
        low = tl.sum(unknown * standard, 0) / strange
        high = tl.sum(known * standard, 0) / (queries - strange + 2.0 * _FEWEST)
        below, above = standard - low, standard - high
        variance = tl.maximum(tl.sum(unknown * below * below + known * above * above, 0) / queries, least_within)
        odds = (low - high) * (standard - 0.5 * (low + high)) / variance + prior
    return _sigmoid(odds)
