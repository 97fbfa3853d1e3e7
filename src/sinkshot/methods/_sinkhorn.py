"""Sinkhorn to a tolerance, as in PT+MAP, protoLP and SIAMESE; each episode stops on its own.

The public implementations run a whole batch until its slowest episode converges; with one episode they do the same.
"""

from __future__ import annotations

import importlib.util

import numpy as np
from array_api_compat import array_namespace

from sinkshot.kernels import jit_disabled
from sinkshot.methods.algebra import Rows, at_least
from sinkshot.settings.constants import LEAST_LOGIT
from sinkshot.task import Array

PASSES = 1000  # maximum number of passes
PAYS_FROM = 128  # entries of an episode's kernel


def gibbs(rows: Rows, centres: Array, lam: float) -> Array:
    """Return exp(-lam ||x - c||^2) [R, way, q] of the queries x and the centres c with these coefficients [R, way, N].

    Each query's row is divided by its largest entry, which the first step of Sinkhorn undoes.
    """
    xp = array_namespace(centres)
    scores = rows.product(centres)
    length = xp.sum(centres * scores, axis=-1, keepdims=True)
    logits = lam * (2.0 * scores[..., rows.supports :] - length)  # without the squared length of each query
    return xp.exp(at_least(logits - xp.max(logits, axis=-2, keepdims=True), LEAST_LOGIT))


def balance(kernel: Array, target: Array, tolerance: float, fixed: Array | None = None) -> Array:
    """Alternately scale rows to one and classes to their targets, until no row sum changes by more than `tolerance`.

    Parameters
    ----------
    kernel : array [R, way, n]
        Positive.
    target : array [R or 1, way, 1]
        Sums of the classes.
    tolerance : float
        For the row sums after the class step. It ends on the class step: class sums are exact, row sums are not quite.
    fixed : array [R, way, 1], optional
        The contribution of supports that are not in the kernel to each class sum; it is never scaled.
    """
    xp = array_namespace(kernel)
    if isinstance(kernel, np.ndarray) and compiles(kernel):
        from sinkshot.kernels.sinkhorn_numba import balance as compiled

        return compiled(kernel, target, tolerance, fixed, PASSES)
    if in_triton(kernel):
        from sinkshot.kernels.sinkhorn_triton import balance as on_gpu

        return on_gpu(kernel, target, tolerance, fixed, PASSES)
    v = xp.ones_like(kernel[..., :1])  # [R, way, 1]
    u = before = xp.zeros_like(kernel[..., :1, :])  # [R, 1, n]
    active = xp.ones_like(v[..., :1, :], dtype=xp.bool)  # [R, 1, 1]
    mass = xp.sum(kernel, axis=-2, keepdims=True)  # [R, 1, n], of each row before it is scaled
    for step in range(PASSES):
        row = 1.0 / mass
        size = xp.sum(kernel * row, axis=-1, keepdims=True)  # [R, way, 1]
        column = target / size if fixed is None else target * v / (fixed + v * size)
        u, v = xp.where(active, row, u), xp.where(active, column, v)
        mass = xp.sum(kernel * v, axis=-2, keepdims=True)
        sums = u * mass
        if step > 0:
            change = xp.max(xp.abs(sums - before), axis=-1, keepdims=True)
            active = active & (change > tolerance)
            if not bool(xp.any(active)):
                break
        before = sums
    return u * kernel * v


def in_triton(kernel: Array) -> bool:
    """Whether a kernel [R, way, n] is on an NVIDIA GPU with triton, and an episode fits into one of its programs."""
    if not getattr(kernel, "is_cuda", False) or importlib.util.find_spec("triton") is None:
        return False
    from sinkshot.kernels.sinkhorn_triton import fits

    return fits(*kernel.shape[-2:])


def compiles(values: Array) -> bool:
    """Whether episodes [R, way, n] are large enough for compiled code; independent of R, so that results are too."""
    return bool(values.shape[-2] * values.shape[-1] >= PAYS_FROM) and not jit_disabled()
