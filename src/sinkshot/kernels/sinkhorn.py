"""Sinkhorn to a tolerance, compiled: what `sinkshot.methods._sinkhorn.balance` does, one episode after the other.

In NumPy each pass over a batch costs a dozen calls and lasts until the slowest episode is done; here an episode stays
in the first cache and leaves when it has converged.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.threads import announced, cached

Floats = NDArray[Any]  # float32 or float64


def _passes(
    kernel: Floats, target: Floats, fixed: Floats, clamped: bool, tolerance: float, most: int, out: Floats
) -> None:
    """Balance each episode's kernel [way, n] to its target [way], in turn; rows of `out` are the plans."""
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


_compiled = cached(_passes, nogil=True, fastmath={"contract", "reassoc", "nnan", "nsz"})


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
