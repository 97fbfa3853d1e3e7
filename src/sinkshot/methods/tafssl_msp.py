"""TAFSSL with mean-shift propagation: Lichtenstein et al., "TAFSSL: task-adaptive feature sub-space learning", 2020.

The rows of an episode are projected on the ten directions in which they vary most, found without labels. Class means
then move to their most confident queries. Every class takes the same number of these: a balanced prior.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, unknown_name, whole
from sinkshot.methods._spectral import eigh
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task

_REFERENCE = "Lichtenstein et al. 2020 (TAFSSL)"
_TINY = 1e-12


@register(
    "tafssl-pca-msp", transductive=True, preprocess="", balanced=True, ordered=True, reference=_REFERENCE, basis="pca"
)
@register(
    "tafssl-ica-msp", transductive=True, preprocess="", balanced=True, ordered=True, reference=_REFERENCE, basis="ica"
)
def tafssl_msp(
    task: Task,
    *,
    basis: str = "pca",
    dimensions: int = 10,
    sigma: float = 1.0,
    threshold: float = 0.3,
    steps: int = 4,
) -> Scores:
    """Move class means to their most confident queries, in the subspace of the task.

    Parameters
    ----------
    basis : {"pca", "ica"}
        How the subspace is found, see `project`.
    dimensions : int
        Dimensions of the subspace.
    sigma : float
        sigma in softmax(-sigma ||z - mean||^2).
    threshold : float
        Queries serve as supports up to the rank at which the least confident class falls to this probability.
    steps : int
        Number of times that queries are chosen and means are moved.
    """
    sigma, threshold, steps = number("sigma", sigma, above=0), number("threshold", threshold), whole("steps", steps, 0)
    support, query = project(task, basis, dimensions)
    xp = array_namespace(query)
    member = one_hot(task.labels, task.way, query)  # [R, way, l]
    shots, total = xp.sum(member, axis=-1, keepdims=True), member @ support

    def scores(means: Array) -> Array:
        return softmax(-sigma * squared_distances(means, query), axis=-2)  # [R, way, q]

    probability = scores(total / shots)
    for _ in range(steps):
        order = xp.argsort(probability, axis=-1, descending=True)
        rank = xp.argsort(order, axis=-1)  # [R, way, q]
        by_rank = xp.min(xp.sort(probability, axis=-1, descending=True), axis=-2, keepdims=True)  # [R, 1, q]
        taken = xp.sum(xp.astype(by_rank > threshold, rank.dtype), axis=-1, keepdims=True)  # [R, 1, 1], for each class
        chosen = xp.astype(rank < taken, query.dtype)
        probability = scores((total + chosen @ query) / (shots + xp.astype(taken, query.dtype)))
    return Scores(by_query(probability))


def project(task: Task, basis: str, dimensions: int) -> tuple[Array, Array]:
    """Return supports [R, l, k] and queries [R, q, k] in the subspace of the task, at unit length.

    First, queries are centred together; supports are centred as in the public code: the first supports of all classes
    together, then the second ones, and so on. `pca` takes the first right singular vectors V of the rows X. `ica` takes
    those of X after subtracting the mean over features from each row: independent components of the transposed matrix
    are these vectors rotated and scaled, which does not change distances at unit length.
    """
    if basis not in ("pca", "ica"):
        raise unknown_name("basis of TAFSSL", basis, ("pca", "ica"))
    xp = array_namespace(task.support, task.query)
    support = task.support - _means_of_slots(task)
    query = task.query - xp.mean(task.query, axis=-2, keepdims=True)
    x = unit(xp.concat([support, query], axis=-2))  # [R, N, d]
    seen = x - xp.mean(x, axis=-1, keepdims=True) if basis == "ica" else x
    values, vectors = eigh(seen @ xp.matrix_transpose(seen))  # U and squared singular values, ascending
    kept = min(whole("dimensions", dimensions, 1), *x.shape[-2:])
    values, vectors = values[..., None, -kept:], vectors[..., -kept:]  # [R, 1, k], [R, N, k]
    digits = xp.finfo(x.dtype).eps * x.shape[-2]
    lost = values <= digits * values[..., -1:]  # directions that the rows do not have
    length = xp.sqrt(xp.where(lost, xp.ones_like(values), values))
    z = x @ (xp.matrix_transpose(seen) @ xp.where(lost, xp.zeros_like(vectors), vectors / length))  # X V
    z = unit(z)
    return z[..., : task.supports, :], z[..., task.supports :, :]


def _means_of_slots(task: Task) -> Array:
    """For each support, the mean over classes of the supports with the same rank within their class, [R, l, d]."""
    xp = array_namespace(task.support)
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    slot = xp.sum(member * xp.cumulative_sum(member, axis=-1), axis=-2)  # [R, l], from 1
    same = xp.astype(slot[..., :, None] == slot[..., None, :], task.support.dtype)  # [R, l, l]
    return (same @ task.support) / xp.sum(same, axis=-1, keepdims=True)


def unit(x: Array) -> Array:
    """Rows at unit length; zero stays zero."""
    xp = array_namespace(x)
    return x / xp.clip(xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)), min=_TINY)


def squared_distances(a: Array, b: Array) -> Array:
    """||a_i - b_j||^2 for rows a [R, n, k] and b [R, m, k]: [R, n, m]."""
    xp = array_namespace(a, b)
    cross = a @ xp.matrix_transpose(b)
    return xp.clip(xp.sum(a * a, axis=-1)[..., None] + xp.sum(b * b, axis=-1)[..., None, :] - 2.0 * cross, min=0.0)
