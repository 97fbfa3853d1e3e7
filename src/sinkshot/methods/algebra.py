"""Linear algebra that several methods share, on any array library.

Class means, centres and weights are combinations of an episode's rows, so methods hold coefficients a [R, way, N] and
see the rows through their inner products alone. Arrays are class-major: sums over rows run along memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from array_api_compat import array_namespace

from sinkshot.arrays import Array, at_least, by_query, one_hot, softmax
from sinkshot.task import GramTask, Task

__all__ = ["Rows", "at_least", "by_query", "centred_rows", "one_hot", "rows_of", "softmax"]


@dataclass(frozen=True)
class Rows:
    """The rows of an episode, supports first, as far as coefficients see them."""

    product: Callable[[Array], Array]  # a -> a X X^T, [R, way, N]
    squares: Array  # squared lengths of the rows, [R, N]
    member: Array  # class of each support, [R, way, l]
    supports: int
    queries: int

    def means(self) -> Array:
        """Coefficients of the mean of each class's supports, [R, way, N]."""
        xp = array_namespace(self.member)
        mean = self.member / xp.sum(self.member, axis=-1, keepdims=True)
        return self.with_queries(mean, xp.zeros_like(self.squares[..., None, self.supports :] + mean[..., :1]))

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


def rows_of(task: Task | GramTask) -> Rows:
    """Return what coefficients need to know of a task's rows.

    With N <= d the Gram matrix is built once, and the width d is gone from every later product. With N > d, a
    practitioner's 100,000 rows, products go through X^T and no N x N matrix ever exists.
    """
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


def centred_rows(task: Task | GramTask, mass: Array) -> Rows:
    """Subtract the mean of the class means from an episode's rows, and take unit length.

    Class means are those of the rows weighted by `mass` [R, way, N]. A row that is zero but for rounding becomes zero.
    """
    xp = array_namespace(mass)
    part = xp.mean(mass / xp.sum(mass, axis=-1, keepdims=True), axis=-2, keepdims=True)  # [R, 1, N]
    if isinstance(task, GramTask):
        gram = task.gram
    else:
        x = xp.concat([task.support, task.query], axis=-2)
        gram = x @ xp.matrix_transpose(x)
    along = part @ gram  # [R, 1, N]: inner products of the centre with all rows
    gram = gram - along - xp.matrix_transpose(along) + xp.sum(along * part, axis=-1, keepdims=True)
    squares = xp.linalg.diagonal(gram)  # [R, N]
    some = squares > 4 * xp.finfo(gram.dtype).eps * xp.mean(squares, axis=-1, keepdims=True)
    length = xp.sqrt(xp.where(some, squares, xp.ones_like(squares)))
    scale = xp.where(some, 1.0 / length, xp.zeros_like(length))
    return rows_of(GramTask(gram * scale[..., None] * scale[..., None, :], task.labels, task.way))
