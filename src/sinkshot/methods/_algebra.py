"""Small pieces of linear algebra that several methods share, on any array library."""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace, device

from sinkshot.task import Array, Task


def one_hot(labels: Array, way: int, like: Array) -> Array:
    """Return labels [..., n] as class-major indicators [..., way, n] with the type of `like`."""
    xp = array_namespace(like)
    classes = xp.arange(way, dtype=labels.dtype, device=device(like))
    return xp.astype(labels[..., None, :] == classes[:, None], like.dtype)


def softmax(logits: Array, axis: int) -> Array:
    """Return exp(logits) / sum(exp(logits)) along an axis, without overflow."""
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=axis, keepdims=True))
    return weights / xp.sum(weights, axis=axis, keepdims=True)


def class_means(task: Task) -> Array:
    """Mean of the supports of each class, [R, way, d]."""
    xp = array_namespace(task.support)
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    return (member @ task.support) / xp.sum(member, axis=-1, keepdims=True)


def squared_distances(centres: Array, x: Array) -> Array:
    """Squared Euclidean distances of centres [R, way, d] and rows [R, n, d] as [R, way, n]."""
    xp = array_namespace(x)
    lengths = xp.sum(centres * centres, axis=-1)[..., :, None] + xp.sum(x * x, axis=-1)[..., None, :]
    return xp.clip(lengths - 2.0 * (centres @ xp.matrix_transpose(x)), min=0.0)


def by_query(class_major: Array) -> Array:
    """Turn [R, way, q] into [R, q, way]."""
    return array_namespace(class_major).matrix_transpose(class_major)


def gram_product(x: Array) -> Callable[[Array], Array]:
    """Return the function A -> A X X^T for coefficients A [R, way, N] of rows X [R, N, d].

    With N <= d the Gram matrix is built once, and the width d is gone from every later product. With N > d, a
    practitioner's 100,000 rows, the product goes through X^T and no N x N matrix ever exists.
    """
    xp = array_namespace(x)
    transposed = xp.matrix_transpose(x)
    if x.shape[-2] <= x.shape[-1]:
        gram = x @ transposed  # [R, N, N]
        return lambda a: a @ gram
    return lambda a: (a @ x) @ transposed
