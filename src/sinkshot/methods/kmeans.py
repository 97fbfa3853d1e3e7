"""k-means initialised with the supports: the paper's transductive baseline (its Table 4).

Queries go to the nearest centre and centres move to their queries, until nothing changes. Supports keep their class,
and the queries of a class together have the weight that they would have in a balanced task.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import whole
from sinkshot.methods.algebra import by_query, one_hot, rows_of, softmax
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.task import GramTask, Scores, Task


@register(
    "kmeans",
    transductive=True,
    preprocess="PEMnE",
    gram=True,
    balanced=True,
    reference="Hu, Pateux, Gripon 2021, Table 4",
)
def kmeans(task: Task | GramTask, *, steps: int = 500, prior: Prior = "balanced") -> Scores:
    """Assign queries to the nearest centre and move the centres, until no query changes its class.

    A class that gets no query keeps the mean of its supports as its centre.

    Parameters
    ----------
    steps : int
        Maximum number of updates of the centres.
    prior : "balanced", "estimated" or class proportions [way] or [R, way]
        Class proportions, which set the total weight of the queries of each class in its centre.
    """
    steps = whole("steps", steps, least=0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    share = column_targets(prior, task, rows.member)  # [R or 1, way, 1]
    distances = rows.distances(rows.means())  # [R, way, q]
    nearest = xp.argmin(distances, axis=-2)  # [R, q]
    for _ in range(steps):
        taken = one_hot(nearest, task.way, rows.member)  # [R, way, q]
        taken = taken * (share / xp.clip(xp.sum(taken, axis=-1, keepdims=True), min=1.0))
        mass = rows.with_queries(rows.member, taken)
        distances = rows.distances(mass / xp.sum(mass, axis=-1, keepdims=True))
        before, nearest = nearest, xp.argmin(distances, axis=-2)
        if bool(xp.all(before == nearest)):  # an episode that has converged does not change again
            break
    return Scores(by_query(softmax(-distances, axis=-2)))
