# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Gram matrices of episodes on the GPU, one program per episode.

A factor is scaled to at most 64 and split into two float16 numbers, which hold 22 of its bits; products of halves are
summed in float32, so that matrices have float32 accuracy.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

Tensor = Any
"""A torch tensor."""

_COLUMNS = 64  # features that are multiplied at once

SCALE = tl.constexpr(64.0)  # rows are scaled to this before the split, so that halves fit float16
_ZERO_ROW = tl.constexpr(1e-6)  # fraction of a row's squared length: anything smaller after centring is rounding


def gram_matrices(rows: Tensor, both: Tensor, *, centre: bool, normalise: bool) -> Tensor:
    """Gram matrices [R, N, N] of the rows `both` [R, N] of a bank, optionally centred and of unit length."""
    with torch.cuda.device_of(rows):
        gram, unit = scaled_grams(split_bank(rows, centre), both, both[:, :0], centre, normalise)
    return gram[:, :, : both.shape[1]] * (unit / SCALE.value)[:, None, None]


def split_bank(rows: Tensor, centre: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return two float16 halves of scaled rows, [n, d] with d a multiple of the block, and the square of the scale.

    Subtracting the mean of a task removes any common shift. Subtracting the mean of the bank first avoids cancellation.
    """
    if centre:
        rows = rows - rows.mean(dim=0)
    scale = rows.abs().amax().clamp_min(1e-30) / SCALE.value
    rows = torch.nn.functional.pad(rows / scale, (0, -rows.shape[1] % _COLUMNS))
    upper = rows.half()
    return upper, (rows - upper).half(), scale * scale


def padded_rows(rows: int) -> int:
    """Return the padded number of rows of an episode: kernels are compiled for 64 and for 128."""
    return 64 if rows <= 64 else 128


def scaled_grams(
    bank: tuple[Tensor, ...], support: Tensor, query: Tensor, centre: bool, normalise: bool
) -> tuple[Tensor, Tensor]:
    """Return Gram matrices scaled to at most 64, [R, N, padded N], and the factors that undo the scaling, [R]."""
    upper, lower, unit = bank
    episodes, (supports, queries) = len(support), (support.shape[1], query.shape[1])
    total = supports + queries
    gram = torch.empty((episodes, total, -(-total // 16) * 16), dtype=torch.float32, device=upper.device)
    units = torch.empty(episodes, dtype=torch.float32, device=upper.device)
    places = (support.contiguous(), query.contiguous(), supports, queries)
    kind = {"ROWS": padded_rows(total), "COLUMNS": _COLUMNS, "CENTRE": centre, "NORMALISE": normalise}
    _gram[(episodes,)](gram, gram.shape[2], units, upper, lower, upper.shape[1], *places, **kind, num_stages=2)
    return gram, units if normalise else units * unit


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit
def _both_sums(x):
    return tl.sum(x, 1), tl.sum(x, 0)


@triton.jit
def _one_over_root(square, before):
    return tl.where(square > before * _ZERO_ROW, 1.0 / tl.sqrt(square), 0.0)


@triton.jit(do_not_specialize=["supports", "queries"])
def _gram(
    gram,  # [R, supports + queries, stride]
    stride,
    unit,  # [R]
    upper_bank,  # [n, width], as lower_bank
    lower_bank,
    width,
    support,  # [R, supports]
    query,  # [R, queries]
    supports,
    queries,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CENTRE: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    """Gram matrix of an episode's rows after Mn and E, scaled to at most 64, and the factor that undoes the scaling."""
    number = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    count = supports + queries
    is_real = row < count
    index = tl.load(support + number * supports + row, mask=row < supports, other=0)
    index += tl.load(query + number * queries + row - supports, mask=is_real & (row >= supports), other=0)
    place = index.to(tl.int64)[:, None] * width + tl.arange(0, COLUMNS)[None, :]
    g = tl.zeros((ROWS, ROWS), tl.float32)
    for start in range(0, width, COLUMNS):
        upper = tl.load(upper_bank + place + start, mask=is_real[:, None], other=0.0)  # [ROWS, COLUMNS]
        lower = tl.load(lower_bank + place + start, mask=is_real[:, None], other=0.0)
        g = tl.dot(upper, tl.trans(lower), g)
        g = tl.dot(lower, tl.trans(upper), g)
        g = tl.dot(upper, tl.trans(upper), g)
    diagonal = row[:, None] == row[None, :]
    before_i, before_j = _both_sums(tl.where(diagonal, g, 0.0))
    if CENTRE:
        sum_i, sum_j = _both_sums(g)
        g -= (sum_i[:, None] + sum_j[None, :] - tl.sum(sum_i, 0) / count) / count
    length_i, length_j = _both_sums(tl.where(diagonal, g, 0.0))
    if NORMALISE:
        factor = 1.0
        g *= _one_over_root(length_i, before_i)[:, None] * (_one_over_root(length_j, before_j) * SCALE)[None, :]
    else:
        factor = tl.maximum(tl.max(tl.where(is_real, length_i, 0.0), 0), 1e-30)
        g *= 1.0 / factor * SCALE
    tl.store(unit + number, factor)
    place = (number * count + row)[:, None] * stride + row[None, :]
    tl.store(gram + place, g, mask=is_real[:, None] & is_real[None, :])
