"""k-means started by the supports: the paper's transductive baseline (its Table 4).

Queries go to the nearest centre and centres move to their queries, until nothing changes. Supports keep their class,
and the queries of a class weigh as many as a balanced task would give it.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.methods._algebra import by_query, class_means, one_hot, softmax, squared_distances
from sinkshot.methods._registry import register
from sinkshot.task import Scores, Task


@register("kmeans", transductive=True, preprocess="PEMnE", reference="Hu, Pateux, Gripon 2021, Table 4")
def kmeans(task: Task, *, steps: int = 500) -> Scores:
    """Assign queries to the nearest centre and move the centres, until no query changes its class.

    A class that gets no query keeps the mean of its supports as its centre.

    Parameters
    ----------
    steps : int
        Most updates of the centres.
    """
    xp = array_namespace(task.query)
    shots = xp.sum(one_hot(task.labels, task.way, task.support), axis=-1, keepdims=True)  # [R, way, 1]
    share = task.query.shape[-2] / task.way
    means = class_means(task)  # [R, way, d]
    distances = squared_distances(means, task.query)  # [R, way, q]
    nearest = xp.argmin(distances, axis=-2)  # [R, q]
    for _ in range(steps):
        member = one_hot(nearest, task.way, task.query)  # [R, way, q]
        size = xp.sum(member, axis=-1, keepdims=True)
        weight = xp.where(size > 0, xp.full_like(size, share), xp.zeros_like(size))
        query_means = (member @ task.query) / xp.clip(size, min=1.0)
        centres = (shots * means + weight * query_means) / (shots + weight)
        distances = squared_distances(centres, task.query)
        before, nearest = nearest, xp.argmin(distances, axis=-2)
        if bool(xp.all(before == nearest)):  # an episode that has settled does not move again: exact for each
            break
    return Scores(by_query(softmax(-distances, axis=-2)))
