"""LaplacianShot: Ziko et al., "Laplacian regularized few-shot learning", ICML 2020.

Queries choose a class by their distance to its prototype and by the choices of their nearest neighbours among the
queries. Prototypes are rectified as in BD-CSPN; under unequal class sizes they are plain means, which Veilleux et al.
(2021) found better. lambda is the value that those authors tuned on validation classes of miniImageNet.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.errors import InputError, number, whole
from sinkshot.methods.algebra import by_query, one_hot, rows_of, softmax
from sinkshot.methods.bd_cspn import rectified
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task

_TEMPERATURE = 10.0  # of the rectification
_LEAST = 1e-20  # floor of a probability under a logarithm
_TOLERANCE = 1e-6  # relative change of the energy


@register(
    "laplacianshot",
    transductive=True,
    preprocess="MbE",
    without_base="E",
    gram=True,
    imbalanced={"rectify": False},
    reference="Ziko et al. 2020 (LaplacianShot)",
)
def laplacianshot(
    task: Task | GramTask, *, lam: float | str = "auto", neighbours: int = 3, steps: int = 20, rectify: bool = True
) -> Scores:
    """Classify each query by its distances to the classes and by the choices of its neighbours.

    Parameters
    ----------
    lam : float or "auto"
        lambda, the weight of a neighbour. "auto": 0.7 below five shots on average, else 0.3; without rectification 1.0
        and 0.7.
    neighbours : int
        Number of nearest queries, including the query itself.
    steps : int
        Maximum number of updates; an episode stops earlier once its energy converges.
    rectify : bool
        Whether prototypes are rectified and queries shifted (BD-CSPN).
    """
    if not isinstance(rectify, bool):
        raise InputError(f"rectify must be true or false; {rectify!r} was given.")
    if lam == "auto":
        few = task.supports < 5 * task.way
        lam = (0.7 if few else 0.3) if rectify else (1.0 if few else 0.7)
    lam = number("lam (unless 'auto')", lam)
    neighbours, steps = whole("neighbours", neighbours, least=1), whole("steps", steps, least=0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    prototypes = rows.means()
    if rectify:
        prototypes, shift = rectified(rows, _TEMPERATURE)
        prototypes = prototypes - shift  # instead of moving the queries
    cost = xp.astype(rows.distances(prototypes), xp.float64)  # [R, way, q]; the public code goes on in float64 as well
    graph = lam * xp.astype(nearest(task, neighbours - 1), xp.float64)
    return Scores(xp.astype(by_query(propagate(cost, graph, steps)), rows.member.dtype))


def propagate(cost: Array, graph: Array, steps: int) -> Array:
    """Minimise the energy sum(Y log Y + cost Y - (graph Y) Y) over assignments Y [R, way, q]; each episode stops alone.

    graph [R, q, q] has the neighbours of a query in its row.
    """
    xp = array_namespace(cost)
    along = xp.matrix_transpose(graph)
    assignment = softmax(-cost, axis=-2)
    active = xp.ones_like(cost[..., :1, :1], dtype=xp.bool)  # [R, 1, 1]
    energy = xp.full_like(cost[..., :1, :1], float("inf"))
    pull = assignment @ along
    for step in range(steps):
        following = softmax(pull - cost, axis=-2)
        pull = following @ along
        each = following * (xp.log(xp.clip(following, min=_LEAST)) + cost - pull)
        before, energy = energy, xp.sum(each, axis=(-2, -1), keepdims=True)
        assignment = xp.where(active, following, assignment)
        if step > 1:
            active = active & (xp.abs(energy - before) > _TOLERANCE * xp.abs(before))
            if not bool(xp.any(active)):
                break
    return assignment


def nearest(task: Task | GramTask, count: int) -> Array:
    """Return 1 where query j is among the `count` nearest others of query i, else 0, [R, q, q]; not symmetric."""
    if isinstance(task, GramTask):
        products = task.gram[..., task.supports :, task.supports :]
    else:
        products = task.query @ array_namespace(task.query).matrix_transpose(task.query)
    xp = array_namespace(products)
    queries = task.queries
    itself = xp.eye(queries, dtype=products.dtype, device=device(products))
    squares = xp.linalg.diagonal(products)[..., None, :]
    far = xp.where(itself > 0, xp.full_like(products, float("inf")), squares - 2.0 * products)  # no |a|^2
    chosen = xp.zeros_like(products)
    for _ in range(min(count, queries - 1)):
        closest = xp.matrix_transpose(one_hot(xp.argmin(far, axis=-1), queries, products))
        chosen = chosen + closest
        far = xp.where(closest > 0, xp.full_like(far, float("inf")), far)
    return chosen
