"""OpenMax: Bendale and Boult, "Towards open set deep networks", CVPR 2016, on nearest class means.

A Weibull distribution fitted to the distances of a class's supports to its mean says how unusual the distance of a
query is. The activations of the classes nearest to a query are reduced in proportion, and the amount removed is the
activation of the unknown class, one more column of the softmax.

A support is nearer than a query to a mean that includes it, so its distance is taken to the mean of the other supports
of its class: with n supports, n / (n - 1) times the distance to the mean of all. Two supports are then equally far and
have no spread; the shape of the Weibull is bounded for such cases. Activations are those of the linear form of the
nearest class mean, 2 x.mu - |mu|^2 = |x|^2 - |x - mu|^2: they rank classes in the same way, and have a meaningful zero
(the query is as near to the class as to the origin), which OpenMax needs.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import Rows, at_least, by_query, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task

MOST_SHAPE = 5.0  # bound of the shape of a Weibull: the larger, the more it is a step from near to far
_STEPS = 12  # of Newton's method; six reach single precision
_MOST_LOG = 80.0  # exp of it is still a float32


@register(
    "openmax",
    transductive=False,
    preprocess="PEMbE",
    without_base="PE",
    gram=True,
    least_shots=2,
    reference="Bendale, Boult 2016 (OpenMax), on nearest class means",
)
def openmax(task: Task | GramTask, *, tail: int = 2, alpha: int = 1, scale: float = 20.0) -> Scores:
    """Reduce activations by how unusual a query's distance is; `unknown` is the probability of the unknown class.

    Parameters
    ----------
    tail : int
        eta, the number of supports of a class that the Weibull is fitted to, the farthest ones; all if there are fewer.
    alpha : int
        Number of classes whose activations are reduced, the highest ones; the first is reduced most.
    scale : float
        Multiplies the activations, whose differences on rows of unit length would be too small in the softmax.

    There are no published constants for so few supports. Of 192 combinations, the three defaults and `MOST_SHAPE` had
    the highest AUROC on the bundled base classes, averaged over 2 and 5 shots; of 24 combinations, validation classes
    chose the same three. About sixty settings, since discarded, had been tried on novel classes before.
    """
    tail, alpha, scale = whole("tail", tail, 2), min(whole("alpha", alpha, 1), task.way), number("scale", scale, 0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    squares = _squared_distances(rows)  # [R, way, N]
    distances = xp.sqrt(squares)
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    own = rows.member * distances[..., : rows.supports] * shots / at_least(shots - 1.0, 1.0)  # [R, way, l]
    largest = xp.sort(own, axis=-1, descending=True)[..., :tail]  # distances of other classes are zero, and come last
    kept = xp.arange(largest.shape[-1], dtype=shots.dtype, device=device(shots)) < shots  # [R, way, tail]
    unusual = weibull_cdf(distances[..., rows.supports :], *fit_weibull(largest, kept))  # [R, way, q]

    activation = scale * (rows.squares[..., None, rows.supports :] - squares[..., rows.supports :])  # [R, way, q]
    higher = activation[..., None, :, :] > activation[..., :, None, :]
    rank = xp.sum(xp.astype(higher, activation.dtype), axis=-2)  # 0 for the highest
    removed = at_least(activation, 0.0) * unusual * at_least(alpha - rank, 0.0) / alpha
    revised = activation - removed
    unknown = xp.sum(removed, axis=-2, keepdims=True)  # [R, 1, q]
    with_unknown = softmax(xp.concat([revised, unknown], axis=-2), axis=-2)
    return Scores(by_query(softmax(revised, axis=-2)), unknown=with_unknown[..., -1, :])


def _squared_distances(rows: Rows) -> Array:
    """Squared distances of all rows to the class means, [R, way, N]."""
    xp = array_namespace(rows.member)
    means = rows.means()
    scores = rows.product(means)
    return at_least(xp.sum(means * scores, axis=-1, keepdims=True) + rows.squares[..., None, :] - 2.0 * scores, 0.0)


def fit_weibull(samples: Array, kept: Array, most: float = MOST_SHAPE) -> tuple[Array, Array]:
    """Fit shape k and scale of a Weibull to non-negative samples by maximum likelihood.

    Parameters
    ----------
    samples : array [..., n]
    kept : array [..., n] of bool
        Which samples count; at least one.
    most : float
        Upper bound of the shape, which samples without spread get.

    Returns
    -------
    shape, scale : arrays [..., 1]

    The logarithms y are centred and scaled to unit spread s. Newton's method then solves sum(w y) = 1 / k, with weights
    w proportional to exp(k y), for k; both sides are monotonic. The shape is k / s.
    """
    xp = array_namespace(samples)
    count = xp.sum(xp.astype(kept, samples.dtype), axis=-1, keepdims=True)
    zero, smallest = xp.zeros_like(samples), float(xp.finfo(samples.dtype).smallest_normal)
    logs = xp.where(kept, xp.log(at_least(samples, smallest)), zero)
    middle = xp.sum(logs, axis=-1, keepdims=True) / count
    y = xp.where(kept, logs - middle, zero)
    spread = at_least(xp.sqrt(xp.sum(y * y, axis=-1, keepdims=True) / count), 1e-6)
    y = y / spread
    k = xp.full_like(spread, 1.28)  # pi / sqrt(6), by the variance of the logarithm of a Weibull
    for _ in range(_STEPS):
        weights = _weights(k * y, kept)
        mean = xp.sum(weights * y, axis=-1, keepdims=True)
        variance = xp.sum(weights * (y - mean) ** 2, axis=-1, keepdims=True)
        step = (1.0 / k - mean) / (variance + 1.0 / k**2)
        k = xp.clip(k + step, min=0.5 * k, max=2.0 * k)
    shape = xp.clip(k / spread, max=most)
    raised = shape * (spread * y)
    top = xp.max(raised, axis=-1, keepdims=True)
    total = xp.sum(xp.where(kept, xp.exp(raised - top), zero), axis=-1, keepdims=True)
    return shape, xp.exp(middle + (top + xp.log(total / count)) / shape)


def _weights(logits: Array, kept: Array) -> Array:
    xp = array_namespace(logits)
    weights = xp.where(kept, xp.exp(logits - xp.max(logits, axis=-1, keepdims=True)), xp.zeros_like(logits))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def weibull_cdf(x: Array, shape: Array, scale: Array) -> Array:
    """Probability of at most x, which may be zero: 1 - exp(-(x / scale)^shape)."""
    xp = array_namespace(x)
    smallest = float(xp.finfo(x.dtype).smallest_normal)
    power = shape * (xp.log(at_least(x, smallest)) - xp.log(at_least(scale, smallest)))
    return -xp.expm1(-xp.exp(xp.clip(power, max=_MOST_LOG)))
