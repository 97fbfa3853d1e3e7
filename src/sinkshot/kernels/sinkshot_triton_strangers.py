# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The score of unknown queries of `methods.sinkshot.strangers` on the GPU: a part of `sinkshot_triton`."""

from __future__ import annotations

import triton
import triton.language as tl

from sinkshot.kernels.bms_triton import _product
from sinkshot.kernels.gram_triton import SCALE
from sinkshot.settings.sinkshot import LEAST_VARIANCE

_LOG2_E, _LEAST_VARIANCE = tl.constexpr(1.4426950408889634), tl.constexpr(LEAST_VARIANCE)
_EPSILON = tl.constexpr(4 * 2.0**-23)


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
    """Cosines [ROWS, WAYS] of centred rows to the weights with coefficients `a`."""
    scaled = a * scale[:, None]
    largest = tl.max(scaled, 0)
    factor = (1.0 / tl.where(largest > 0, largest, 1.0))[None, :]
    scaled, a = scaled * factor, a * factor  # unit length will hide the factor
    whole, dot = tl.sum(scaled, 0), tl.sum(scaled * along[:, None], 0)
    inner = _product(upper, lower, scaled * SCALE) * (unit / (SCALE * SCALE))
    inner += (whole * square - dot)[None, :] - along[:, None] * whole[None, :]
    inner *= scale[:, None]
    length = tl.sum(a * inner, 0)
    return inner * tl.where(length > 0, tl.rsqrt(tl.where(length > 0, length, 1.0)), 1.0)[None, :]


@triton.jit
def evidence_of(everywhere, flags, operands, numbers, count, EVIDENCE_SPREADS: tl.constexpr, WAY: tl.constexpr):
    """Evidence of being known, and the same with each row's own class left out, [ROWS] each."""
    asked, is_real, exists, label = flags
    upper, lower, unit, diagonal, near, nearer, root, spread = operands
    by_classes, weight, support_evidence, inlier_width, other_lam, other_overall = numbers
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
    by_supports = _cosines(supported, upper, lower, unit, along, square, scale)
    overall = tl.sum(tl.where(exists, by_supports, 0.0), 1) / WAY
    given = is_real & ~asked
    first = tl.where(given, support_evidence, overall)
    spread_out, _ = _averaged(first, first, label, near, nearer, root, spread, EVIDENCE_SPREADS)
    inlier = tl.where(asked, _sigmoid(spread_out / inlier_width), 1.0)
    cosine = _cosines(everywhere * inlier[:, None], upper, lower, unit, along, square, scale)
    own = tl.sum(everywhere * cosine, 1)
    evidence = tl.where(given, support_evidence, own + weight * overall)

    largest = tl.max(tl.where(exists, everywhere, -1.0), 1)
    best = tl.min(tl.where(exists & (everywhere == largest[:, None]), label[None, :], 99), 1)
    other = exists & (label[None, :] != best[:, None])
    e = tl.where(other, tl.exp2((cosine - 1.0) * (other_lam * _LOG2_E)), 0.0)
    second = tl.sum(e * cosine, 1) / tl.sum(e, 1)
    mean = tl.sum(tl.where(other, by_supports, 0.0), 1) / (WAY - 1)
    null = tl.where(is_real, second + weight * other_overall * mean, 0.0)
    return _averaged(evidence, null, label, near, nearer, root, spread, EVIDENCE_SPREADS)


@triton.jit
def strangers(evidence, null, asked, numbers, queries, ROUNDS: tl.constexpr):
    """Probability of each query to belong to none of the classes, [ROWS]."""
    pooling, shift, few, fall, few_rows, most = numbers
    centre = tl.sum(tl.where(asked, null, 0.0), 0) / queries
    distance = tl.where(asked, null - centre, 0.0)
    spread = tl.maximum(tl.sum(distance * distance, 0) / queries, _LEAST_VARIANCE)
    width = tl.sqrt(spread)
    centre += shift * width
    unknown = 1.0 - _sigmoid(2.0 * (evidence - centre) / width)
    for step in range(ROUNDS):
        known = tl.where(asked, 1.0 - unknown, 0.0)
        mass = tl.sum(known, 0)
        part = tl.minimum(tl.maximum(1.0 - mass / queries, 1e-3), most)
        rest = mass + 1e-3
        mean = tl.maximum(tl.sum(known * evidence, 0) / rest, centre + width)
        distance = evidence - mean
        variance = tl.maximum(tl.sum(known * distance * distance, 0) / rest, _LEAST_VARIANCE)
        common = pooling * spread + (1.0 - pooling) * variance
        blur = tl.maximum(3.0 * tl.sqrt(common) / (mean - centre), 1.0)
        doubt = few * few * tl.exp2(fall * tl.log2(blur)) + few_rows / queries
        part = tl.where(step == ROUNDS - 1, part * part * part / (part * part + doubt), part)
        odds = (centre - mean) * (evidence - 0.5 * (centre + mean)) / common + tl.log(part / (1.0 - part))
        unknown = _sigmoid(odds)
    return unknown
