"""Nearest class mean: Mensink et al., "Metric learning for large scale image classification", ECCV 2012.

Each class is the mean of its supports; a query belongs to the nearest. With the preprocessing PEMbE it is the paper's
method for the inductive case.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.methods._algebra import by_query, rows_of, softmax
from sinkshot.methods._registry import register
from sinkshot.task import GramTask, Scores, Task


@register(
    "ncm",
    transductive=False,
    preprocess="PEMbE",
    without_base="PE",
    gram=True,
    reference="Hu, Pateux, Gripon 2021, section 3.3 (PEMbE-NCM); Wang et al. 2019 (SimpleShot)",
)
def ncm(task: Task | GramTask) -> Scores:
    """Give each query to the nearest mean of the supports of a class.

    `unknown` is the squared distance to that mean, the plain score of open-set recognition.
    """
    rows = rows_of(task)
    distances = rows.distances(rows.means())  # [R, way, q]
    xp = array_namespace(distances)
    return Scores(by_query(softmax(-distances, axis=-2)), unknown=xp.min(distances, axis=-2))
