"""The steps Mn, Ma and Mc on Gram matrices: subtract a mean of a task's rows without the rows themselves."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace

from sinkshot.arrays import Array, one_hot
from sinkshot.chain import Chain


class Centring(NamedTuple):
    """The part of a chain that needs the task, in a form that can be applied to a Gram matrix."""

    centre: bool  # subtract the mean of the task
    apart: bool  # subtract the means of supports and queries separately
    normalise: bool  # then scale to unit length
    classes: bool = False  # subtract the mean of the class means


def centring(task_wise: Chain) -> Centring | None:
    """Return the `Centring` of a chain, or None if the chain needs more than inner products."""
    names = [step.name for step in task_wise]
    normalise = names[1:] == ["E"]
    if names[:1] in ([], ["Mn"], ["Ma"], ["Mc"]) and (normalise or len(names) < 2):
        return Centring(names[:1] == ["Mn"], names[:1] == ["Ma"], normalise, names[:1] == ["Mc"])
    return None


def centred_apart(gram: Array, supports: int, normalise: bool) -> Array:
    """Subtract the means of supports and queries on both sides of Gram matrices [R, N, N]; optionally unit length.

    To avoid cancellation, subtract the mean of the task first. A row that is zero up to rounding becomes zero.
    """
    xp = array_namespace(gram)
    for _ in range(2):  # rows, then columns
        parts = gram[..., :supports, :], gram[..., supports:, :]
        gram = xp.concat([part - xp.mean(part, axis=-2, keepdims=True) for part in parts], axis=-2)
        gram = xp.matrix_transpose(gram)
    return _unit_length(gram) if normalise else gram


def centred_by_classes(gram: Array, labels: Array, normalise: bool) -> Array:
    """Subtract the centre of Mc on both sides of Gram matrices [R, N, N]; the first l rows are supports, labels [R, l].

    To avoid cancellation, subtract the mean of the task first. A row that is zero up to rounding becomes zero.
    """
    xp = array_namespace(gram)
    along = class_centre(labels, gram) @ gram  # [R, 1, N]: inner products of the centre with all rows
    square = along @ xp.matrix_transpose(class_centre(labels, gram))  # [R, 1, 1]
    gram = gram - along - xp.matrix_transpose(along) + square
    return _unit_length(gram) if normalise else gram


def class_centre(labels: Array, rows: Array) -> Array:
    """Weights [..., 1, N] of the rows [..., N, d], supports first, in the mean of the class means.

    The mean of all rows counts as one more support of each class, because the mean of a few supports is noisy.
    """
    xp = array_namespace(rows)
    of_supports, of_mean = class_weights(labels, rows)
    of_queries = xp.zeros_like(rows[..., labels.shape[-1] :, 0])[..., None, :]
    return xp.concat([of_supports, of_queries], axis=-1) + of_mean / rows.shape[-2]


def class_weights(labels: Array, like: Array) -> tuple[Array, Array]:
    """Weights of the supports [..., 1, l] and of the mean of all rows [..., 1, 1] in the mean of the class means."""
    xp = array_namespace(like)
    member = one_hot(labels, int(xp.max(labels)) + 1, like)  # [..., way, l]
    share = 1.0 / (xp.sum(member, axis=-1, keepdims=True) + 1.0)  # [..., way, 1]
    return xp.mean(member * share, axis=-2, keepdims=True), xp.mean(share, axis=-2, keepdims=True)


def _unit_length(gram: Array) -> Array:
    xp = array_namespace(gram)
    squares = xp.linalg.diagonal(gram)  # [R, N]
    some = squares > 4 * xp.finfo(gram.dtype).eps * xp.mean(squares, axis=-1, keepdims=True)
    length = xp.sqrt(xp.where(some, squares, xp.ones_like(squares)))
    scale = xp.where(some, 1.0 / length, xp.zeros_like(length))
    return gram * scale[..., None] * scale[..., None, :]
