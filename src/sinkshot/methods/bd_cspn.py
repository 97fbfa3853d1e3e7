"""BD-CSPN: Liu, Song, Qin, "Prototype rectification for few-shot learning", ECCV 2020.

Queries are shifted so that their mean equals that of the supports. Each row chooses a class by cosine, and each
prototype becomes the mean of the rows that chose it, weighted by their confidence. There is one pass, no iteration.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number
from sinkshot.methods.algebra import Rows, by_query, one_hot, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task

_SHORTEST = 1e-8  # length of a row or prototype under a cosine


@register(
    "bd-cspn",
    transductive=True,
    preprocess="MbE",
    without_base="E",
    gram=True,
    reference="Liu, Song, Qin 2020 (BD-CSPN), as in the code of Veilleux et al. 2021",
)
def bd_cspn(task: Task | GramTask, *, temperature: float = 10.0) -> Scores:
    """Rectify class means with the queries that choose them, and assign each query to the nearest.

    Parameters
    ----------
    temperature : float
        Temperature of the softmax over cosines that gives the weight of a row.
    """
    rows = rows_of(task)
    prototypes, _ = rectified(rows, number("temperature", temperature, above=0))
    distances = array_namespace(prototypes).sqrt(rows.distances(prototypes))  # queries as they are, not shifted
    return Scores(by_query(softmax(-distances, axis=-2)))


def rectified(rows: Rows, temperature: float) -> tuple[Array, Array]:
    """Coefficients of the rectified prototypes [R, way, N], and of the shift of the queries [R, 1, N].

    Weighted sums are divided by the number of rows, not by the sum of weights: a class of low-confidence rows has a
    short prototype. Supports choose a class as queries do. A class that no row chooses keeps the mean of its supports.
    """
    xp = array_namespace(rows.member)
    way = rows.member.shape[-2]
    shift = rows.with_queries(
        xp.ones_like(rows.member[..., :1, :]) / rows.supports,
        xp.zeros_like(rows.squares[..., None, rows.supports :]) - 1.0 / rows.queries,
    )
    means = rows.means()
    products = rows.product(xp.concat([means, shift], axis=-2))  # [R, way + 1, N]
    along, across = products[..., :way, :], products[..., way:, :]
    moved = rows.with_queries(  # 0 for supports, 1 for queries: only queries are shifted
        xp.zeros_like(shift[..., : rows.supports]), xp.ones_like(shift[..., rows.supports :])
    )
    inner = along + moved * xp.sum(along * shift, axis=-1, keepdims=True)  # shifted rows with the means, [R, way, N]
    squares = rows.squares[..., None, :] + moved * (2.0 * across + xp.sum(across * shift, axis=-1, keepdims=True))
    length = xp.sqrt(xp.clip(xp.sum(means * along, axis=-1, keepdims=True), min=0.0))  # of the means, [R, way, 1]
    lengths = xp.clip(xp.sqrt(xp.clip(squares, min=0.0)), min=_SHORTEST) * xp.clip(length, min=_SHORTEST)
    cosine = inner / lengths
    chosen = one_hot(xp.argmax(cosine, axis=-2), way, cosine)  # [R, way, N]
    weight = chosen * softmax(temperature * cosine, axis=-2)
    count = xp.sum(chosen, axis=-1, keepdims=True)
    share = xp.sum(weight * moved, axis=-1, keepdims=True)  # of the shift in each prototype
    prototypes = (weight + share * shift) / xp.clip(count, min=1.0)
    return xp.where(count > 0, prototypes, means), shift
