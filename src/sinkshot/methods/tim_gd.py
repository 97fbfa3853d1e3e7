"""TIM-GD: Boudiaf et al., "Transductive information maximization for few-shot learning", NeurIPS 2020.

Class weights start at the means of the supports and minimise a loss of three terms: cross-entropy of the supports,
entropy of the queries' predictions, and minus the entropy of their mean. The last term is a balanced prior: it does
harm with very unequal query sizes.
"""

from __future__ import annotations

from sinkshot.methods._tim import decide, probabilities
from sinkshot.methods.algebra import by_query
from sinkshot.methods.registry import register
from sinkshot.task import Scores, Task


@register(
    "tim-gd",
    transductive=True,
    preprocess="E",
    balanced=True,
    imbalanced={"weights": (1.0, 1.0, 1.0)},
    reference="Boudiaf et al. 2020 (TIM), for unequal query sizes as in Veilleux et al. 2021",
)
def tim_gd(
    task: Task,
    *,
    weights: tuple[float, float, float] = (0.1, 1.0, 0.1),
    temperature: float = 15.0,
    steps: int = 1000,
    lr: float = 1e-4,
) -> Scores:
    """Maximise the mutual information of queries and their labels by Adam, with cross-entropy on the supports.

    Parameters
    ----------
    weights : three numbers
        Weights of the supports' cross-entropy, the entropy of the mean prediction, and the mean entropy of predictions.
    temperature : float
        tau in the logits -(tau / 2) ||x - w||^2.
    steps, lr : int, float
        Steps and learning rate of Adam.
    """
    return Scores(by_query(probabilities(task, decide(weights, 1.0, temperature, steps, lr))))
