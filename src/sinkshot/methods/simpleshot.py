"""SimpleShot: Wang et al., "SimpleShot: revisiting nearest-neighbor classification for few-shot learning", 2019.

A query belongs to the nearest mean of the supports of a class, by Euclidean distance. The three names differ in what
is done to the features: nothing (UN), unit length (L2N), or subtracting the mean of the base classes first (CL2N).
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.methods.algebra import by_query, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import GramTask, Scores, Task

_REFERENCE = "Wang et al. 2019 (SimpleShot)"


@register("simpleshot-cl2n", transductive=False, preprocess="MbE", without_base="E", gram=True, reference=_REFERENCE)
@register("simpleshot-l2n", transductive=False, preprocess="E", gram=True, reference=_REFERENCE)
@register("simpleshot-un", transductive=False, preprocess="", gram=True, reference=_REFERENCE)
def simpleshot(task: Task | GramTask) -> Scores:
    """Assign each query to the class with the nearest mean of supports, by Euclidean distance.

    Probabilities are the softmax of minus the distances; `unknown` is the smallest distance.
    """
    rows = rows_of(task)
    squares = rows.distances(rows.means())  # [R, way, q]
    xp = array_namespace(squares)
    distances = xp.sqrt(squares)
    return Scores(by_query(softmax(-distances, axis=-2)), unknown=xp.min(distances, axis=-2))
