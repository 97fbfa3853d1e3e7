"""Logistic regression on the supports: the plain linear classifier that every few-shot method is compared with.

It minimises ||W||^2 / 2 + C sum of cross-entropies with a free intercept, as scikit-learn does. The weights are
combinations of the supports, W = A X, so each step costs the square of the number of supports, for any width.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Scores, Task


@register(
    "logreg",
    transductive=False,
    preprocess="PEMbE",
    without_base="PE",
    reference="Böhning 1992, Multinomial logistic regression algorithm",
)
def logreg(task: Task, *, C: float = 1.0, steps: int = 10_000, tolerance: float = 2e-6) -> Scores:
    """Fit multinomial logistic regression to the supports.

    The curvature of the loss is at most half that of least squares (Böhning), so one inverse serves all steps. They are
    accelerated by Nesterov's momentum, which restarts when it points uphill.

    Parameters
    ----------
    C : float
        Weight of the data against the penalty ||W||^2 / 2.
    steps : int
        Maximum number of steps; the fit ends earlier once no logit changes by more than `tolerance`.
    """
    C, steps, tolerance = number("C", C, above=0), whole("steps", steps, least=1), number("tolerance", tolerance)
    xp = array_namespace(task.support, task.query)
    centre = xp.mean(task.support, axis=-2, keepdims=True)  # absorbed by the intercept; avoids cancellation
    support, query = task.support - centre, task.query - centre
    gram = support @ xp.matrix_transpose(support)  # [R, l, l]
    target = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    supports = gram.shape[-1]
    bound = xp.linalg.inv(xp.eye(supports, dtype=gram.dtype, device=device(gram)) + (C / 2) * gram)
    total = (C / 2) * xp.sum(bound, axis=(-2, -1), keepdims=True)  # [R, 1, 1]

    a, intercept = xp.zeros_like(target), xp.zeros_like(target[..., :1])  # [R, way, l], [R, way, 1]
    ahead, ahead_intercept = a, intercept
    weight = xp.ones_like(total)
    active = weight > 0  # [R, 1, 1]: each episode stops on its own
    for _ in range(steps):
        error = softmax(ahead @ gram + ahead_intercept, axis=-2) - target
        pull = (ahead + C * error) @ bound
        intercept_step = (xp.sum(pull, axis=-1, keepdims=True) - xp.sum(ahead, axis=-1, keepdims=True)) / total
        step = pull - (C / 2) * intercept_step * xp.sum(bound, axis=-1)[..., None, :]
        new = xp.where(active, ahead - step, a)
        new_intercept = xp.where(active, ahead_intercept - intercept_step, intercept)

        moved = step @ gram  # change of the logits of the supports
        uphill = xp.sum(moved * (new - a), axis=(-2, -1), keepdims=True) > 0
        weight = xp.where(uphill, xp.ones_like(weight), weight)
        next_weight = (1 + xp.sqrt(1 + 4 * weight * weight)) / 2
        carry = (weight - 1) / next_weight
        ahead, ahead_intercept = new + carry * (new - a), new_intercept + carry * (new_intercept - intercept)
        a, intercept, weight = new, new_intercept, next_weight
        active = active & (xp.max(xp.abs(moved + intercept_step), axis=(-2, -1), keepdims=True) > tolerance)
        if not bool(xp.any(active)):
            break
    logits = a @ (support @ xp.matrix_transpose(query)) + intercept  # [R, way, q]
    return Scores(by_query(softmax(logits, axis=-2)))
