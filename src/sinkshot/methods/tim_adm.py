"""TIM-ADM: Boudiaf et al., "Transductive information maximization for few-shot learning", NeurIPS 2020.

The loss of TIM-GD by alternating directions: labels of the queries in closed form for given class weights, weights in
closed form for given labels. Weights stay linear combinations of the rows, so inner products suffice.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods._tim import three
from sinkshot.methods.algebra import by_query, rows_of
from sinkshot.methods.registry import register
from sinkshot.settings.constants import TIM_LEAST
from sinkshot.task import GramTask, Scores, Task


@register("tim-adm", transductive=True, preprocess="E", gram=True, balanced=True, reference="Boudiaf et al. 2020 (TIM)")
def tim_adm(
    task: Task | GramTask,
    *,
    weights: tuple[float, float, float] = (0.1, 1.0, 0.1),
    temperature: float = 15.0,
    steps: int = 150,
) -> Scores:
    """Maximise the mutual information of queries and their labels by alternating directions.

    Parameters
    ----------
    weights : three numbers
        Weights of the supports' cross-entropy, the entropy of the mean prediction, and the mean entropy of predictions.
        1,1,1 is better on queries of unequal class sizes.
    temperature : float
        tau in the logits -(tau / 2) ||x - w||^2.
    steps : int
        Number of rounds; each updates labels and weights.
    """
    of_supports, of_mean, of_each = three("weights", weights)
    temperature, steps = number("temperature", temperature, above=0), whole("steps", steps, least=0)
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    trust = of_supports / (1 + of_each)
    share = rows.supports / rows.queries
    power = of_mean / (of_mean + 1)

    a = rows.means()  # coefficients of the class weights, [R, way, N]
    for step in range(steps + 1):
        scores = rows.product(a)
        half = xp.sum(a * scores, axis=-1, keepdims=True) / 2  # of the squared length of each weight
        logits = temperature * (scores - half)
        logits = logits - xp.max(logits, axis=-2, keepdims=True)
        odds = xp.exp(logits)
        mass = xp.sum(odds, axis=-2, keepdims=True)  # [R, 1, N]
        p = odds / mass
        p_support, p_query = p[..., : rows.supports], p[..., rows.supports :]
        if step == steps:
            break
        sharp = xp.exp((1 + of_each) * (logits - xp.log(mass))[..., rows.supports :])  # p^(1 + weights[2])
        label = sharp / xp.clip(xp.sum(sharp, axis=-1, keepdims=True), min=TIM_LEAST) ** power
        label = label / xp.sum(label, axis=-2, keepdims=True)
        pull = rows.with_queries(trust * (rows.member - p_support), share * (label - p_query))
        kept = trust * xp.sum(p_support, axis=-1, keepdims=True) + share * xp.sum(p_query, axis=-1, keepdims=True)
        total = trust * xp.sum(rows.member, axis=-1, keepdims=True) + share * xp.sum(label, axis=-1, keepdims=True)
        a = (pull + kept * a) / total
    return Scores(by_query(p_query))
