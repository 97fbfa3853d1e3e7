"""Sinkhorn to a tolerance, compiled: as in `sinkshot.methods._sinkhorn` and `protolp`, one episode after the other.

In NumPy each pass over a batch costs a dozen calls, and the batch runs until its slowest episode converges; here an
episode stays in the L1 cache and ends when it has converged.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.jit import announced, cached

Floats = NDArray[Any]  # float32 or float64


def _passes(  # noqa: C901  plain loops, one after the other, for the compiler to vectorise
    kernel: Floats, target: Floats, fixed: Floats, clamped: bool, tolerance: float, most: int, out: Floats
) -> None:
    """Balance each episode's kernel [way, n] to its target [way]; rows of `out` are the plans."""
    episodes, way, n = kernel.shape
    mass, row, before = np.empty(n, kernel.dtype), np.empty(n, kernel.dtype), np.zeros(n, kernel.dtype)
    v = np.empty(way, kernel.dtype)
    one = kernel.dtype.type(1)
    for r in range(episodes):
        v[:] = one
        for i in range(n):
            mass[i] = kernel[r, 0, i]
        for j in range(1, way):
            for i in range(n):
                mass[i] += kernel[r, j, i]
        for step in range(most):
            for i in range(n):
                row[i] = one / mass[i]
            for j in range(way):
                size = one - one
                for i in range(n):
                    size += kernel[r, j, i] * row[i]
                if clamped:
                    v[j] = target[r, j] * v[j] / (fixed[r, j] + v[j] * size)
                else:
                    v[j] = target[r, j] / size
            for i in range(n):
                mass[i] = kernel[r, 0, i] * v[0]
            for j in range(1, way):
                scale = v[j]
                for i in range(n):
                    mass[i] += kernel[r, j, i] * scale
            change = one - one
            for i in range(n):
                total = row[i] * mass[i]
                change = max(change, abs(total - before[i]))
                before[i] = total
            if step > 0 and change <= tolerance:
                break
        for j in range(way):
            for i in range(n):
                out[r, j, i] = row[i] * kernel[r, j, i] * v[j]


def _rough(labels: Floats, member: Floats, target: Floats, tolerance: float, most: int, out: Floats) -> None:
    """Balance labels [way, N] of each episode; supports are reset to `member` after each pass."""
    episodes, way, n = labels.shape
    supports = member.shape[2]
    sums, before = np.empty(n, labels.dtype), np.empty(n, labels.dtype)
    for r in range(episodes):
        p = out[r]
        p[:] = labels[r]
        before[:] = 0
        for _ in range(most):
            sums[:] = 0
            for j in range(way):
                for i in range(n):
                    sums[i] += p[j, i]
            change = labels.dtype.type(0)
            for i in range(n):
                change = max(change, abs(sums[i] - before[i]))
                before[i] = sums[i]
            if change <= tolerance:
                break
            for j in range(way):
                size = labels.dtype.type(0)
                for i in range(n):
                    p[j, i] /= sums[i]
                    size += p[j, i]
                scale = target[r, j] / size
                for i in range(supports):
                    p[j, i] = member[r, j, i]
                for i in range(supports, n):
                    p[j, i] *= scale


_FLAGS = {"nogil": True, "fastmath": {"contract", "reassoc", "nnan", "nsz"}}
_compiled_rough = cached(_rough, **_FLAGS)
_compiled = cached(_passes, **_FLAGS)


def balance(kernel: Floats, target: Floats, tolerance: float, fixed: Floats | None, most: int) -> Floats:
    """Return the plans [R, way, n] of kernels [R, way, n]; target [R or 1, way, 1], fixed [R, way, 1] or None."""
    episodes, way, _ = kernel.shape
    kernel = np.ascontiguousarray(kernel)
    goal, held = (
        np.ascontiguousarray(np.broadcast_to(part[..., 0], (episodes, way)), kernel.dtype)
        for part in (target, np.zeros_like(target) if fixed is None else fixed)
    )
    plans = np.empty_like(kernel)
    with announced(_compiled):
        _compiled(kernel, goal, held, fixed is not None, kernel.dtype.type(tolerance), most, plans)
    return plans


def rebalance(labels: Floats, member: Floats, target: Floats, tolerance: float, most: int) -> Floats:
    """Return labels [R, way, N] balanced to target [R, way, 1] as `sinkshot.methods.protolp.rebalanced` does."""
    balanced, labels = np.empty(labels.shape, labels.dtype), np.ascontiguousarray(labels)
    goal = np.ascontiguousarray(np.broadcast_to(target[..., 0], labels.shape[:2]), labels.dtype)
    with announced(_compiled_rough):
        held = np.ascontiguousarray(member)
        _compiled_rough(labels, held, goal, labels.dtype.type(tolerance), most, balanced)
    return balanced
