"""Linear algebra that several methods share, on any array library.

Class means, centres and weights are linear combinations of an episode's rows, so methods hold coefficients a [R, way,
N] and use only the inner products of the rows. Arrays are class-major: sums over rows run along memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from array_api_compat import array_namespace

from sinkshot.arrays import Array, at_least, by_query, one_hot, softmax
from sinkshot.task import GramTask, Task

__all__ = ["PreparedTask", "Rows", "at_least", "by_query", "centred_rows", "one_hot", "rows_of", "softmax"]


@dataclass(frozen=True)
class Rows:
    """The rows of an episode, supports first, given by their inner products."""

    product: Callable[[Array], Array]  # a -> a X X^T, [R, way, N]
    squares: Array  # squared lengths of the rows, [R, N]
    member: Array  # class of each support, [R, way, l]
    supports: int
    queries: int

    def means(self) -> Array:
        """Coefficients of the mean of each class's supports, [R, way, N]."""
        xp = array_namespace(self.member)
        mean = self.member / xp.sum(self.member, axis=-1, keepdims=True)
        of_queries = self.squares[..., None, self.supports :] + mean[..., :1]
        return self.with_queries(mean, array_namespace(of_queries).zeros_like(of_queries))

    def with_queries(self, of_supports: Array, of_queries: Array) -> Array:
        """Join coefficients of the supports [R, way, l] and of the queries [R, way, q]."""
        return array_namespace(of_queries).concat([of_supports, of_queries], axis=-1)

    def distances(self, a: Array) -> Array:
        """Squared distances of the points with coefficients `a` to the queries, [R, way, q]."""
        xp = array_namespace(a)
        scores = self.product(a)
        length = xp.sum(a * scores, axis=-1, keepdims=True)
        squares = self.squares[..., None, self.supports :]
        return at_least(length + squares - 2.0 * scores[..., self.supports :], 0.0)


@dataclass(frozen=True)
class PreparedTask:
    """A task whose rows are there in the form that methods compute with, such as a pool in parts."""

    rows: Rows
    way: int
    graph: Callable[[int, float], Any]  # of the nearest neighbours: their number and sharpness -> `Graph`

    @property
    def supports(self) -> int:
        """Supports, l."""
        return self.rows.supports

    @property
    def queries(self) -> int:
        """Queries, q."""
        return self.rows.queries


def rows_of(task: Task | GramTask | PreparedTask) -> Rows:
    """Return the rows of a task in the form that coefficients need.

    With N <= d the Gram matrix is built once, and later products do not depend on the width d. With N > d, such as a
    pool of 100,000 rows, products go through X^T and no N x N matrix is built.
    """
    if isinstance(task, PreparedTask):
        return task.rows
    if isinstance(task, GramTask):
        xp = array_namespace(task.gram)
        gram, squares = task.gram, xp.linalg.diagonal(task.gram)
    else:
        xp = array_namespace(task.support, task.query)
        x = xp.concat([task.support, task.query], axis=-2)  # [R, N, d]
        transposed = xp.matrix_transpose(x)
        gram = x @ transposed if x.shape[-2] <= x.shape[-1] else None  # [R, N, N]
        squares = xp.sum(x * x, axis=-1)
    product = (lambda a: a @ gram) if gram is not None else (lambda a: (a @ x) @ transposed)
    return Rows(product, squares, one_hot(task.labels, task.way, squares), task.supports, task.queries)


def centred_rows(rows: Rows, part: Array) -> Rows:
    """Subtract a combination of the rows, with weights `part` [R, 1, N], from all of them, and scale to unit length.

    No second Gram matrix is built. A row that is zero up to rounding becomes zero.
    """
    xp = array_namespace(part)
    along = rows.product(part)  # [R, 1, N]: inner products of the centre with all rows
    square = xp.sum(along * part, axis=-1, keepdims=True)  # [R, 1, 1]
    squares = rows.squares[..., None, :] - 2.0 * along + square  # [R, 1, N]
    some = squares > 4 * xp.finfo(part.dtype).eps * xp.mean(xp.abs(squares), axis=-1, keepdims=True)
    scale = xp.where(some, 1.0 / xp.sqrt(xp.where(some, squares, xp.ones_like(squares))), xp.zeros_like(squares))

    def product(a: Array) -> Array:
        a = a * scale
        total = xp.sum(a, axis=-1, keepdims=True)
        inner = rows.product(a) - total * along - xp.sum(a * along, axis=-1, keepdims=True) + total * square
        return inner * scale

    return replace(rows, product=product, squares=xp.astype(some, part.dtype)[..., 0, :])
