"""OSLO: Boudiaf et al., "Open-set likelihood maximization for few-shot learning", CVPR 2023.

Every query has class probabilities and an inlierness, the probability that it belongs to any of the known classes. Both
are refined in alternation with the prototypes, to which queries contribute by their inlierness. The method is made for
pools with queries of unknown classes.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import Rows, by_query, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task


@register("oslo", transductive=True, preprocess="MnE", gram=True, reference="Boudiaf et al. 2023 (OSLO)")
def oslo(task: Task | GramTask, *, lambda_inlier: float = 0.05, lambda_class: float = 0.1, steps: int = 2) -> Scores:
    """Alternately refine prototypes, class probabilities and inlierness; `unknown` is one minus the inlierness.

    Parameters
    ----------
    lambda_inlier, lambda_class : float
        lambda_s and lambda_z, temperatures of the inlierness s and of the classes z.
    steps : int
        Number of updates of s, z and the prototypes.
    """
    lambda_inlier, lambda_class = number("lambda_inlier", lambda_inlier, 0), number("lambda_class", lambda_class, 0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    prototypes = rows.means()  # coefficients, [R, way, N]
    z = 1.0 / task.way
    for _ in range(whole("steps", steps, least=1)):
        cosine = cosines(prototypes, rows)  # [R, way, q]
        evidence = xp.sum(z * cosine, axis=-2, keepdims=True) / lambda_inlier  # [R, 1, q]
        inlier = sigmoid(evidence)
        z = softmax(inlier * cosine / lambda_class, axis=-2)
        mass = rows.with_queries(rows.member, inlier * z)
        prototypes = mass / xp.sum(mass, axis=-1, keepdims=True)
    probabilities = softmax(cosines(prototypes, rows), axis=-2)
    return Scores(by_query(probabilities), unknown=sigmoid(-evidence)[..., 0, :])


def cosines(a: Array, rows: Rows) -> Array:
    """Cosines of the points with coefficients `a` and the queries, [R, way, q]; zero where there is no direction."""
    xp = array_namespace(a)
    scores = rows.product(a)
    square = xp.sum(a * scores, axis=-1, keepdims=True) * rows.squares[..., None, rows.supports :]
    lengths = xp.sqrt(xp.where(square > 0, square, xp.ones_like(square)))
    return xp.where(square > 0, scores[..., rows.supports :] / lengths, xp.zeros_like(square))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    xp = array_namespace(x)
    return 1.0 / (1.0 + xp.exp(-xp.clip(x, min=-80.0)))
