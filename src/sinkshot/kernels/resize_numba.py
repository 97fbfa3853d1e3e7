"""Resize a square of an image bilinearly, bit for bit as Pillow does, in less time.

As in Pillow, a pixel of the result is a weighted mean of the pixels around its centre: along rows and then along
columns, or the other way round. Weights are integers, and each of the two means is rounded to 8 bits. Along rows, the
four channels of a pixel and of its neighbour share a vector register.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from sinkshot.kernels import numba_environment  # noqa: F401  before Numba reads it

# isort: split
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sinkshot.kernels.jit import cached

Pixels = NDArray[np.uint8]
Order = Literal["rows first", "columns first"]
_BITS = 22  # of a weight: sums of 8-bit numbers times weights fit 32 bits
_HALF = np.int32(1 << (_BITS - 1))
_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_SUMS = ir.VectorType(_WORD, 8)


def fits(width: int, height: int, side: int, size: int) -> bool:
    """Whether `resized` can be used: the tiniest images have fewer pixels than it reads at a time."""
    return min(width, height) >= 2 * math.ceil(side / size) + 2


def resized(pixels: Pixels, left: int, top: int, side: int, size: int, order: Order) -> Pixels:
    """Return a square of an image in another size.

    Parameters
    ----------
    pixels : array of shape [height, width, 4]
        The fourth channel is left out.
    left, top, side : int
        The square.
    size : int
        Side of the result.
    order : {"rows first", "columns first"}
        Which mean is taken, and rounded, first.

    Returns
    -------
    array of shape [size, size, 3]
    """
    height, width, _ = pixels.shape
    out = np.empty(3 * size * size + 1, np.uint8)[:-1].reshape(size, 3 * size)  # a fourth channel is written behind it
    resize = _rows_first if order == "rows first" else _columns_first
    resize(pixels.reshape(height, 4 * width), left, top, side, out)
    return out.reshape(size, size, 3)


@intrinsic  # type: ignore[untyped-decorator]
def _mean_pixel(typing: Any, pixels: Any, weights: Any, pairs: Any, out: Any) -> Any:
    """_mean_pixel(pixels, weights, pairs, out): the weighted mean of pairs of pixels; all but `pairs` are addresses.

    A pair has eight bytes and eight weights, and the result four bytes.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, weight, count, to = args
        sums = cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [int(_HALF)] * 4 + [0] * 4))
        pairs_of = builder.inttoptr(first, ir.VectorType(_BYTE, 8).as_pointer())
        weights_of = builder.inttoptr(weight, _SUMS.as_pointer())
        with cgutils.for_range(builder, count) as loop:
            pair = builder.zext(builder.load(builder.gep(pairs_of, [loop.index]), align=1), _SUMS)
            weighted = builder.mul(pair, builder.load(builder.gep(weights_of, [loop.index]), align=4))
            builder.store(builder.add(builder.load(sums), weighted), sums)
        both = builder.load(sums)
        low, high = (builder.shuffle_vector(both, both, _words(*range(k, k + 4))) for k in (0, 4))
        mean = builder.lshr(builder.add(low, high), _words(*[_BITS] * 4))
        pixel = builder.trunc(mean, ir.VectorType(_BYTE, 4))
        builder.store(pixel, builder.inttoptr(to, pixel.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.uintp), emit


def _words(*values: int) -> Any:
    return ir.Constant(ir.VectorType(_WORD, len(values)), values)


def _part(function: Any) -> Any:
    """Compile a part of what follows; products are not fused with sums, since Pillow's are not."""
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


def _compiled(function: Any) -> Any:
    return cached(function, nogil=True)


@_part
def _means(length: int, first: int, side: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """For each pixel of the result: the first pixel that it is a mean of, and the weights [size, 4 taps].

    The result covers `side` pixels from `first`, of `length`. Each weight stands four times, once for each channel;
    some are zero.
    """
    scale = side / size
    reach = max(scale, 1.0)
    starts, ends, taps = np.empty(size, np.int64), np.empty(size, np.int64), 2
    for i in range(size):
        centre = first + (i + 0.5) * scale
        starts[i] = max(0, int(centre - reach + 0.5))
        ends[i] = min(length, int(centre + reach + 0.5))
        taps = max(taps, ends[i] - starts[i])
    taps += taps % 2
    weights, shares = np.zeros((size, 4 * taps), np.int32), np.empty(taps)
    for i in range(size):
        centre, total, start = first + (i + 0.5) * scale, 0.0, starts[i]
        for k in range(start, ends[i]):
            shares[k - start] = max(0.0, 1.0 - abs((k - centre + 0.5) * (1.0 / reach)))
            total += shares[k - start]
        starts[i] = min(start, length - taps)
        for k in range(start, ends[i]):
            for channel in range(4):
                weights[i, 4 * (k - starts[i]) + channel] = int(0.5 + shares[k - start] / total * (1 << _BITS))
    return starts, weights


@_part
def _mean_pixels(row: Pixels, starts: NDArray[np.int64], weights: NDArray[np.int32], out: Pixels) -> None:
    """Fill a row of three channels, and a byte behind it, with weighted means of pixels of a row of four channels."""
    pixels, to, at = row.ctypes.data, out.ctypes.data, weights.ctypes.data
    pairs = weights.shape[1] // 8
    for x in range(len(starts)):
        _mean_pixel(np.uintp(pixels + 4 * starts[x]), np.uintp(at + 32 * pairs * x), pairs, np.uintp(to + 3 * x))


@_part
def _mean_row(rows: Pixels, first: int, weights: NDArray[np.int32], sums: NDArray[np.int32], out: Pixels) -> None:
    """Fill a row with the weighted mean of rows, whose weights are given four times; `sums` is room for it."""
    for j in range(len(sums)):
        sums[j] = _HALF
    for k in range(0, len(weights) // 4, 2):
        one, other, u, v = rows[first + k], rows[first + k + 1], weights[4 * k], weights[4 * k + 4]
        for j in range(len(sums)):
            sums[j] = np.int32(sums[j] + u * np.int32(one[j]) + v * np.int32(other[j]))
    for j in range(len(sums)):
        out[j] = np.uint8(sums[j] >> _BITS)


@_compiled
def _rows_first(pixels: Pixels, left: int, top: int, side: int, out: Pixels) -> None:
    """Fill out [size, 3 size] from pixels [height, 4 width]; a byte behind each row is written to."""
    size = out.shape[0]
    starts, weights = _means(pixels.shape[1] // 4, left, side, size)
    above, down = _means(pixels.shape[0], top, side, size)
    rows = np.empty((above[-1] + down.shape[1] // 4 - above[0], 3 * size + 1), np.uint8)
    for y in range(rows.shape[0]):
        _mean_pixels(pixels[above[0] + y], starts, weights, rows[y])
    sums = np.empty(3 * size, np.int32)
    for y in range(size):
        _mean_row(rows, above[y] - above[0], down[y], sums, out[y])


@_compiled
def _columns_first(pixels: Pixels, left: int, top: int, side: int, out: Pixels) -> None:
    """As `_rows_first`, in the other order."""
    size, width = out.shape[0], pixels.shape[1]
    starts, weights = _means(width // 4, left, side, size)
    above, down = _means(pixels.shape[0], top, side, size)
    row, sums = np.empty(width, np.uint8), np.empty(width, np.int32)
    for y in range(size):
        _mean_row(pixels, above[y], down[y], sums, row)
        _mean_pixels(row, starts, weights, out[y])
