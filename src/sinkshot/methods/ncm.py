"""Nearest class mean: Mensink et al., "Metric learning for large scale image classification", ECCV 2012.

Each class is represented by the mean of its supports; a query belongs to the nearest. With the preprocessing PEMbE it
is the paper's method for the inductive case.

It has three unknown scores: the distance to the nearest mean; one minus the largest probability (Hendrycks and
Gimpel, "A baseline for detecting misclassified and out-of-distribution examples in neural networks", ICLR 2017); and
the ratio of distances to the nearest supports of two classes (Mendes Junior et al., "Nearest neighbors distance ratio
open-set classifier", Machine Learning 2017). The names `max-probability` and `nn-ratio` fix the latter two.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from sinkshot.errors import InputError, unknown_name
from sinkshot.methods.algebra import Rows, by_query, one_hot, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task

SCORES = ("distance", "max-probability", "neighbour-ratio")
_AS_IN_PAPER: dict[str, Any] = {"transductive": False, "preprocess": "PEMbE", "without_base": "PE", "gram": True}


@register(
    "nn-ratio",
    **_AS_IN_PAPER,
    open_set=True,
    score="neighbour-ratio",
    reference="Mendes Junior et al. 2017 (OSNN), on nearest class means",
)
@register(
    "max-probability",
    **_AS_IN_PAPER,
    open_set=True,
    score="max-probability",
    reference="Hendrycks, Gimpel 2017 (maximum softmax probability), on nearest class means",
)
@register(
    "ncm",
    **_AS_IN_PAPER,
    reference="Hu, Pateux, Gripon 2021, section 3.3 (PEMbE-NCM); Wang et al. 2019 (SimpleShot)",
)
def ncm(task: Task | GramTask, *, score: str = "distance") -> Scores:
    """Assign each query to the class with the nearest mean of supports.

    Parameters
    ----------
    score : {"distance", "max-probability", "neighbour-ratio"}
        What `unknown` is. `distance`: the squared distance to the nearest mean, the plain score of open-set
        recognition. `max-probability`: one minus the largest probability. `neighbour-ratio`: the distance to the
        nearest support over that to the nearest support of any other class; near one, two classes are equally near.
    """
    if score not in SCORES:
        raise unknown_name("score of ncm", score, SCORES)
    rows = rows_of(task)
    distances = rows.distances(rows.means())  # [R, way, q]
    xp = array_namespace(distances)
    probabilities = softmax(-distances, axis=-2)
    if score == "distance":
        unknown = xp.min(distances, axis=-2)
    elif score == "max-probability":
        largest = one_hot(xp.argmax(probabilities, axis=-2), task.way, probabilities) > 0
        others = xp.where(largest, xp.zeros_like(probabilities), probabilities)
        unknown = xp.sum(others, axis=-2)  # 1 - max, without cancellation
    else:
        unknown = neighbour_ratio(rows)
    return Scores(by_query(probabilities), unknown=unknown)


def neighbour_ratio(rows: Rows) -> Array:
    """Distance to the nearest support over that to the nearest support of any other class, in [0, 1], [R, q].

    Distances that are zero up to rounding count as equal: a query that equals supports of two classes has ratio one.
    """
    xp = array_namespace(rows.squares)
    if rows.member.shape[-2] < 2:
        raise InputError("the score neighbour-ratio needs two classes, but the task has one; choose another score.")
    here, total = device(rows.squares), rows.supports + rows.queries
    each = xp.eye(rows.supports, total, dtype=rows.squares.dtype, device=here)[None, ...]  # a support, as coefficients
    squares = rows.distances(each)  # [R, l, q]
    scale = xp.max(rows.squares[..., : rows.supports], axis=-1, keepdims=True) + rows.squares[..., rows.supports :]
    least = 8 * float(xp.finfo(squares.dtype).eps) * scale  # [R, q]: what rounding leaves of zero
    squares = xp.maximum(squares, least[..., None, :])
    of_class = xp.where(
        rows.member[..., None] > 0, squares[..., None, :, :], xp.asarray(xp.inf, dtype=squares.dtype, device=here)
    )
    nearest = xp.sort(xp.min(of_class, axis=-2), axis=-2)  # [R, way, q], the nearest class first
    first, second = nearest[..., 0, :], nearest[..., 1, :]
    apart = second > 0
    return xp.sqrt(xp.where(apart, first / xp.where(apart, second, xp.ones_like(second)), xp.ones_like(second)))
