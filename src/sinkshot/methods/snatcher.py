"""SnaTCHer: Jeong, Choi, Kim, "Few-shot open-set recognition by transformation consistency", CVPR 2021.

A transform f adapts the prototypes of an episode to each other, P = f(B). A query replaces its nearest prototype; if it
belongs to that class, the transformed set hardly changes. The paper trains a transformer as f; here f is a parameter,
with two choices that need no training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace, size

from sinkshot.errors import InputError, number, unknown_name
from sinkshot.methods.algebra import at_least, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task

Transform = Callable[[Array], Array]
_BLOCK = 1 << 22  # entries of the prototype sets that are transformed at once


@register(
    "snatcher",
    transductive=False,
    preprocess="PEMbE",
    without_base="PE",
    reference="Jeong, Choi, Kim 2021 (SnaTCHer), transforms without training",
)
def snatcher(task: Task, *, transform: str | Transform = "attention", temperature: float = 64.0) -> Scores:
    """Assign each query to the nearest transformed prototype; `unknown` is how much replacing it changes the set.

    Parameters
    ----------
    transform : "attention", "mean" or callable
        f. "attention": self-attention of the prototypes, as in FEAT but without learnt projections. "mean": task
        normalisation, their mean subtracted and each scaled to unit length. Or a function from prototypes
        [..., way, d] to an array of the same shape and library.
    temperature : float
        Divides squared distances; 64 in the public code.
    """
    temperature = number("temperature", temperature, 0)
    change = _transform(transform)
    xp = array_namespace(task.support, task.query)
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    prototypes = (member / xp.sum(member, axis=-1, keepdims=True)) @ task.support  # B, [R, way, d]
    transformed = _checked(change(prototypes), prototypes)  # P
    logits = -_squared_distances(task.query, transformed) / temperature  # [R, q, way]
    predicted = xp.argmax(logits, axis=-1)  # [R, q]
    taken = xp.matrix_transpose(one_hot(predicted, task.way, task.query)) > 0  # [R, q, way]
    block = max(1, _BLOCK // max(1, size(prototypes) or 1))  # queries
    unknown = [xp.zeros_like(task.query[:, :0, 0])]
    for begin in range(0, task.queries, block):
        here = slice(begin, min(begin + block, task.queries))
        snatched = xp.where(taken[:, here, :, None], task.query[:, here, None, :], prototypes[:, None, ...])
        apart = _checked(change(snatched), snatched) - transformed[:, None, ...]  # P' - P, [R, b, way, d]
        unknown.append(xp.sum(apart * apart, axis=(-2, -1)) / temperature)
    return Scores(softmax(logits, axis=-1), unknown=xp.concat(unknown, axis=-1))


def attention(prototypes: Array) -> Array:
    """Self-attention with a residual connection: P = B + softmax(B B^T / sqrt(d)) B."""
    xp = array_namespace(prototypes)
    alike = prototypes @ xp.matrix_transpose(prototypes) / prototypes.shape[-1] ** 0.5  # [..., way, way]
    return prototypes + softmax(alike, axis=-1) @ prototypes


def task_normalised(prototypes: Array) -> Array:
    """Subtract the mean of the prototypes and scale each to unit length; one at the mean becomes zero."""
    xp = array_namespace(prototypes)
    centred = prototypes - xp.mean(prototypes, axis=-2, keepdims=True)
    length = xp.sqrt(xp.sum(centred * centred, axis=-1, keepdims=True))
    return centred / xp.where(length > 0, length, xp.ones_like(length))


TRANSFORMS: dict[str, Transform] = {"attention": attention, "mean": task_normalised}


def _transform(given: Any) -> Transform:
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, str) or given not in TRANSFORMS:
        raise unknown_name("transform of snatcher", str(given), TRANSFORMS)
    return TRANSFORMS[given]


def _checked(transformed: Array, prototypes: Array) -> Array:
    shapes = getattr(transformed, "shape", None), prototypes.shape
    if shapes[0] != shapes[1]:
        raise InputError(f"a transform must keep the shape of the prototypes, {shapes[1]}; it returned {shapes[0]}.")
    return transformed


def _squared_distances(query: Array, points: Array) -> Array:
    """Squared distances of queries [R, q, d] to points [R, way, d], [R, q, way]."""
    xp = array_namespace(query)
    squares = xp.sum(query * query, axis=-1)[..., :, None] + xp.sum(points * points, axis=-1)[..., None, :]
    return at_least(squares - 2.0 * (query @ xp.matrix_transpose(points)), 0.0)
