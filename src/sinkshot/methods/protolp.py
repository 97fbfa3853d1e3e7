"""protoLP: Zhu, Koniusz, "Transductive few-shot learning with prototype-based label propagation", CVPR 2023.

Three steps alternate: optimal transport allocates the queries to classes, the allocation is propagated over a graph of
prototypes, and the prototypes move towards the mean of both. Equal class sizes are assumed unless a prior is given.
Settings are those of the public script for WRN features.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods._sinkhorn import PASSES, balance, compiles, gibbs, in_triton
from sinkshot.methods._spectral import left_singular, solved
from sinkshot.methods.algebra import at_least, by_query, rows_of
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.preprocess import parse, run
from sinkshot.task import Array, Scores, Task

_TOLERANCE, _ROUGH = 1e-3, 1e-2  # of Sinkhorn, and of the balance after propagation


@register("protolp", transductive=True, preprocess="PE", balanced=True, reference="Zhu, Koniusz 2023 (protoLP)")
def protolp(
    task: Task,
    *,
    dimensions: int = 40,
    lam: float = 10.0,
    alpha: float = 0.2,
    beta: float = 0.6,
    gamma: float = 1.0,
    steps: int = 100,
    prior: Prior = "balanced",
) -> Scores:
    """Alternately allocate queries by optimal transport, propagate over a graph of prototypes, and move these.

    Parameters
    ----------
    dimensions : int
        Number of singular vectors of the task that rows are projected on, before the mean is subtracted.
    lam : float
        lambda in exp(-lambda ||x - mu||^2).
    alpha : float
        How far a prototype moves in a step.
    beta : float
        Weight of the propagated labels against the allocated ones.
    gamma : float
        Weight of the graph against the supports' labels.
    steps : int
        Updates of the prototypes; one more allocation gives the result.
    prior : "balanced", "estimated" or class proportions [way] or [R, way]
        Class proportions among the queries.
    """
    lam, alpha, beta = number("lam", lam, above=0), number("alpha", alpha), number("beta", beta)
    gamma, steps = number("gamma", gamma), whole("steps", steps, least=0)
    rows = rows_of(projected(task, whole("dimensions", dimensions, least=1)))
    xp = array_namespace(rows.member)
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    target = column_targets(prior, task, rows.member, centre=True)
    centres = rows.means()
    length = xp.sqrt(xp.sum(centres * rows.product(centres), axis=-1, keepdims=True))
    centres = centres / xp.where(length > 0, length, xp.ones_like(length))
    for step in range(steps + 1):
        plan = balance(gibbs(rows, centres, lam), target, _TOLERANCE)
        if step < steps:
            allocated = rows.with_queries(rows.member, plan)  # Z, [R, way, N]
            labels = rebalanced(propagated(allocated, shots, gamma), rows.member, shots + target)
            mass = at_least(beta * labels + (1.0 - beta) * allocated, 0.0)
            mass = xp.minimum(mass, xp.ones_like(mass))
            centres = centres + alpha * (mass / xp.sum(mass, axis=-1, keepdims=True) - centres)
    answer = by_query(plan / xp.sum(plan, axis=-2, keepdims=True))
    return Scores(xp.astype(answer, task.query.dtype))


def projected(task: Task, dimensions: int) -> Task:
    """Project the rows, in float64, on the first singular vectors; subtract their mean; scale to unit length."""
    u, values = left_singular(task)
    kept = min(dimensions, u.shape[-1])
    x = run(u[..., :kept] * values[..., None, :kept], parse("MnE")).x
    return Task(x[..., : task.supports, :], task.labels, x[..., task.supports :, :], task.way)


def propagated(allocated: Array, shots: Array, gamma: float) -> Array:
    """Return labels [R, way, N] after propagation over W = Z^T Z / column sums, from the supports' labels."""
    xp = array_namespace(allocated)
    way = allocated.shape[-2]
    each = xp.eye(way, dtype=allocated.dtype, device=device(allocated))
    size = xp.sum(allocated, axis=-1, keepdims=True)
    graph = allocated @ xp.matrix_transpose(allocated) / xp.matrix_transpose(size)  # W, [R, way, way]
    system = each * shots + gamma * (each - graph)
    return xp.matrix_transpose(solved(system, each * shots)) @ allocated  # (Z A)^T


def rebalanced(labels: Array, member: Array, target: Array) -> Array:
    """Scale rows to one and classes to their targets until row sums converge; supports are reset after each pass."""
    xp = array_namespace(labels)
    if isinstance(labels, np.ndarray) and compiles(labels):
        from sinkshot.kernels.sinkhorn_numba import rebalance

        return rebalance(labels, member, target, _ROUGH, PASSES)
    if in_triton(labels):
        from sinkshot.kernels.sinkhorn_triton import rebalance as on_gpu

        return on_gpu(labels, member, target, _ROUGH, PASSES)
    supports = member.shape[-1]
    before = xp.zeros_like(labels[..., :1, :])  # [R, 1, N]
    for _ in range(PASSES):
        sums = xp.sum(labels, axis=-2, keepdims=True)
        active = xp.max(xp.abs(sums - before), axis=-1, keepdims=True) > _ROUGH  # an episode that is done stays done
        if not bool(xp.any(active)):
            break
        scaled = labels / sums
        scaled = scaled * (target / xp.sum(scaled, axis=-1, keepdims=True))
        scaled = xp.concat([member, scaled[..., supports:]], axis=-1)
        labels, before = xp.where(active, scaled, labels), xp.where(active, sums, before)
    return labels
