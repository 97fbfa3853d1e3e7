"""PADDLE: Martin et al., "Towards practical few-shot query sets: transductive minimum description length inference",
NeurIPS 2022.

Soft k-means on features divided by their range over the queries, with a term that favours few large classes. It does
not assume balanced classes, and a class may stay empty.
"""

from __future__ import annotations

from dataclasses import replace

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import by_query, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Scores, Task

EPSILON = 1e-6  # added to the share of a class under the logarithm


@register("paddle", transductive=True, preprocess="", reference="Martin et al. 2022")
def paddle(task: Task, *, lam: float | str = "auto", steps: int = 100) -> Scores:
    """Refine class means by soft assignments of the queries that favour large classes.

    Parameters
    ----------
    lam : float or "auto"
        lambda, weight of the term that favours few classes, divided by the number of queries; "auto" is that number.
    steps : int
        Number of assignments; the last one, with the means and shares of the step before, is the result.
    """
    steps = whole("steps", steps, least=1)
    lam = task.queries if lam == "auto" else number("lam (unless 'auto')", lam)
    rows = rows_of(by_range(task))
    xp = array_namespace(rows.member)
    means, bonus = rows.means(), xp.zeros_like(rows.member[..., :1])  # [R, way, N], [R, way, 1]
    for step in range(steps):
        assignment = softmax(bonus - rows.distances(means) / 2, axis=-2)  # [R, way, q]
        if step == steps - 1:
            break
        bonus = (lam / rows.queries) * (xp.log(xp.mean(assignment, axis=-1, keepdims=True) + EPSILON) + 1)
        mass = rows.with_queries(rows.member, assignment)
        means = mass / xp.sum(mass, axis=-1, keepdims=True)
    return Scores(by_query(assignment))


def by_range(task: Task) -> Task:
    """Divide each feature by its range over the queries of the episode; constant features are not changed.

    The queries' mean is subtracted from all rows, which changes no distance and avoids cancellation.
    """
    xp = array_namespace(task.support, task.query)
    span = xp.max(task.query, axis=-2, keepdims=True) - xp.min(task.query, axis=-2, keepdims=True)  # [R, 1, d]
    span = xp.where(span > 0, span, xp.ones_like(span))
    mean = xp.mean(task.query, axis=-2, keepdims=True)
    return replace(task, support=(task.support - mean) / span, query=(task.query - mean) / span)
