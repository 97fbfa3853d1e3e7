"""EASE+SIAMESE: Zhu, Koniusz, "EASE: unsupervised discriminant subspace learning for transductive few-shot learning".

CVPR 2022. EASE projects the rows of a task on the directions along which similar rows are close and others far apart,
without labels. SIAMESE then alternates between allocating queries to classes by optimal transport and moving the
centres. It assumes equal class sizes unless a prior is given. Settings are those of the public script, with the power
transform switched on as its authors advise for WRN features.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods._sinkhorn import balance, gibbs
from sinkshot.methods._spectral import eigh, left_singular
from sinkshot.methods.algebra import by_query, rows_of
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.preprocess import parse, run
from sinkshot.task import Array, Scores, Task

_TOLERANCE = 1e-3  # of Sinkhorn
_EPSILON = 1e-4  # added to the degrees of a graph


@register(
    "ease-siamese", transductive=True, preprocess="PE", balanced=True, reference="Zhu, Koniusz 2022 (EASE+SIAMESE)"
)
def ease_siamese(
    task: Task,
    *,
    dimensions: int = 40,
    rank: int = 5,
    contrast: float = 100.0,
    lam: float = 10.0,
    alpha: float = 0.2,
    steps: int = 40,
    prior: Prior = "balanced",
) -> Scores:
    """Project on a discriminant subspace found without labels, then allocate queries by optimal transport.

    Parameters
    ----------
    dimensions : int
        Dimensions of the subspace.
    rank : int
        Number of singular vectors for the similarities; 5 as published, for any number of classes.
    contrast : float
        Weight of separating all rows against keeping similar rows together.
    lam : float
        lambda in exp(-lambda ||x - mu||^2).
    alpha : float
        How far a centre moves in a step.
    steps : int
        Moves of the centres; one more allocation is the answer.
    prior : "balanced", "estimated" or class proportions [way] or [R, way]
        Class proportions among the queries.
    """
    dimensions, rank = whole("dimensions", dimensions, least=1), whole("rank", rank, least=1)
    contrast, lam = number("contrast", contrast, above=0), number("lam", lam, above=0)
    alpha, steps = number("alpha", alpha), whole("steps", steps, least=0)
    rows = rows_of(ease(task, dimensions, rank, contrast))
    xp = array_namespace(rows.member)
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    size = shots + column_targets(prior, task, rows.member, centre=True)
    centres = rows.means()  # coefficients, [R, way, N]
    for step in range(steps + 1):
        plan = balance(gibbs(rows, centres, lam), size, _TOLERANCE, fixed=shots)  # [R, way, q]
        if step < steps:
            centres = centres + alpha * (rows.with_queries(rows.member, plan) / size - centres)
    answer = by_query(plan / xp.sum(plan, axis=-2, keepdims=True))
    return Scores(xp.astype(answer, task.query.dtype))


def ease(task: Task, dimensions: int = 40, rank: int = 5, contrast: float = 100.0) -> Task:
    """Project the rows of a task, in float64, on the subspace of EASE and scale them to unit length."""
    u, values = left_singular(task)
    xp = array_namespace(u)
    count = u.shape[-2]
    x = u * values[..., None, :]  # the rows in an orthonormal basis of their span, [R, N, r]
    main = u[..., : min(rank, u.shape[-1])]
    others = 1.0 - xp.eye(count, dtype=u.dtype, device=device(u))
    similar = _normalised(xp.abs(main @ xp.matrix_transpose(main)) * others)  # [R, N, N]
    apart = contrast * _normalised(others) - similar
    _, vectors = eigh(xp.matrix_transpose(x) @ (apart @ x))  # ascending
    mapped = run(x @ vectors[..., : min(dimensions, u.shape[-1])], parse("E")).x
    return Task(mapped[..., : task.supports, :], task.labels, mapped[..., task.supports :, :], task.way)


def _normalised(graph: Array) -> Array:
    """Return D^-1/2 W D^-1/2 of a graph W [..., N, N] with degrees D, plus a small constant."""
    xp = array_namespace(graph)
    scale = 1.0 / xp.sqrt(_EPSILON + xp.sum(graph, axis=-1, keepdims=True))
    return scale * graph * xp.matrix_transpose(scale)
