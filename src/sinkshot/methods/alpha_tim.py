"""alpha-TIM: Veilleux et al., "Realistic evaluation of transductive few-shot learning", NeurIPS 2021.

TIM with Tsallis entropies on the queries. A larger alpha weakens the pull towards equal class sizes, so unequal query
sizes do less harm.
"""

from __future__ import annotations

from sinkshot.errors import number
from sinkshot.methods._tim import decide, probabilities
from sinkshot.methods.algebra import by_query
from sinkshot.methods.registry import register
from sinkshot.task import Scores, Task


@register("alpha-tim", transductive=True, preprocess="E", reference="Veilleux et al. 2021")
def alpha_tim(
    task: Task,
    *,
    alpha: float | str = "auto",
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    temperature: float = 15.0,
    steps: int = 1000,
    lr: float = 1e-4,
) -> Scores:
    """Maximise the Tsallis information between queries and their labels by Adam, with cross-entropy on the supports.

    Parameters
    ----------
    alpha : float or "auto"
        Order of both entropies of the queries; 1 is Shannon's. "auto" follows the authors: 2 below two shots on
        average, 7 from five on, 5 between.
    weights : three numbers
        Weights of the supports' cross-entropy, the entropy of the mean prediction, and the mean entropy of predictions.
    temperature : float
        tau in the logits -(tau / 2) ||x - w||^2.
    steps, lr : int, float
        Steps and learning rate of Adam.
    """
    order = by_shot(task.supports / task.way) if alpha == "auto" else number("alpha (unless 'auto')", alpha, above=0)
    return Scores(by_query(probabilities(task, decide(weights, order, temperature, steps, lr))))


def by_shot(shot: float) -> float:
    """Return the authors' alpha for a mean number of supports in a class."""
    if shot < 2:
        return 2.0
    return 7.0 if shot >= 5 else 5.0
