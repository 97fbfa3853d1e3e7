# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Accuracies, scores and the histogram of confidences from probabilities on the GPU, one program per episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from sinkshot import calibration
from sinkshot.arrays import to_numpy
from sinkshot.calibration import BINS, RANKS, Confidence, Judged

Tensor = Any
"""A torch tensor."""

_BINS, _RANKS = tl.constexpr(BINS), tl.constexpr(RANKS)
_SHIFT, _SUREST = tl.constexpr(calibration.SHIFT), tl.constexpr(calibration.SUREST)
_UNITS, _SMALLEST = tl.constexpr(float(calibration.UNITS)), tl.constexpr(calibration.SMALLEST)


def judge(probabilities: Tensor, labels: Tensor) -> Judged:
    """Compare probabilities [R, q, way] with labels [R, q] on one device, as `sinkshot.calibration.judge` does."""
    episodes, queries, way = probabilities.shape
    scores = torch.empty((4, episodes), dtype=torch.float64, device=probabilities.device)
    counts = torch.zeros(2 * RANKS + 4 * BINS, dtype=torch.int64, device=probabilities.device)
    places = {"QUERIES": triton.next_power_of_2(queries), "WAYS": triton.next_power_of_2(way)}
    with torch.cuda.device_of(probabilities):
        sizes = (*labels.stride(), episodes, queries, way)
        _judge[(episodes,)](probabilities.contiguous(), labels, scores, counts, *sizes, **places, num_warps=1)
    ranked, binned = np.split(to_numpy(counts), [2 * RANKS])
    accuracy, macro_accuracy, brier, nll = to_numpy(scores)
    confidence = Confidence(ranked.reshape(2, RANKS), binned.reshape(4, BINS))
    return Judged(accuracy, macro_accuracy, brier, nll, confidence)


@triton.jit(do_not_specialize=["by_episode", "by_query", "episodes", "queries", "way"])
def _judge(  # long: one kernel with one parameter per line
    probabilities,
    labels,
    scores,
    counts,
    by_episode,
    by_query,
    episodes,
    queries,
    way,
    QUERIES: tl.constexpr,
    WAYS: tl.constexpr,
):
    """Names as in `sinkshot.kernels.metrics_numba`."""
    number = tl.program_id(0).to(tl.int64)
    query, label = tl.arange(0, QUERIES), tl.arange(0, WAYS)
    inside = query < queries
    truth = tl.load(labels + number * by_episode + query * by_query, mask=inside, other=-1)
    known = inside & (truth >= 0)
    used = inside[:, None] & (label < way)[None, :]
    at = (number * queries + query[:, None]) * way + label[None, :]
    p = tl.load(probabilities + at, mask=used, other=0.0).to(tl.float32)  # [QUERIES, WAYS]
    largest = tl.max(tl.where(used, p, -1.0), 1)
    best = tl.min(tl.where((p == largest[:, None]) & used, label[None, :], WAYS), 1)
    right = known & (best == truth)

    wide = p.to(tl.float64)
    squares = tl.sum(wide * wide, 1)
    spoilt = 0.0 * tl.sum(squares, 0)  # NaN where a probability is not finite
    member = known[:, None] & (label[None, :] == truth[:, None])
    own = tl.sum(tl.where(member, wide, 0.0), 1)
    distance = tl.sum(tl.where(known, squares - 2 * own + 1, 0.0), 0)
    loss = -tl.sum(tl.where(known, tl.log(tl.maximum(own, _SMALLEST)), 0.0), 0)
    of_class = tl.sum(member.to(tl.int32), 0)
    hits = tl.sum((member & right[:, None]).to(tl.int32), 0)
    recall = tl.where(of_class > 0, hits.to(tl.float64) / tl.maximum(of_class, 1).to(tl.float64), 0.0)
    all_known = tl.sum(known.to(tl.int32), 0).to(tl.float64)
    present = tl.sum((of_class > 0).to(tl.int32), 0).to(tl.float64)
    tl.store(scores + number, tl.sum(right.to(tl.int32), 0).to(tl.float64) / all_known)
    tl.store(scores + episodes + number, tl.sum(recall, 0) / present)
    tl.store(scores + 2 * episodes + number, distance / all_known + spoilt)
    tl.store(scores + 3 * episodes + number, loss / all_known + spoilt)

    confidence = tl.where(largest < 1, largest, 1.0)
    rank = tl.maximum(((1.0 - confidence).to(tl.int32, bitcast=True) >> _SHIFT) - _SUREST, 0)
    one, hit, doubted = known.to(tl.int64), right.to(tl.int64), rank > 0
    tl.atomic_add(counts + rank, one, mask=known & doubted, sem="relaxed")
    tl.atomic_add(counts + _RANKS + rank, hit, mask=right & doubted, sem="relaxed")
    tl.atomic_add(counts, tl.sum(tl.where(doubted, 0, one), 0), sem="relaxed")  # many are as sure as can be
    tl.atomic_add(counts + _RANKS, tl.sum(tl.where(doubted, 0, hit), 0), sem="relaxed")
    sure = confidence.to(tl.float64)
    place = tl.maximum(tl.ceil(sure * _BINS).to(tl.int32) - 1, 0)
    bins = tl.arange(0, 16)
    there = known[:, None] & (place[:, None] == bins[None, :])  # [QUERIES, 16]
    units = tl.floor(sure * _UNITS + 0.5).to(tl.int64)
    of_squares = tl.floor(sure * sure * _UNITS + 0.5).to(tl.int64)
    binned, some = counts + 2 * _RANKS + bins, bins < _BINS
    total = tl.sum(there.to(tl.int64), 0)
    filled = some & (total > 0)
    tl.atomic_add(binned, total, mask=filled, sem="relaxed")
    tl.atomic_add(binned + _BINS, tl.sum(tl.where(there, hit[:, None], 0), 0), mask=filled, sem="relaxed")
    tl.atomic_add(binned + 2 * _BINS, tl.sum(tl.where(there, units[:, None], 0), 0), mask=filled, sem="relaxed")
    tl.atomic_add(binned + 3 * _BINS, tl.sum(tl.where(there, of_squares[:, None], 0), 0), mask=filled, sem="relaxed")
