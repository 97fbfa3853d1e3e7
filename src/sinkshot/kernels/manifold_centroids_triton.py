# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Products with the centroids of adaptive manifold on the GPU, summed in float64 as in `manifold_triton`."""

from __future__ import annotations

import triton
import triton.language as tl

from sinkshot.kernels.gram_triton import Tensor
from sinkshot.kernels.tim_triton import MOST_WAYS

_WAYS, _COLUMNS = tl.constexpr(MOST_WAYS), tl.constexpr(32)


def between(centroids: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, way] with the distances of centroids [R, way, d]."""
    episodes, way, width = centroids.shape
    _between[(episodes, way)](centroids, out, way, width, num_warps=1)


def products(x: Tensor, weights: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, n] with the inner products of weights [R, way, d] and rows [R, n, d]."""
    (episodes, rows, width), way = x.shape, weights.shape[1]
    tall = max(16, triton.next_power_of_2(rows))
    _products[(episodes,)](x, weights, out, rows, width, way, ROWS=tall, num_warps=4 if tall <= 128 else 8)


def pulls(x: Tensor, slope: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, d] with slopes [R, way, n] times rows [R, n, d]."""
    (episodes, rows, width), way = x.shape, out.shape[1]
    grid = (episodes, triton.cdiv(width, 2 * _COLUMNS.value))
    _pulls[grid](x, slope, out, rows, width, way)


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["way"])
def _between(centroids, out, way, width):
    number, one = tl.program_id(0).to(tl.int64), tl.program_id(1)
    label, column = tl.arange(0, _WAYS), tl.arange(0, 2 * _COLUMNS)
    centroids += number * way * width
    sums = tl.zeros((_WAYS,), tl.float64)
    for begin in range(0, width, 2 * _COLUMNS):
        real = begin + column < width
        inside = (label < way)[:, None] & real[None, :]
        others = tl.load(centroids + label[:, None] * width + begin + column[None, :], mask=inside, other=0.0)
        off = others - tl.load(centroids + one * width + begin + column, mask=real, other=0.0)[None, :]
        sums += tl.sum(off * off, 1)
    tl.store(out + (number * way + one) * way + label, tl.sqrt(sums), mask=label < way)


@triton.jit(do_not_specialize=["way", "rows"])
def _products(x, weights, out, rows, width, way, ROWS: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    row, label, column = tl.arange(0, ROWS), tl.arange(0, _WAYS), tl.arange(0, _COLUMNS)
    x += number * rows * width
    weights += number * way * width
    sums = tl.zeros((ROWS, _WAYS), tl.float64)
    for begin in range(0, width, _COLUMNS):
        real = begin + column < width
        part = tl.load(
            x + row[:, None] * width + begin + column[None, :], mask=(row < rows)[:, None] & real[None, :], other=0.0
        )
        inside = real[:, None] & (label < way)[None, :]
        w = tl.load(weights + label[None, :] * width + begin + column[:, None], mask=inside, other=0.0)
        sums = tl.dot(part.to(tl.float64), w.to(tl.float64), sums, out_dtype=tl.float64)
    inside = (row < rows)[:, None] & (label < way)[None, :]
    tl.store(out + (number * way + label[None, :]) * rows + row[:, None], sums, mask=inside)


@triton.jit(do_not_specialize=["way", "rows"])
def _pulls(x, slope, out, rows, width, way):
    number = tl.program_id(0).to(tl.int64)
    label, column = tl.arange(0, _WAYS), tl.program_id(1) * 2 * _COLUMNS + tl.arange(0, 2 * _COLUMNS)
    sums = tl.zeros((_WAYS, 2 * _COLUMNS), tl.float64)
    for begin in range(0, rows, _COLUMNS):
        row = begin + tl.arange(0, _COLUMNS)
        inside = (label < way)[:, None] & (row < rows)[None, :]
        pull = tl.load(slope + (number * way + label[:, None]) * rows + row[None, :], mask=inside, other=0.0)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        part = tl.load(x + (number * rows + row[:, None]) * width + column[None, :], mask=inside, other=0.0)
        sums = tl.dot(pull.to(tl.float64), part.to(tl.float64), sums, out_dtype=tl.float64)
    inside = (label < way)[:, None] & (column < width)[None, :]
    tl.store(out + (number * way + label[:, None]) * width + column[None, :], sums, mask=inside)
