# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The classifier of iLPC on the GPU, one program per episode: all epochs of its gradient descent in one launch.

In torch an epoch is nine launches, each of which moves the scores of all episodes through memory, and a product that
reads all Gram matrices; here the matrix of an episode stays beside the tensor cores. Rows beyond 128 are a second
part of 64, so that an open set of 175 rows is not padded to 256. Products have float32 accuracy, as in `gram_triton`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sinkshot.kernels.bms_triton import _halves, _product
from sinkshot.kernels.gram_triton import SCALE, Tensor

FIRST, SECOND, MOST_WAYS = 128, 64, 16  # rows of both parts
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


def fits(way: int, rows: int) -> bool:
    """Whether an episode of this size fits into one program."""
    return way <= MOST_WAYS and rows <= FIRST + SECOND


def mean_loss(
    gram: Tensor, scores: Tensor, target: Tensor, going: Tensor, descent: tuple[int, float, float, float]
) -> Tensor:
    """Return the cross-entropy of each row, averaged over the training from `scores` on, [R, N].

    Gram matrices [R, N, N], scores and targets [R, way, N]; episodes that are not `going` [R] answer zero.
    """
    epochs, lr, momentum, decay = descent
    episodes, way, rows = scores.shape
    wide = (gram + 1.0).to(torch.float32).contiguous()  # the bias is a constant feature of one
    factor = wide.abs().amax(dim=(1, 2)).clamp_min(1e-30)
    given = (part.to(torch.float32).contiguous() for part in (scores, target))
    total = torch.zeros((episodes, rows), dtype=torch.float32, device=gram.device)
    sizes = {"WAYS": 8 if way <= 8 else 16, "FIRST": 64 if rows <= 64 else FIRST}
    sizes |= {"SECOND": 0 if rows <= FIRST else SECOND, "num_warps": 4 if rows <= FIRST else 8}
    with torch.cuda.device_of(gram):
        _descend[(episodes,)](
            wide, factor, *given, going.to(torch.int32), total, way, rows, epochs, lr, momentum, decay, **sizes
        )
    return total.to(scores.dtype) / epochs


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit
def _block(gram, first_row, first_column, rows, scale, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Two float16 halves of a part of the matrix, scaled to at most 64; zero beyond its rows."""
    i, j = first_row + tl.arange(0, HEIGHT), first_column + tl.arange(0, WIDTH)
    inside = (i < rows)[:, None] & (j < rows)[None, :]
    return _halves(tl.load(gram + i[:, None] * rows + j[None, :], mask=inside, other=0.0) * scale)


@triton.jit
def _labelled(values, first, way, rows, HEIGHT: tl.constexpr, WAYS: tl.constexpr):
    """A part [HEIGHT, WAYS] of values [way, rows]."""
    i, label = first + tl.arange(0, HEIGHT), tl.arange(0, WAYS)
    inside = (i < rows)[:, None] & (label < way)[None, :]
    return tl.load(values + label[None, :] * rows + i[:, None], mask=inside, other=0.0)


@triton.jit
def _missed(s, target, nobody):
    """The slope of the cross-entropy by the scores, and its value for each row."""
    logits = s * _LOG2_E + nobody
    logits -= tl.max(logits, 1)[:, None]
    guess = tl.exp2(logits)
    mass = tl.sum(guess, 1)
    loss = tl.sum(tl.where(target > 0, target * (tl.log2(mass)[:, None] - logits), 0.0), 1) * _LN_2
    return guess / mass[:, None] - target, loss


@triton.jit(do_not_specialize=["way", "rows", "epochs"])
def _descend(
    gram,  # [R, rows, rows]
    factors,  # [R] the largest entry of each
    scores,  # [R, way, rows]
    targets,  # [R, way, rows]
    going,  # [R]
    totals,  # [R, rows]
    way,
    rows,
    epochs,
    lr,
    momentum,
    decay,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
):
    """Names as in `sinkshot.methods.ilpc`; arrays of the second part of the rows end in `_2`."""
    number = tl.program_id(0).to(tl.int64)
    if tl.load(going + number) == 0:
        return
    factor = tl.load(factors + number)
    scale = SCALE / factor
    unit = factor / (SCALE * SCALE * rows)  # of a product whose factors are both scaled
    gram += number * rows * rows
    scores += number * way * rows
    targets += number * way * rows
    nobody = tl.where(tl.arange(0, WAYS) < way, 0.0, float("-inf"))[None, :]
    upper, lower = _block(gram, 0, 0, rows, scale, FIRST, FIRST)
    s, target = _labelled(scores, 0, way, rows, FIRST, WAYS), _labelled(targets, 0, way, rows, FIRST, WAYS)
    speed, total = tl.zeros_like(s), tl.sum(s, 1) * 0.0
    row = tl.arange(0, FIRST)
    if SECOND == 0:
        for _ in range(epochs):
            miss, loss = _missed(s, target, nobody)
            total += loss
            speed = momentum * speed + _product(upper, lower, miss * SCALE) * unit + decay * s
            s -= lr * speed
    else:
        upper_12, lower_12 = _block(gram, 0, FIRST, rows, scale, FIRST, SECOND)
        upper_21, lower_21 = _block(gram, FIRST, 0, rows, scale, SECOND, FIRST)
        upper_22, lower_22 = _block(gram, FIRST, FIRST, rows, scale, SECOND, SECOND)
        s_2 = _labelled(scores, FIRST, way, rows, SECOND, WAYS)
        target_2 = _labelled(targets, FIRST, way, rows, SECOND, WAYS)
        speed_2, total_2 = tl.zeros_like(s_2), tl.sum(s_2, 1) * 0.0
        for _ in range(epochs):
            miss, loss = _missed(s, target, nobody)
            miss_2, loss_2 = _missed(s_2, target_2, nobody)
            total += loss
            total_2 += loss_2
            moved = _product(upper, lower, miss * SCALE) + _product(upper_12, lower_12, miss_2 * SCALE)
            moved_2 = _product(upper_21, lower_21, miss * SCALE) + _product(upper_22, lower_22, miss_2 * SCALE)
            speed = momentum * speed + moved * unit + decay * s
            speed_2 = momentum * speed_2 + moved_2 * unit + decay * s_2
            s -= lr * speed
            s_2 -= lr * speed_2
        row_2 = FIRST + tl.arange(0, SECOND)
        tl.store(totals + number * rows + row_2, total_2, mask=row_2 < rows)
    tl.store(totals + number * rows + row, total, mask=row < rows)
