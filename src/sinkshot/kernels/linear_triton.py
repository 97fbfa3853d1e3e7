# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""A linear layer trained on the supports on the GPU, one program per episode: all steps of Adam in one launch.

In torch a step is a dozen launches. Products are exact float32, not by tensor cores: from a start at zero, slopes that
cancel must stay below the limit that `methods.sgc` explains.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sinkshot.kernels.gram_triton import Tensor
from sinkshot.kernels.tim_triton import COLUMNS, MOST_WAYS, adam_moved, shares, step_sizes

MOST_SUPPORTS = 64


def fits(way: int, supports: int) -> bool:
    """Whether an episode of this size fits into one program, with features of any width."""
    return way <= MOST_WAYS and supports <= MOST_SUPPORTS


def linear(x: Tensor, member: Tensor, start: Tensor, *, decay: float, least: float, lr: float, steps: int) -> Tensor:
    """Return the layer [R, way, d] after all steps, trained on supports x [R, l, d] of the classes member [R, way, l].

    Slopes of at most `least` count as zero.
    """
    (episodes, supports, width), way = x.shape, member.shape[1]
    padded = -(-width // COLUMNS) * COLUMNS
    state = torch.zeros((3, episodes, MOST_WAYS, padded), dtype=torch.float32, device=x.device)
    state[0, :, :way, :width] = start
    sizes = {"ROWS": max(16, triton.next_power_of_2(supports)), "WAYS": MOST_WAYS, "COLUMNS": COLUMNS}
    rows = torch.nn.functional.pad(x, (0, padded - width))  # aligned rows are loaded four numbers at a time
    given = (rows.contiguous(), member.to(torch.float32).contiguous(), *state, step_sizes(steps, lr, x.device))
    with torch.cuda.device_of(x):
        _train[(episodes,)](*given, way, supports, padded, steps, decay, least, **sizes, num_warps=4)
    return state[0, :, :way, :width]


@triton.jit(do_not_specialize=["way", "supports", "steps"])
def _train(
    x,  # [R, supports, width], the width a multiple of COLUMNS
    members,  # [R, way, supports]
    layer,  # [R, WAYS, width], as means and squares
    means,
    squares,
    rates,  # [steps, 2]
    way,
    supports,
    width,
    steps,
    decay,
    least,
    ROWS: tl.constexpr,
    WAYS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    row, label, column = tl.arange(0, ROWS), tl.arange(0, WAYS), tl.arange(0, COLUMNS)
    rows = x + number * supports * width + row[:, None] * width + column[None, :]
    first = number * WAYS * width
    place = first + label[:, None] * width + column[None, :]  # [WAYS, COLUMNS]
    turned = first + label[None, :] * width + column[:, None]  # [COLUMNS, WAYS]
    real = (row < supports)[:, None]
    known = real & (label < way)[None, :]
    member = tl.load(members + (number * way + label)[None, :] * supports + row[:, None], mask=known, other=0.0)
    for step in range(steps):
        scores = tl.zeros((ROWS, WAYS), tl.float32)
        for begin in range(0, width, COLUMNS):
            part = tl.load(rows + begin, mask=real, other=0.0)
            scores = tl.dot(part, tl.load(layer + turned + begin), scores, input_precision="ieee")
        miss = tl.trans(tl.where(known, shares(scores, label, way) - member, 0.0) / supports)
        rate, scale = tl.load(rates + 2 * step), tl.load(rates + 2 * step + 1)
        tl.debug_barrier()  # all threads have read the layer
        for begin in range(0, width, COLUMNS):
            part = tl.load(rows + begin, mask=real, other=0.0)
            w = tl.load(layer + place + begin)
            slope = tl.dot(miss, part, input_precision="ieee") + decay * w
            slope = tl.where(tl.abs(slope) > least, slope, 0.0)
            mean, square = tl.load(means + place + begin), tl.load(squares + place + begin)
            w, mean, square = adam_moved(w, mean, square, slope, rate, scale)
            tl.store(layer + place + begin, w)
            tl.store(means + place + begin, mean)
            tl.store(squares + place + begin, square)
        tl.debug_barrier()  # the next step reads what other threads wrote
