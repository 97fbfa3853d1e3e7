"""BMS with rejection: Boosted Min-size Sinkhorn for pools in which some queries belong to none of the classes.

BMS assigns every query to a class, so queries of unknown classes pull the weights away, and at one shot it falls below
nearest class means (see the methods' pages). Here each query has a probability of being known, which is its weight in
the allocation. It is found in two steps like those of OSLO (Boudiaf et al., CVPR 2023), with three differences. Queries
are allocated by min-size Sinkhorn. Evidence of being known spreads over the graph of nearest neighbours, since unknown
queries have unknown neighbours. The evidence also includes the similarity of a query to all classes together, computed
from the supports only, which unknown queries cannot have moved. A few steps of BMS follow, with queries weighted by
their probability of being known; many steps, useful in BMS, do harm here, since weights drift to unknown queries.

Constants are those of BMS and OSLO where these have them. The others were chosen on base classes, blended until they
were as hard as novel ones (the graph), and on a grid over validation classes (steps, threshold, width). About twenty
settings had been tried on novel classes before, so results there may be slightly optimistic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from array_api_compat import array_namespace, device

from sinkshot.errors import InputError, number, whole
from sinkshot.methods.algebra import Rows, by_query, one_hot, rows_of
from sinkshot.methods.bms import decide, min_size_sinkhorn, transport_kernel, unit, update
from sinkshot.methods.oslo import cosines, sigmoid
from sinkshot.methods.registry import register
from sinkshot.settings.bms import BMSSettings
from sinkshot.settings.constants import OPEN_SET_SPREADS
from sinkshot.task import Array, GramTask, Scores, Task

Spreading = Callable[[Array], Array]
"""Evidence of the queries [R, 1, q] -> that of all rows [R, 1, N], mixed with their neighbours'."""


@register(
    "bms-open",
    transductive=True,
    preprocess="PEMnE",
    gram=True,
    rejects=True,
    reference="Hu, Pateux, Gripon 2021 (BMS), with inlierness as in Boudiaf et al. 2023 (OSLO); this library",
)
def bms_open(
    task: Task | GramTask,
    *,
    lam: float = 8.5,
    epochs: int = 40,
    steps: int = 3,
    passes: int = 50,
    lambda_inlier: float = 0.05,
    neighbours: int = 10,
    spread: float = 0.7,
    threshold: float = 0.2,
    width: float = 0.2,
) -> Scores:
    """Estimate the probability that each query is known, and run BMS with queries weighted by it.

    Parameters
    ----------
    lam : float
        lambda of BMS, which multiplies the cosines before Sinkhorn.
    epochs, steps, passes : int
        Steps of logistic regression per step of BMS; steps of BMS; passes of Sinkhorn per step.
    lambda_inlier : float
        lambda_s of OSLO, the temperature of the inlierness in the first two steps.
    neighbours : int
        Number of neighbours of each row, over which evidence spreads.
    spread : float
        How far evidence spreads, from 0 (not at all) to below 1.
    threshold, width : float
        Evidence at which a query is known with probability one half, and the temperature of that probability.
    """
    settings = decide(task.way, task.supports, lam, epochs, steps, passes, 0.1, 0.8, 1.0, None, "robust")
    rows = rows_of(task)
    spreading = over_neighbours(rows, whole("neighbours", neighbours, least=1), share("spread", spread))
    cut = number("threshold", threshold), number("width", width, above=0)
    found = solve(rows, settings, number("lambda_inlier", lambda_inlier, above=0), spreading, cut)
    return Scores(by_query(found.assignment), unknown=found.unknown[..., 0, rows.supports :])


def share(name: str, value: float) -> float:
    """Return a number from 0 to below 1, or say what it must be."""
    if not 0 <= number(name, value) < 1:
        raise InputError(f"{name} must be at least 0 and below 1; {value:g} was given.")
    return float(value)


@dataclass(frozen=True)
class OpenSolution:
    """What is found of a task."""

    assignment: Array  # [R, way, q], of each query to the classes, summing to one
    unknown: Array  # [R, 1, N], the probability that a row belongs to no class
    evidence: Array  # [R, 1, N], from which `unknown` was computed
    weights: Array  # coefficients [R, way, N] that gave the assignment
    judges: tuple[Array, Array]  # coefficients [R, way, N]: the classes by their supports, and as the evidence saw them


def solve(
    rows: Rows, settings: BMSSettings, lambda_inlier: float, spreading: Spreading, cut: tuple[float, float]
) -> OpenSolution:
    """Collect evidence in two steps, then run BMS on what is known."""
    xp = array_namespace(rows.member)
    first = weights = unit(rows.means(), rows)[0]
    cosine = cosines(weights, rows)  # [R, way, q]
    overall = xp.sum(cosine, axis=-2, keepdims=True)  # [R, 1, q]
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    least = xp.clip(xp.min(shots, axis=-2, keepdims=True), max=float(max(1, rows.queries // cosine.shape[-2])))
    of_class: Array = 1.0 / cosine.shape[-2]
    for _ in range(2):
        judge, own = weights, xp.sum(of_class * cosine, axis=-2, keepdims=True)
        inlier = sigmoid(spreading(own)[..., rows.supports :] / lambda_inlier)  # [R, 1, q]
        mass = _allocate(cosine, inlier, least, settings)
        of_class, least = _shares(mass), _smallest(mass, inlier)
        weights = unit(rows.with_queries(rows.member, mass), rows)[0]
        cosine = cosines(weights, rows)

    evidence = spreading(overall + own)
    certainty = (evidence - cut[0]) / cut[1]
    known = sigmoid(certainty)[..., rows.supports :]  # [R, 1, q]
    for _ in range(settings.steps):
        mass = _allocate(cosine, known, least, settings)
        least = _smallest(mass, known)
        weights = update(rows.with_queries(rows.member, mass), rows, settings)[0]
        cosine = cosines(weights, rows)
    assignment = _shares(_allocate(cosine, known, least, settings))
    return OpenSolution(assignment, sigmoid(-certainty), evidence, weights, (first, judge))


def _allocate(cosine: Array, mass: Array, least: Array, settings: BMSSettings) -> Array:
    """Allocate the mass [R, 1, q] of the queries to the classes, [R, way, q]; no minimum exceeds an equal part."""
    xp = array_namespace(mass)
    least = xp.minimum(least, xp.sum(mass, axis=-1, keepdims=True) / cosine.shape[-2])
    return min_size_sinkhorn(transport_kernel(cosine, settings.lam), least, settings.passes, mass)


def _shares(mass: Array) -> Array:
    """Normalise the class shares of each query to sum one: Sinkhorn may end on the classes."""
    return mass / array_namespace(mass).sum(mass, axis=-2, keepdims=True)


def _smallest(mass: Array, inlier: Array) -> Array:
    """Inliers in the smallest class, at least one, [R, 1, 1]."""
    xp = array_namespace(mass)
    sizes = xp.sum(inlier * one_hot(xp.argmax(mass, axis=-2), mass.shape[-2], mass), axis=-1, keepdims=True)
    return xp.clip(xp.min(sizes, axis=-2, keepdims=True), min=1.0)


def over_neighbours(rows: Rows, neighbours: int, spread: float) -> Spreading:
    """Return the function that spreads the evidence of queries over the graph; supports have evidence one."""
    xp = array_namespace(rows.squares)
    across = xp.matrix_transpose(_graph(rows, neighbours))  # [R, N, N]
    known = xp.ones_like(rows.squares[..., None, : rows.supports])

    def spreading(evidence: Array) -> Array:
        own = mixed = xp.concat([known, evidence], axis=-1)
        for _ in range(OPEN_SET_SPREADS if spread else 0):
            mixed = (1.0 - spread) * own + spread * (mixed @ across)
        return mixed

    return spreading


def _graph(rows: Rows, neighbours: int) -> Array:
    """Weights of each row's neighbours in its mean, [R, N, N]: max(cosine, 0) if either row chose the other."""
    xp = array_namespace(rows.squares)
    identity = xp.eye(rows.squares.shape[-1], dtype=rows.squares.dtype, device=device(rows.squares))
    length = xp.sqrt(xp.where(rows.squares > 0, rows.squares, xp.ones_like(rows.squares)))
    cosine = rows.product(identity[None, ...]) / (length[..., None] * length[..., None, :])
    cosine = xp.where(identity > 0, -xp.ones_like(cosine), cosine)  # no row is its own neighbour
    rank = xp.argsort(xp.argsort(cosine, axis=-1, descending=True), axis=-1)
    near = xp.where((rank < neighbours) & (cosine > 0), cosine, xp.zeros_like(cosine))
    near = near + xp.matrix_transpose(near)
    total = xp.sum(near, axis=-1, keepdims=True)
    return xp.where(total > 0, near / xp.where(total > 0, total, xp.ones_like(total)), identity)
