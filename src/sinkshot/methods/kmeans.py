"""k-means initialised with the supports: the paper's transductive baseline (its Table 4).

Queries go to the nearest centre and centres move to the mean of their rows, until nothing changes. Supports keep their
class. `kmeans` is the plain algorithm, in which every row counts once. In `kmeans-balanced` the queries of a class have
together the weight that they would have in a balanced task, as in the code of EASY (Bendou et al. 2022).
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import whole
from sinkshot.methods.algebra import by_query, one_hot, rows_of, softmax
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.task import GramTask, Scores, Task


@register("kmeans", transductive=True, preprocess="PEMnE", gram=True, reference="Hu, Pateux, Gripon 2021, Table 4")
@register(
    "kmeans-balanced",
    transductive=True,
    preprocess="PEMnE",
    gram=True,
    balanced=True,
    reference="Bendou et al. 2022 (EASY)",
    prior="balanced",
)
def kmeans(task: Task | GramTask, *, steps: int = 500, prior: Prior = None) -> Scores:
    """Assign queries to the nearest centre and move the centres, until no query changes its class.

    A class that gets no query keeps the mean of its supports as its centre.

    Parameters
    ----------
    steps : int
        Maximum number of updates of the centres.
    prior : None, "balanced", "estimated" or class proportions [way] or [R, way]
        With None every row counts once. Class proportions set the total weight of the queries of each class in its
        centre.
    """
    steps = whole("steps", steps, least=0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    share = None if prior is None else column_targets(prior, task, rows.member)  # [R or 1, way, 1]
    distances = rows.distances(rows.means())  # [R, way, q]
    nearest = xp.argmin(distances, axis=-2)  # [R, q]
    for _ in range(steps):
        taken = one_hot(nearest, task.way, rows.member)  # [R, way, q]
        if share is not None:
            taken = taken * (share / xp.clip(xp.sum(taken, axis=-1, keepdims=True), min=1.0))
        mass = rows.with_queries(rows.member, taken)
        distances = rows.distances(mass / xp.sum(mass, axis=-1, keepdims=True))
        before, nearest = nearest, xp.argmin(distances, axis=-2)
        if bool(xp.all(before == nearest)):  # an episode that has converged does not change again
            break
    return Scores(by_query(softmax(-distances, axis=-2)))
