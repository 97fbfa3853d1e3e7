"""Soft k-means: Bendou et al., "EASY: ensemble augmented-shot Y-shaped learning", J. Imaging 2022.

Class centres and soft assignments of the queries are refined in turn, supports always counting fully. Nothing is
assumed of the class sizes.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.methods._algebra import by_query, class_means, one_hot, softmax, squared_distances
from sinkshot.methods._registry import register
from sinkshot.task import Array, Scores, Task


@register("soft-kmeans", transductive=True, preprocess="MnE", reference="Bendou et al. 2022 (EASY)")
def soft_kmeans(task: Task, *, temperature: float = 5.0, steps: int = 30) -> Scores:
    """Refine class means by soft assignments of the queries.

    Parameters
    ----------
    temperature : float
        T in softmax(-T ||x - mu||^2).
    steps : int
        Assignments computed; the last is the answer, with the centres of the step before.
    """
    assignment, _ = refine(task, temperature, steps)
    return Scores(by_query(assignment))


def refine(task: Task, temperature: float, steps: int) -> tuple[Array, Array]:
    """Return the last assignment [R, way, q] and the centres [R, way, d] that gave it."""
    xp = array_namespace(task.query)
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    support_sum, support_count = member @ task.support, xp.sum(member, axis=-1, keepdims=True)
    centres = class_means(task)
    assignment = softmax(-temperature * squared_distances(centres, task.query), axis=-2)  # [R, way, q]
    for _ in range(steps - 1):
        mass = support_count + xp.sum(assignment, axis=-1, keepdims=True)
        centres = (support_sum + assignment @ task.query) / mass
        assignment = softmax(-temperature * squared_distances(centres, task.query), axis=-2)
    return assignment, centres
