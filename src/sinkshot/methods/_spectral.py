"""Singular vectors of an episode from its inner products, in float64: gaps between singular values can be small."""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.task import Array, Task


def left_singular(task: Task) -> tuple[Array, Array]:
    """Left singular vectors [R, N, r] and singular values [R, r], largest first, of the rows of a task.

    r is the smaller of N and d. u * values are the rows in an orthonormal basis of their span.
    """
    xp = array_namespace(task.support, task.query)
    x = xp.astype(xp.concat([task.support, task.query], axis=-2), xp.float64)
    values, vectors = xp.linalg.eigh(x @ xp.matrix_transpose(x))  # ascending
    rank = min(x.shape[-2:])
    values = xp.sqrt(xp.clip(xp.flip(values, axis=-1)[..., :rank], min=0.0))
    return xp.flip(vectors, axis=-1)[..., :rank], values
