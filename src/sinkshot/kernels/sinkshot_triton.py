# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The method `sinkshot` on the GPU: Gram matrices by `gram_triton`, then two kernels with one program per episode.

`_neighbours` makes the graph of an episode, `_transduce` does all steps of `sinkshot.methods.sinkshot` with the Gram
matrix and the graph as operands of the tensor cores. Arrays of an episode are [ROWS, WAYS], padded to powers of two,
supports first: a class that does not exist gets no probability, a row that does not exist is zero.

Products have float32 accuracy, by two float16 halves of each factor, as in `gram_triton`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from sinkshot import preprocess
from sinkshot.kernels.bms_triton import _halves, _product
from sinkshot.kernels.gram_triton import SCALE, Tensor, _both_sums, padded_rows, scaled_grams, split_bank
from sinkshot.kernels.sinkshot_triton_strangers import evidence_of, rejected, share_of_strangers, weights_of
from sinkshot.settings.constants import LEAST_LOGIT
from sinkshot.settings.sinkshot import FAINT, LEAST_KNOWN

if TYPE_CHECKING:
    from sinkshot.settings.sinkshot import SinkShotSettings

_GRAM_BYTES = 1 << 30  # of Gram matrices at once; graphs take as much again
_LEAST_LOGIT, _LOG2_E = tl.constexpr(LEAST_LOGIT), tl.constexpr(1.4426950408889634)
_FAINT, _LEAST_KNOWN, _TINY = tl.constexpr(FAINT), tl.constexpr(LEAST_KNOWN), tl.constexpr(1e-30)


def sinkshot_episodes(
    rows: Tensor,
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    way: int,
    centre: bool,
    class_centre: bool,
    normalise: bool,
    settings: SinkShotSettings,
) -> tuple[Tensor, Tensor]:
    """Run the method on episodes of a bank: probabilities [R, q, way] and scores of the unknown [R, q].

    Arguments are those of `bms_triton.bms_episodes`; `class_centre` subtracts the mean of the class means (Mc).
    """
    moved = centre or class_centre
    bank = split_bank(rows, moved)
    supports, total = support.shape[1], support.shape[1] + query.shape[1]
    at_once = max(1, _GRAM_BYTES // (4 * (total + 15) ** 2))
    answers = []
    with torch.cuda.device_of(rows):
        for begin in range(0, len(support), at_once):
            part = slice(begin, begin + at_once)
            labels = support_labels[part].contiguous()
            gram, unit = scaled_grams(bank, support[part], query[part], moved, normalise and not class_centre)
            if class_centre:
                whole = gram[:, :, :total] * (unit / SCALE.value)[:, None, None]
                whole = preprocess.centred_by_classes(whole, labels, normalise)
                unit = torch.diagonal(whole, dim1=1, dim2=2).amax(dim=1).clamp_min(1e-30)
                gram[:, :, :total] = whole * (SCALE.value / unit)[:, None, None]
            answers.append(_solve(gram, unit, labels, supports, total, way, settings))
    probabilities, unknown = (torch.cat(parts) for parts in zip(*answers, strict=True))
    return probabilities, unknown


def _solve(
    gram: Tensor, unit: Tensor, labels: Tensor, supports: int, total: int, way: int, s: SinkShotSettings
) -> tuple[Tensor, Tensor]:
    """All steps on Gram matrices, scaled to at most 64."""
    episodes, stride = len(gram), gram.shape[2]
    kind = {"dtype": torch.float32, "device": gram.device}
    graph = torch.empty_like(gram)
    root, closeness = torch.empty((episodes, total), **kind), torch.empty(episodes, **kind)
    out = torch.empty((episodes, total - supports, way), **kind)
    unknown = torch.empty((episodes, total - supports), **kind)
    size = {"ROWS": padded_rows(total)}
    neighbours = min(s.neighbours, total - 1)
    found = (graph, root, closeness)
    _neighbours[(episodes,)](found, gram, stride, total, neighbours, s.sharpness, **size, num_warps=16)
    shots = supports / way
    reach = (s.spread, s.spreads * math.log(s.spread), s.distance_doubt, s.most_spread)
    numbers = (s.power, s.lam_first, (s.lam_last / s.lam_first) ** (1 / s.steps), s.lam, s.support_weight)
    doubts = s.doubts(way, shots)
    heat = (s.log_temperature(shots, way), s.temperature_change, s.temperature_spread)
    odds = (s.suspicion_slope, s.suspicion_few, s.suspicion_unsure, s.suspicion_evidence, s.suspicion_from)
    suspicions = (*odds, s.suspicion_rows, s.suspicion_below, s.suspicion_width)
    evidence = (s.by_classes, s.overall, s.support_evidence, s.inlier, s.wary, s.wary_from, suspicions)
    offsets = (s.offset, s.offset_unsure, s.offset_few, s.offset_torn)
    doubtful = (s.depth, *offsets, s.few_strangers, s.most_strangers)
    _transduce[(episodes,)](
        out,
        unknown,
        (gram, unit, found, labels, stride),
        supports,
        total,
        reach,
        numbers,
        doubts,
        heat,
        evidence,
        doubtful,
        s.least_within,
        STEPS=s.steps,
        STRANGER_STEP=s.stranger_step,
        PASSES=s.passes,
        EVIDENCE_SPREADS=s.evidence_spreads,
        ROUNDS=s.rounds,
        WAY=way,
        WAYS=8 if way <= 8 else 16,
        **size,
        num_warps=8,
    )
    return out, unknown


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["count", "neighbours"])
def _neighbours(found, gram, stride, count, neighbours, sharpness, ROWS: tl.constexpr):
    """Weights S of an episode's graph [count, stride], roots of degrees [count] and closeness, as `neighbour_graph`."""
    graph, root, closeness = found
    number = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    is_real = row < count
    both = is_real[:, None] & is_real[None, :]
    diagonal = row[:, None] == row[None, :]
    place = (number * count + row)[:, None] * stride + row[None, :]
    g = tl.load(gram + place, mask=both, other=0.0)
    square_i, square_j = _both_sums(tl.where(diagonal, g, 0.0))
    length_i, length_j = tl.where(square_i > 0, square_i, 1.0), tl.where(square_j > 0, square_j, 1.0)
    cosine = g / (tl.sqrt(length_i)[:, None] * tl.sqrt(length_j)[None, :])
    cosine = tl.where(diagonal | ~both, -2.0, cosine)

    least = tl.full((ROWS,), 3.0, tl.float32)
    seen = tl.zeros((ROWS,), tl.int32)
    for _ in range(neighbours):  # the next value below, and how many rows have it
        value = tl.max(tl.where(cosine < least[:, None], cosine, -3.0), 1)
        more = tl.sum((cosine == value[:, None]).to(tl.int32), 1)
        least = tl.where(seen < neighbours, value, least)
        seen = tl.where(seen < neighbours, seen + more, seen)
    chosen = (cosine >= least[:, None]) & (cosine > 0)
    weight = tl.where(chosen, tl.exp2(sharpness * tl.log2(tl.where(chosen, cosine, 1.0))), 0.0)
    weight += tl.trans(weight)  # twice A: S and averages are the same
    degree_i, degree_j = tl.sum(weight, 1), tl.sum(weight, 0)
    root_i, root_j = tl.where(degree_i > 0, degree_i, 1.0), tl.where(degree_j > 0, degree_j, 1.0)
    weight /= tl.sqrt(root_i)[:, None] * tl.sqrt(root_j)[None, :]
    weight = tl.where(diagonal & (degree_i == 0)[:, None], 1.0, weight)
    tl.store(graph + place, weight, mask=both)
    tl.store(root + number * count + row, tl.sqrt(root_i), mask=is_real)
    near = tl.sum(tl.sum(tl.where(chosen, cosine, 0.0), 1), 0)
    tl.store(closeness + number, near / (count * tl.maximum(neighbours, 1)))


@triton.jit
def _unit(upper, lower, unit, a):
    """Cosines [ROWS, WAYS] of the weights with coefficients `a`, if rows have unit length."""
    largest = tl.max(a, 0)
    a *= (1.0 / tl.where(largest > 0, largest, 1.0) * SCALE)[None, :]  # unit length will hide the factor
    s = _product(upper, lower, a) * unit
    square = tl.sum(a * s, 0) * (1.0 / SCALE)
    return s * (tl.where(square > 0, tl.rsqrt(square), 1.0) * (1.0 / SCALE))[None, :]


@triton.jit
def _to_one(values, exists, WAY: tl.constexpr):
    """Divide class values [ROWS, WAYS] by their sum; where all are zero, every class gets the same."""
    total = tl.sum(values, 1)[:, None]
    return tl.where(exists & (total <= 0), 1.0 / WAY, values / tl.where(total > 0, total, 1.0))


@triton.jit
def _reach(closeness, reach):
    """The least share that neighbours give, that of this mean cosine, and the averages (`SinkShotSettings.reach`)."""
    least, fading, doubt, most = reach
    spread = tl.minimum(tl.maximum(1.0 - doubt * (1.0 - closeness) * (1.0 - closeness), least), most)
    return least, spread, tl.ceil(fading / tl.log(spread) - 0.01).to(tl.int32)


@triton.jit
def _smoothed(belongs, member, asked, exists, near, nearer, spread, times, power, WAY: tl.constexpr):
    """Average class probabilities over neighbours, and sharpen them again."""
    values = tl.where(asked[:, None], belongs, member)
    mixed = values
    for _ in range(times):
        mixed = (1.0 - spread) * values + (spread / (SCALE * SCALE)) * _product(near, nearer, mixed * SCALE)
    mixed = _to_one(tl.where(exists, mixed, 0.0), exists, WAY)
    sharp = tl.where(mixed > 0, tl.exp2(power * tl.log2(tl.where(mixed > 0, mixed, 1.0))), 0.0)
    return _to_one(sharp, exists, WAY)


@triton.jit
def _allocated(kernel, target, known, asked, exists, PASSES: tl.constexpr, WAY: tl.constexpr):
    """Sinkhorn to class sums `target` and row sums `known`; each row is then divided by its sum."""
    kernel = tl.where(asked[:, None] & exists, kernel, 0.0)
    idle = tl.where(asked, 0.0, 1.0)
    u = known / (tl.sum(kernel, 1) + idle)
    v = target
    for _ in range(PASSES):
        v = target / tl.maximum(tl.sum(kernel * u[:, None], 0), _TINY)
        u = known / tl.maximum(tl.sum(kernel * v[None, :], 1) + idle, _TINY)
    return _to_one(kernel * v[None, :], exists, WAY)


@triton.jit
def _shares(belongs, known, doubts, real, WAY: tl.constexpr):
    """Class shares [WAYS], counted and shrunk to equal ones (`methods.priors.shrunken_shares`)."""
    noise, bias, doubt, least, unsure_noise, unsure_from = doubts
    rows = tl.maximum(tl.sum(known, 0), 1.0)
    d = tl.where(real, tl.sum(known[:, None] * belongs, 0) / rows - 1.0 / WAY, 0.0)
    square = tl.sum(d * d, 0)
    unsure = tl.sum(tl.sum(known[:, None] * belongs * (1.0 - belongs), 1), 0) / rows
    estimated = noise * unsure / rows + bias + unsure_noise * tl.maximum(unsure - unsure_from, 0.0)
    some = square > 1e-20
    ratio = estimated / tl.where(some, square, 1.0)
    belief = tl.where(some, 1.0 / (1.0 + tl.exp2(doubt * tl.log2(ratio))), 0.0)
    return tl.where(real, tl.maximum(1.0 / WAY + belief * d, least / WAY), 0.0)


@triton.jit
def _calibrated(belongs, nearest, known, heat, exists, WAY: tl.constexpr):
    """Soften the probabilities by the temperature of the episode."""
    constant, change, spread_factor = heat
    rows = tl.sum(known, 0)
    mass = known[:, None] * belongs
    stayed = tl.sum(tl.sum(tl.where(nearest, mass, 0.0), 1), 0) / rows
    counts = tl.sum(mass, 0) / rows
    spread = WAY * tl.sum(counts * counts, 0) - 1.0
    logarithm = tl.maximum(constant + change * (1.0 - stayed) + spread_factor * spread, 0.0)
    soft = tl.exp2(tl.log2(tl.maximum(belongs, _FAINT)) * tl.exp2(-logarithm * _LOG2_E))
    return _to_one(tl.where(exists, soft, 0.0), exists, WAY)


@triton.jit
def _first_largest(values, exists, label, WAYS: tl.constexpr):
    """Whether a class is the first with a row's largest value, [ROWS, WAYS]."""
    values = tl.where(exists, values, float("-inf"))
    best = tl.min(tl.where(values == tl.max(values, 1)[:, None], label[None, :], WAYS), 1)
    return label[None, :] == best[:, None]


@triton.jit
def _matrix(pointer, number, count, stride, row, is_real):
    """Two halves of one matrix of many, [ROWS, ROWS]."""
    place = (number * count + row)[:, None] * stride + row[None, :]
    return tl.load(pointer + place, mask=is_real[:, None] & is_real[None, :], other=0.0)


@triton.jit(do_not_specialize=["supports", "count"])
def _transduce(  # long: one kernel with one parameter per line
    out,  # [R, queries, WAY]
    unknowns,  # [R, queries]
    arrays,
    supports,
    count,
    reach,
    numbers,
    doubts,
    heat,
    evidence_numbers,
    share_numbers,
    least_within,
    STEPS: tl.constexpr,
    STRANGER_STEP: tl.constexpr,
    PASSES: tl.constexpr,
    EVIDENCE_SPREADS: tl.constexpr,
    ROUNDS: tl.constexpr,
    WAY: tl.constexpr,
    WAYS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Steps 2 to 5 of the method for one episode."""
    gram, units, found, labels, stride = arrays
    graph, roots, closeness = found
    power, lam_step, lam_growth, lam, support_weight = numbers
    number = tl.program_id(0).to(tl.int64)
    row, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    is_real, asked, real = row < count, (row >= supports) & (row < count), label < WAY
    exists = real[None, :] & (row >= 0)[:, None]
    upper, lower = _halves(_matrix(gram, number, count, stride, row, is_real))
    near, nearer = _halves(_matrix(graph, number, count, stride, row, is_real) * SCALE)
    unit = tl.load(units + number)
    own = tl.load(labels + number * supports + row, mask=row < supports, other=-1)
    member = tl.where(own[:, None] == label[None, :], 1.0, 0.0)  # [ROWS, WAYS]

    evidence_spread, spread, times = _reach(tl.load(closeness + number), reach)
    scores = _unit(upper, lower, unit, member)
    nearest = _first_largest(scores, exists, label, WAYS)
    share = tl.where(real, 1.0 / WAY, 0.0)
    known = tl.where(asked, 1.0, 0.0)
    unknown, moves = tl.zeros_like(known), known
    for step in range(STEPS):
        logits = lam_step * _LOG2_E * scores + tl.log2(tl.where(real, share, 1.0))[None, :]
        logits = tl.where(exists, logits, float("-inf"))
        belongs = _to_one(tl.exp2(logits - tl.max(logits, 1)[:, None]), exists, WAY)
        belongs = _smoothed(belongs, member, asked, exists, near, nearer, spread, times, power, WAY)
        if step == STRANGER_STEP:
            everywhere = tl.where(asked[:, None], belongs, member)
            diagonal = tl.load(gram + (number * count + row) * stride + row, mask=is_real, other=0.0) * (unit / SCALE)
            root = tl.load(roots + number * count + row, mask=is_real, other=1.0)
            flags = (asked, is_real, exists, label)
            operands = (upper, lower, unit, diagonal, near, nearer, root, evidence_spread)
            evidence, near_class, next_class = evidence_of(
                everywhere, flags, operands, evidence_numbers, count, EVIDENCE_SPREADS, WAY
            )
            part, short, few, unsure = share_of_strangers(everywhere, near_class, next_class, flags, share_numbers)
            unknown = rejected(evidence, part, asked, least_within, ROUNDS)
            weight, moves = weights_of(evidence, short, few, unsure, asked, evidence_numbers, WAY)
            known = tl.where(asked, tl.maximum((1.0 - unknown) * weight, _LEAST_KNOWN), 0.0)
        share = _shares(tl.where(asked[:, None], belongs, 0.0), known, doubts, real, WAY)
        target = share * tl.sum(known, 0)
        belongs = _allocated(belongs, target, known, asked, exists, PASSES, WAY)
        mass = tl.where(asked[:, None], (known * moves)[:, None] * belongs * belongs, support_weight * member)
        scores = _unit(upper, lower, unit, mass)
        lam_step *= lam_growth
    target = share * tl.sum(known, 0)
    highest = tl.max(tl.where(exists, scores, float("-inf")), 1)
    kernel = tl.exp2(tl.maximum(lam * (scores - highest[:, None]), _LEAST_LOGIT) * _LOG2_E)
    belongs = _allocated(kernel, target, known, asked, exists, PASSES, WAY)
    belongs = _smoothed(belongs, member, asked, exists, near, nearer, spread, times, power, WAY)
    belongs = _allocated(belongs, target, known, asked, exists, PASSES, WAY)
    belongs = _calibrated(belongs, nearest, known, heat, exists, WAY)
    at = number * (count - supports) + row - supports
    tl.store(out + at[:, None] * WAY + label[None, :], belongs, mask=asked[:, None] & exists)
    tl.store(unknowns + at, unknown, mask=asked)
