"""BAVARDAGE: Hu, Pateux, Gripon, "Adaptive dimension reduction and variational inference for transductive few-shot
classification", AISTATS 2023.

Directions in which the base classes vary little are stretched. Soft k-means then initialises a variational Gaussian
mixture, which in every step projects the rows on the way - 1 directions that separate its class means. Class sizes are
equal, or inferred under a Dirichlet prior.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.errors import number, whole
from sinkshot.methods._spectral import eigh, orthonormal
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.methods.tafssl_msp import squared_distances
from sinkshot.task import Array, Scores, Task

_RIDGE = 1e-6
_PRECISIONS: WeakKeyDictionary[FeatureBank, dict[float, NDArray[np.float64]]] = WeakKeyDictionary()


@register(
    "bavardage",
    transductive=True,
    preprocess="MbE",
    features=True,
    balanced=True,
    imbalanced={"prior": None},
    reference="Hu, Pateux, Gripon 2023 (BAVARDAGE)",
)
def bavardage(
    task: Task,
    *,
    kmeans_temperature: float = 10.0,
    kmeans_steps: int = 5,
    temperature: float = 4.0,
    steps: int = 5,
    concentration: float = 2.0,
    shrinkage: float = 10.0,
    limit: float = 5.0,
    scatter: float = 1.0,
    prior: Prior = "balanced",
) -> Scores:
    """Infer classes and their sizes by a variational mixture in the directions that separate the classes.

    Parameters
    ----------
    kmeans_temperature, kmeans_steps : float, int
        T_km in softmax(-T_km ||x - mean||^2), and the number of assignments, in the initial soft k-means.
    temperature, steps : float, int
        T_vb, the inverse variance of the mixture, and its iterations.
    concentration : float
        alpha_0 of the Dirichlet prior on class sizes, where they are inferred.
    shrinkage : float
        beta_0: the number of rows at the origin that the prior adds to every class.
    limit : float
        Largest factor by which a direction is stretched.
    scatter : float
        Multiplies the scatter of the base classes, which is a sum over the rows of a class and grows with their number.
    prior : "balanced", None, "estimated" or class proportions [way]
        "balanced" is the authors' balanced mode; None infers class sizes, as their other mode does.
    """
    kmeans_temperature = number("kmeans_temperature", kmeans_temperature, above=0)
    temperature, concentration = number("temperature", temperature, above=0), number("concentration", concentration, 0)
    shrinkage, limit = number("shrinkage", shrinkage, above=0), number("limit", limit, above=0)
    kmeans_steps, steps = whole("kmeans_steps", kmeans_steps, least=1), whole("steps", steps, least=1)
    rows, stretched = _directions(task, limit, number("scatter", scatter, above=0))  # [R, N, m] both
    xp = array_namespace(rows)
    member = one_hot(task.labels, task.way, rows)  # [R, way, l]
    shots = xp.sum(member, axis=-1, keepdims=True)
    known = None if prior is None else xp.log(xp.clip(column_targets(prior, task, rows), min=_RIDGE))  # [R, way, 1]

    def with_supports(logits: Array) -> Array:
        return xp.concat([member, softmax(logits[..., task.supports :], axis=-2)], axis=-1)  # [R, way, N]

    means = (member @ rows[..., : task.supports, :]) / shots
    for _ in range(kmeans_steps):
        share = with_supports(-kmeans_temperature * squared_distances(means, rows))
        means = (share @ rows) / xp.sum(share, axis=-1, keepdims=True)
    for _ in range(steps):
        size = xp.sum(share, axis=-1, keepdims=True)  # [R, way, 1]
        means = (share @ stretched) / (shrinkage + size)
        between = xp.matrix_transpose(means[..., 1:, :] - means[..., :1, :])  # [R, m, way - 1]
        basis = orthonormal(between)
        distances = squared_distances(means @ basis, stretched @ basis)  # [R, way, N]
        expected = digamma(concentration + size - shots) if known is None else known  # log share, up to a constant
        share = with_supports(expected - 0.5 * (temperature * distances + (task.way - 1) / (shrinkage + size)))
    return Scores(by_query(share[..., task.supports :]))


def _directions(task: Task, limit: float, scatter: float) -> tuple[Array, Array]:
    """Return the rows in an orthonormal basis U of their span, and the same rotated and stretched, [R, N, m].

    With X = W s U^T the rows in that basis are W s. Their within-class scatter is (U^T S^-1 U)^-1 = V e V^T, and the
    directions V are stretched by e^-1/2.
    """
    xp = array_namespace(task.support, task.query)
    x = xp.concat([task.support, task.query], axis=-2)  # [R, N, d]
    inverse = xp.asarray(_precision(task, scatter), dtype=x.dtype, device=device(x))  # [d, d]
    values, w = eigh(x @ xp.matrix_transpose(x))
    kept = min(x.shape[-2:])
    values, w = values[..., None, -kept:], w[..., -kept:]  # [R, 1, m], [R, N, m]
    lost = values <= xp.finfo(x.dtype).eps * x.shape[-2] * values[..., -1:]  # directions that the rows do not have
    s = xp.sqrt(xp.where(lost, xp.ones_like(values), values))
    w = xp.where(lost, xp.zeros_like(w), w)
    u = xp.matrix_transpose(x) @ (w / s)  # [R, d, m]
    precision, v = eigh(xp.matrix_transpose(u) @ (inverse @ u))
    rows = w * s
    stretch = xp.clip(xp.sqrt(xp.clip(precision, min=0.0)), max=limit)  # [R, m]
    return rows, (rows @ v) * stretch[..., None, :]


def _precision(task: Task, factor: float) -> NDArray[np.float64]:
    """Inverse of the within-class scatter of the base classes times a factor, [d, d]."""
    assert task.base is not None  # the registry asks for it
    known = _PRECISIONS.setdefault(task.base, {})
    if factor not in known:
        scatter = factor * within_class_scatter(task.base)
        known[factor] = np.asarray(np.linalg.inv(scatter + _RIDGE * np.eye(len(scatter))), np.float64)
    return known[factor]


def within_class_scatter(base: FeatureBank) -> NDArray[np.float64]:
    """Mean over the classes of sum (x - mean)(x - mean)^T, each scaled to the same Frobenius norm, [d, d]."""
    total, norms = np.zeros((base.width, base.width)), []
    for label in range(base.classes):
        rows = base.features[base.labels == label].astype(np.float64)
        rows -= rows.mean(axis=0)
        scatter = rows.T @ rows
        norms.append(np.linalg.norm(scatter))
        total += scatter / norms[-1] if norms[-1] > 0 else 0.0
    return np.asarray(total / base.classes * np.mean(norms))


def digamma(x: Array) -> Array:
    """Derivative of log Gamma at x > 0, to ten digits: six steps up its recurrence, then the asymptotic series."""
    xp = array_namespace(x)
    steps = sum(1.0 / (x + i) for i in range(6))
    x = x + 6.0
    square = 1.0 / (x * x)
    return xp.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252)) - steps
