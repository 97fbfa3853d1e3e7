"""SinkShot: one set of constants for pools of any balance; this library's own default.

Queries are allocated to classes by optimal transport, as in BMS, but class sizes are neither assumed equal nor believed
as counted. They are counted and then shrunk to equal ones by how far their spread exceeds the noise of counting: within
the noise a pool is taken as balanced, beyond it the counts are believed. Class probabilities are averaged over nearest
neighbours before they are counted and before they move the class weights. Rows are centred by the mean of the class
means, which does not lean to large classes as the mean of all rows does.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.methods._graph import neighbour_graph, spread_over
from sinkshot.methods.algebra import Rows, by_query, centred_rows, rows_of, softmax
from sinkshot.methods.bms import decide, sinkhorn, transport_kernel, unit, update
from sinkshot.methods.priors import shrunken_shares
from sinkshot.methods.registry import register
from sinkshot.settings.sinkshot import SETTINGS, SinkShotSettings
from sinkshot.task import Array, GramTask, Scores, Task


@register(
    "sinkshot",
    transductive=True,
    preprocess="PEMbE",
    without_base="PEMnE",
    gram=True,
    reference="this library",
)
def sinkshot(task: Task | GramTask) -> Scores:
    """Estimate the class sizes of the pool and allocate its queries to classes of those sizes, in turn."""
    s = SETTINGS
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    graph = neighbour_graph(rows, s.neighbours, s.sharpness)
    share = xp.full_like(rows.member[..., :1], 1.0 / task.way)  # [R, way, 1]
    shots = min(task.supports / task.way, s.most_shots)
    noise = s.noise * (1.0 - s.noise_fall * (shots - 1.0) / (s.most_shots - 1.0))
    _, scores = unit(rows.means(), rows)
    for step in range(s.steps):
        lam = s.lam_first * (s.lam_last / s.lam_first) ** (step / s.steps)
        belongs = softmax(lam * scores[..., rows.supports :] + xp.log(share), axis=-2)  # [R, way, q]
        belongs = sharpened(belongs, rows, graph, s)
        share = shrunken_shares(belongs, noise, s.noise_floor, s.least_share)
        belongs = sinkhorn(belongs, rows.queries * share, s.passes)
        mass = rows.with_queries(rows.member, belongs)
        if step == s.recentre:
            rows = centred_rows(task, mass)
            graph = neighbour_graph(rows, s.neighbours, s.sharpness)
        _, scores = unit(mass, rows)

    regression = decide(task.way, task.supports, s.lam, s.epochs, 1, 1, 0.1, 0.8, 1.0, None, "robust")
    for _ in range(s.refinements):
        _, scores = update(rows.with_queries(rows.member, belongs), rows, regression)
        kernel = transport_kernel(scores[..., rows.supports :], s.lam)
        belongs = sinkhorn(kernel, rows.queries * share, s.refine_passes)
        belongs = sinkhorn(sharpened(belongs, rows, graph, s), rows.queries * share, s.passes)
    return Scores(by_query(belongs))


def sharpened(belongs: Array, rows: Rows, graph: Array, s: SinkShotSettings) -> Array:
    """Average class probabilities [R, way, q] over neighbours, and square them."""
    xp = array_namespace(belongs)
    mixed = spread_over(graph, rows.with_queries(rows.member, belongs), s.spread, s.spreads)[..., rows.supports :]
    total = xp.sum(mixed, axis=-2, keepdims=True)
    mixed = mixed / xp.where(total > 0, total, xp.ones_like(total))
    return mixed * mixed / xp.sum(mixed * mixed, axis=-2, keepdims=True)
