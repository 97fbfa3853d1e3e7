# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""TIM by gradient descent on the GPU, one program per episode: all steps of Adam in one launch.

In torch a step is some thirty launches and reads all episodes from memory twice. Here an SM reads the rows of one
episode over and over, which the cache holds, and probabilities never leave it. Formulas are those of `methods._tim`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl

from sinkshot.kernels.gram_triton import Tensor
from sinkshot.settings.constants import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON, TIM_EPSILON, TIM_LEAST
from sinkshot.settings.tim import TIMSettings

MOST_ROWS, MOST_WAYS = 256, 16
COLUMNS, WARPS, STAGES = 64, 8, 3  # features that are multiplied at once, and how programs are laid out
_TALL = 128  # rows; from there on two programs of half that size share a multiprocessor

_BETA1, _BETA2, _ADAM_EPSILON = tl.constexpr(ADAM_BETA1), tl.constexpr(ADAM_BETA2), tl.constexpr(ADAM_EPSILON)
_EPSILON, _LEAST = tl.constexpr(TIM_EPSILON), tl.constexpr(TIM_LEAST)
_LN_2, _LOG2_E = tl.constexpr(0.6931471805599453), tl.constexpr(1.4426950408889634)


def fits(way: int, rows: int) -> bool:
    """Whether an episode of this size fits into one program, with features of any width."""
    return way <= MOST_WAYS and rows <= MOST_ROWS


def tim(x: Tensor, member: Tensor, start: Tensor, settings: TIMSettings) -> Tensor:
    """Return the weights [R, way, d] after all steps; rows x [R, N, d], supports first, member [R, way, l]."""
    (episodes, rows, width), (way, supports) = x.shape, member.shape[1:]
    part = 1 if rows <= _TALL else 2
    padded = -(-width // COLUMNS) * COLUMNS
    weights = torch.zeros((episodes, MOST_WAYS, padded), dtype=torch.float32, device=x.device)
    weights[:, :way, :width] = start
    mean, square = torch.zeros_like(weights), torch.zeros_like(weights)
    rates = step_sizes(settings.steps, settings.lr, x.device)
    numbers = (*settings.weights, settings.alpha, settings.temperature)
    sizes = {"ROWS": max(64, triton.next_power_of_2(rows)), "WAYS": MOST_WAYS, "COLUMNS": COLUMNS // part}
    options = {**sizes, "SHANNON": settings.alpha == 1, "num_warps": WARPS // part, "num_stages": STAGES}
    given = (x.contiguous(), member.to(torch.float32).contiguous(), weights, mean, square, rates)
    with torch.cuda.device_of(x):
        _descend[(episodes,)](*given, way, supports, rows, width, padded, settings.steps, *numbers, **options)
    return weights[:, :way, :width]


@cache
def step_sizes(steps: int, lr: float, device: torch.device) -> Tensor:
    """Return what Adam multiplies the mean slope and the root of the mean square by in each step, [steps, 2]."""
    step = np.arange(1, steps + 1)
    rates = np.stack([lr / (1 - ADAM_BETA1**step), (1 - ADAM_BETA2**step) ** -0.5], axis=1)
    return torch.from_numpy(rates.astype(np.float32)).to(device)


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit
def adam_moved(at, mean, square, slope, rate, scale):
    """A value, and the means of its slope and of the slope's square, after a step of Adam."""
    mean = _BETA1 * mean + (1 - _BETA1) * slope
    square = _BETA2 * square + (1 - _BETA2) * slope * slope
    return at - rate * mean / (tl.sqrt(square) * scale + _ADAM_EPSILON), mean, square


@triton.jit
def shares(logits, label, way):
    """The softmax of logits [ROWS, WAYS]; zero for padded classes."""
    logits = tl.where((label < way)[None, :], logits * _LOG2_E, float("-inf"))
    p = tl.exp2(logits - tl.max(logits, 1)[:, None])
    return p / tl.sum(p, 1)[:, None]


@triton.jit
def query_sums(p, row, supports, rows):
    """The sum of p [ROWS, WAYS] over queries."""
    return tl.sum(tl.where(((row >= supports) & (row < rows))[:, None], p, 0.0), 0)


@triton.jit
def slope_by_logits(p, member, mean, row, supports, rows, of_supports, of_mean, of_each, alpha, SHANNON: tl.constexpr):
    """The gradient of TIM's loss by the logits that gave p [ROWS, WAYS], whose mean over queries is `mean` [WAYS].

    Zero in rows that are neither supports, those from zero on, nor queries.
    """
    mean = tl.maximum(mean, _LEAST)
    right = tl.sum(member * p, 1)
    miss = (p - member) * (right / (right + _EPSILON))[:, None]
    shifted = p + _EPSILON
    if SHANNON:
        by_mean = tl.log2(mean) * _LN_2
        by_each = tl.log2(shifted) * _LN_2 + p / shifted
    else:
        factor = alpha / (alpha - 1.0)
        by_mean = factor * tl.exp2((alpha - 1.0) * tl.log2(mean))
        by_each = factor * tl.exp2((alpha - 1.0) * tl.log2(shifted))
    by_p = of_mean * by_mean[None, :] - of_each * by_each
    back = p * (by_p - tl.sum(p * by_p, 1)[:, None]) / (rows - supports)
    slope = tl.where(((row >= supports) & (row < rows))[:, None], back, 0.0)
    return tl.where(((row >= 0) & (row < supports))[:, None], miss * (of_supports / supports), slope)


@triton.jit(do_not_specialize=["way", "supports", "rows", "steps"])
def _descend(
    x,  # [R, rows, width]
    members,  # [R, way, supports]
    weights,  # [R, WAYS, padded], as means and squares
    means,
    squares,
    rates,  # [steps, 2]
    way,
    supports,
    rows,
    width,
    padded,
    steps,
    of_supports,
    of_mean,
    of_each,
    alpha,
    temperature,
    ROWS: tl.constexpr,
    WAYS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHANNON: tl.constexpr,
):
    """Names as in `sinkshot.methods._tim`."""
    number = tl.program_id(0).to(tl.int64)
    row, label, column = tl.arange(0, ROWS), tl.arange(0, WAYS), tl.arange(0, COLUMNS)
    x += number * rows * width
    place = number * WAYS * padded + label[:, None] * padded + column[None, :]  # [WAYS, COLUMNS]
    across = number * WAYS * padded + label[None, :] * padded + column[:, None]  # [COLUMNS, WAYS]
    at = row[:, None] * width + column[None, :]
    known = (row < supports)[:, None] & (label < way)[None, :]
    member = tl.load(members + (number * way + label)[None, :] * supports + row[:, None], mask=known, other=0.0)
    for step in range(steps):
        scores, squared = tl.zeros((ROWS, WAYS), tl.float32), tl.zeros((WAYS,), tl.float32)
        for begin in range(0, width, COLUMNS):
            inside = (row < rows)[:, None] & (begin + column < width)[None, :]
            w = tl.load(weights + across + begin)
            scores = tl.dot(tl.load(x + at + begin, mask=inside, other=0.0), w, scores, input_precision="tf32x3")
            squared += tl.sum(w * w, 0)
        p = shares(temperature * (scores - squared[None, :] / 2), label, way)
        mean = query_sums(p, row, supports, rows) / (rows - supports)
        slope = slope_by_logits(p, member, mean, row, supports, rows, of_supports, of_mean, of_each, alpha, SHANNON)
        total, pull = tl.sum(slope, 0), tl.trans(slope)
        rate, scale = tl.load(rates + 2 * step), tl.load(rates + 2 * step + 1)
        for begin in range(0, width, COLUMNS):
            inside = (row < rows)[:, None] & (begin + column < width)[None, :]
            of_rows = tl.dot(pull, tl.load(x + at + begin, mask=inside, other=0.0), input_precision="tf32x3")
            w = tl.load(weights + place + begin)
            gradient = temperature * (of_rows - total[:, None] * w)
            first, second = tl.load(means + place + begin), tl.load(squares + place + begin)
            w, first, second = adam_moved(w, first, second, gradient, rate, scale)
            tl.store(weights + place + begin, w)
            tl.store(means + place + begin, first)
            tl.store(squares + place + begin, second)
        tl.debug_barrier()  # the next step reads weights that other threads wrote
