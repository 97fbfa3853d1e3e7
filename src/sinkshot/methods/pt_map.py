"""PT+MAP: Hu, Gripon, Pateux, "Leveraging the feature distribution in transfer-based few-shot learning", ICANN 2021.

Two steps alternate: optimal transport allocates the queries so that every class gets exactly its proportion, and class
centres move towards their queries. With the affinities of BPA (Shalam, Korman 2024) as features it is BPA+MAP. Both
assume equal class sizes unless a prior is given.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods._sinkhorn import balance, gibbs
from sinkshot.methods.algebra import by_query, rows_of
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.task import GramTask, Scores, Task

_TOLERANCE = 1e-6  # of Sinkhorn
_PT = "Hu, Gripon, Pateux 2021 (PT+MAP)"


@register(
    "bpa-map",
    transductive=True,
    preprocess="PEMaEBEMaE",
    gram=True,
    balanced=True,
    reference=f"Shalam, Korman 2024; {_PT}",
)
@register("pt-map", transductive=True, preprocess="PEMaE", gram=True, balanced=True, reference=_PT)
def pt_map(
    task: Task | GramTask, *, lam: float = 10.0, alpha: float = 0.2, steps: int = 20, prior: Prior = "balanced"
) -> Scores:
    """Alternately allocate the queries to classes of known size by optimal transport, and move the centres.

    Parameters
    ----------
    lam : float
        lambda in exp(-lambda ||x - mu||^2).
    alpha : float
        How far a centre moves towards the mean of its class's queries.
    steps : int
        Updates of the centres; one more allocation gives the result.
    prior : "balanced", "estimated" or class proportions [way] or [R, way]
        Class proportions among the queries.
    """
    lam, alpha, steps = number("lam", lam, above=0), number("alpha", alpha), whole("steps", steps, least=0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    target = column_targets(prior, task, rows.member)  # [R or 1, way, 1]
    centres = rows.means()  # coefficients, [R, way, N]
    for step in range(steps + 1):
        plan = balance(gibbs(rows, centres, lam), target, _TOLERANCE)  # [R, way, q]
        if step < steps:
            mass = rows.with_queries(rows.member, plan)
            centres = centres + alpha * (mass / xp.sum(mass, axis=-1, keepdims=True) - centres)
    return Scores(by_query(plan / xp.sum(plan, axis=-2, keepdims=True)))
