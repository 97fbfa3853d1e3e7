"""The functions of the array API that methods on `Rows` use, for arrays in parts and for ordinary ones beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkshot.parted.array import Joined, PartedArray, apply

__all__ = [
    "abs", "any", "arange", "argmax", "asarray", "astype", "clip", "concat", "exp", "finfo", "float32", "full_like",
    "inf", "int64", "log", "matrix_transpose", "max", "maximum", "mean", "min", "minimum", "ones_like", "sqrt", "sum",
    "where", "zeros_like",
]  # fmt: skip

float32, float64, int64, bool, inf, finfo = np.float32, np.float64, np.int64, np.bool_, np.inf, np.finfo
Axis = int | tuple[int, ...] | None


def exp(x: Any) -> Any:
    """Return the exponential of each entry."""
    return apply(np.exp, x)


def log(x: Any) -> Any:
    """Return the logarithm of each entry."""
    return apply(np.log, x)


def sqrt(x: Any) -> Any:
    """Return the square root of each entry."""
    return apply(np.sqrt, x)


def abs(x: Any) -> Any:
    """Return the absolute value of each entry."""
    return apply(np.abs, x)


def maximum(x: Any, y: Any) -> Any:
    """Return the larger of two entries."""
    return apply(np.maximum, x, y)


def minimum(x: Any, y: Any) -> Any:
    """Return the smaller of two entries."""
    return apply(np.minimum, x, y)


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return entries of x where the condition holds, else of y."""
    return apply(np.where, condition, x, y)


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Return entries no smaller than `min` and no larger than `max`."""
    return apply(np.clip, x, a_min=min, a_max=max)


def astype(x: Any, dtype: Any, copy: Any = True) -> Any:
    """Return entries of another type."""
    return apply(_astype, x, dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    """Return ones of the same shape."""
    return apply(np.ones_like, x, dtype=dtype)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Return zeros of the same shape."""
    return apply(np.zeros_like, x, dtype=dtype)


def full_like(x: Any, value: Any, dtype: Any = None) -> Any:
    """Return an array of the same shape with one value."""
    return apply(np.full_like, x, value, dtype=dtype)


def matrix_transpose(x: Any) -> Any:
    """Swap the last two axes."""
    return apply(np.matrix_transpose, x)


def asarray(x: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return an ordinary array; one in parts stays as it is."""
    return x if isinstance(x, PartedArray) else np.asarray(x, dtype=dtype)


def arange(*bounds: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return numbers in steps of one."""
    return np.arange(*bounds, dtype=dtype)


def any(x: Any) -> Any:
    """Return whether any entry of an ordinary array is true."""
    return np.any(x)


def concat(arrays: Any, axis: int = 0) -> Any:
    """Join the values of the supports, an ordinary array, and of the queries, one in parts."""
    if not isinstance(arrays[-1], PartedArray):
        return np.concatenate(arrays, axis=axis)
    head, tail = arrays
    if axis != -1 or isinstance(head, PartedArray) or head.shape[-1] != tail.layout.supports or not tail.of_queries:
        raise ValueError("only values of the supports and of the queries can be joined")
    probe = np.broadcast_to(tail.probe, (*np.broadcast_shapes(head.shape[:-1], tail.probe.shape[:-1]), 3))
    return PartedArray(tail.work, tail.layout, Joined(np.asarray(head), tail.expression), probe, False)


def sum(x: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    """Return sums; over rows it takes a pass over all parts."""
    return _reduced(x, "sum", np.sum, axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    """Return maxima; over rows it takes a pass over all parts."""
    return _reduced(x, "max", np.max, axis, keepdims)


def min(x: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    """Return minima; over rows it takes a pass over all parts."""
    return -max(-x, axis=axis, keepdims=keepdims)


def mean(x: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    """Return means; over rows it takes a pass over all parts."""
    if not isinstance(x, PartedArray):
        return np.mean(x, axis=axis, keepdims=keepdims)
    axes = _axes(x, axis)
    count = float(np.prod([x.shape[a] for a in axes]))
    return sum(x, axis=axis, keepdims=keepdims) / np.asarray(count, x.dtype)


def argmax(x: Any, axis: int | None = None, keepdims: Any = False) -> Any:
    """Return the number of the largest entry along the classes."""
    if isinstance(x, PartedArray) and (axis is None or axis % x.ndim == x.ndim - 1):
        raise ValueError("argmax over the rows of an array in parts")
    return apply(np.argmax, x, axis=axis, keepdims=keepdims)


def _reduced(x: Any, how: str, function: Any, axis: Axis, keepdims: Any) -> Any:
    if not isinstance(x, PartedArray):
        return function(x, axis=axis, keepdims=keepdims)
    axes = _axes(x, axis)
    if x.ndim - 1 not in axes:
        return apply(function, x, axis=axes, keepdims=keepdims)
    found = x.reduced(how, axes)
    return found if keepdims else np.squeeze(found, axis=axes)


def _axes(x: Any, axis: Axis) -> tuple[int, ...]:
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % x.ndim for a in given))


def _astype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)
