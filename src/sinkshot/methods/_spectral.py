"""Singular vectors, eigenvectors and orthonormal bases of episodes, on any array library."""

from __future__ import annotations

from array_api_compat import array_namespace, is_torch_array

from sinkshot.task import Array, Task


def left_singular(task: Task) -> tuple[Array, Array]:
    """Left singular vectors [R, N, r] and singular values [R, r], largest first, of the rows of a task.

    They come from inner products, in float64: gaps between singular values can be small. r is the smaller of N and d. u
    * values are the rows in an orthonormal basis of their span.
    """
    xp = array_namespace(task.support, task.query)
    x = xp.astype(xp.concat([task.support, task.query], axis=-2), xp.float64)
    values, vectors = eigh(x @ xp.matrix_transpose(x))  # ascending
    rank = min(x.shape[-2:])
    values = xp.sqrt(xp.clip(xp.flip(values, axis=-1)[..., :rank], min=0.0))
    return xp.flip(vectors, axis=-1)[..., :rank], values


def eigh(matrices: Array) -> tuple[Array, Array]:
    """Eigenvalues [R, n], ascending, and eigenvectors [R, n, n], in columns, of symmetric matrices [R, n, n]."""
    if _on_gpu(matrices):
        from sinkshot.kernels.eigh_cuda import eigh as batched

        return batched(matrices)
    values, vectors = array_namespace(matrices).linalg.eigh(matrices)
    return values, vectors


def solved(matrices: Array, right: Array) -> Array:
    """Solve systems [R, n, n] that are not singular; a GPU is not asked whether they are, which would stop it."""
    if _on_gpu(matrices):
        import torch

        return torch.linalg.solve_ex(matrices, right).result
    return array_namespace(matrices).linalg.solve(matrices, right)


def orthonormal(columns: Array) -> Array:
    """An orthonormal basis of the span of a few columns, [R, m, k].

    GPUs factorise the matrices of a batch one by one, so there the columns are made orthogonal by hand, twice against
    rounding; one that depends on those before it becomes zero.
    """
    xp = array_namespace(columns)
    return by_gram_schmidt(columns) if _on_gpu(columns) else xp.linalg.qr(columns)[0]


def by_gram_schmidt(columns: Array) -> Array:
    """Make columns [R, m, k] orthonormal, one after the other."""
    xp = array_namespace(columns)
    given = xp.matrix_transpose(columns)  # [R, k, m]
    least = 16 * xp.finfo(columns.dtype).eps
    done = given[..., :0, :]
    for i in range(given.shape[-2]):
        one = given[..., i : i + 1, :]
        before = xp.sum(one * one, axis=-1, keepdims=True)
        for _ in range(2):
            one = one - (one @ xp.matrix_transpose(done)) @ done
        square = xp.sum(one * one, axis=-1, keepdims=True)
        some = square > least * before
        scale = xp.where(some, xp.sqrt(xp.where(some, square, xp.ones_like(square))), xp.ones_like(square))
        one = xp.where(some, one / scale, xp.zeros_like(one))
        done = xp.concat([done, one], axis=-2)
    return xp.matrix_transpose(done)


def _on_gpu(array: Array) -> bool:
    return bool(is_torch_array(array)) and array.device.type == "cuda"
