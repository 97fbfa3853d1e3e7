"""Cosine attention: Vinyals et al., "Matching networks for one shot learning", NeurIPS 2016.

Each support votes for its class with the softmax, over all supports, of its cosine to the query. The authors also train
the network; here features are given.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Scores, Task


@register("matching", transductive=False, preprocess="E", reference="Vinyals et al. 2016")
def matching(task: Task, *, temperature: float = 1.0) -> Scores:
    """Let every support vote for its class by its cosine to the query.

    Parameters
    ----------
    temperature : float
        Multiplies the cosines; 1 in the paper. The larger, the more the nearest support dominates.
    """
    temperature = number("temperature", temperature, above=0)
    xp = array_namespace(task.support, task.query)
    cosine = task.support @ xp.matrix_transpose(task.query)  # [R, l, q]
    votes = softmax(temperature * cosine, axis=-2)
    return Scores(by_query(one_hot(task.labels, task.way, task.support) @ votes))
