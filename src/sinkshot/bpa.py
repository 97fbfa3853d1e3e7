"""BPA, a transform of a task's rows: Shalam, Korman, "The balanced-pairwise-affinities feature transform", ICML 2024.

Each row is replaced by its optimal transport plan to all other rows of the task, a vector with one entry per row. No
labels are used, so the transform, step B of a chain, can precede any method.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.task import Array

REGULARISATION = 0.2
PASSES = 10  # maximum number of Sinkhorn passes
TOLERANCE = 0.1  # stop when the potentials of an episode's rows change by less than this in sum


def transform(x: Array) -> Array:
    """Return the affinities [R, N, N] between rows [R, N, d], 1 on the diagonal and at most 1 elsewhere.

    Sinkhorn runs on exp(-(1 - cosine) / 0.2) without its diagonal, to sums of 1/N on both sides, ending on the columns.
    Each episode stops on its own, usually after 4 to 7 passes, so the result is not quite symmetric.
    """
    xp = array_namespace(x)
    count = x.shape[-2]
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    x = x / xp.clip(length, min=1e-12)
    others = 1.0 - xp.eye(count, dtype=x.dtype, device=device(x))
    kernel = xp.exp((x @ xp.matrix_transpose(x) - 1.0) / REGULARISATION) * others  # [R, N, N], symmetric
    share = 1.0 / count + 1e-8
    u = xp.ones_like(length)  # [R, N, 1]
    v, active = u, xp.ones_like(u[..., :1, :], dtype=xp.bool)  # [R, 1, 1]
    for _ in range(PASSES):
        rows = share / (kernel @ v)
        columns = share / (kernel @ rows)
        change = REGULARISATION * xp.sum(xp.abs(xp.log(rows / u)), axis=-2, keepdims=True)
        u, v = xp.where(active, rows, u), xp.where(active, columns, v)
        active = active & (change >= TOLERANCE)
        if not bool(xp.any(active)):
            break
    plan = u * kernel * xp.matrix_transpose(v)
    return plan / xp.max(plan, axis=(-2, -1), keepdims=True) * others + (1.0 - others)
