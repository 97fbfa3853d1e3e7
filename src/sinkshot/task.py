"""A batch of few-shot tasks, and the scores that a method returns for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkshot.arrays import Array

if TYPE_CHECKING:
    from sinkshot.bank import FeatureBank

__all__ = ["Array", "GramTask", "Scores", "Task"]


@dataclass(frozen=True)
class Task:
    """R episodes as arrays of one library on one device. Classes may have unequal numbers of supports.

    Parameters
    ----------
    support : array of shape (R, l, d)
        Labelled rows.
    labels : array of shape (R, l)
        Their classes, 0 .. way-1, every class at least once.
    query : array of shape (R, q, d)
        Rows to classify.
    way : int
        The number of classes.
    base : FeatureBank, optional
        The base classes, after the row-wise steps of the chain.
    nearest : tuple of two arrays of shape (N, k), optional
        For a single large pool: cosines and numbers of each row's nearest others, supports first, if they are known.

    See Also
    --------
    Scores : What a method returns.
    sinkshot.preprocess.apply : Apply a chain to a task.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import METHODS, Task
    >>> support = np.array([[[1.0, 0.0], [0.0, 1.0]]])  # one episode, one row of each of two classes
    >>> task = Task(support, np.array([[0, 1]]), np.array([[[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]]), way=2)
    >>> METHODS["ncm"](task).probabilities.argmax(axis=-1).tolist()
    [[0, 1, 0]]
    """

    support: Array  # [R, l, d]
    labels: Array  # [R, l], 0 .. way-1, every class at least once
    query: Array  # [R, q, d]
    way: int
    base: FeatureBank | None = None  # the base classes, after the row-wise steps of the chain
    nearest: tuple[Array, Array] | None = None  # cosines, falling, and numbers of near rows, [N, k] each

    @property
    def supports(self) -> int:
        """Supports in an episode, l."""
        return int(self.support.shape[-2])

    @property
    def queries(self) -> int:
        """Queries in an episode, q."""
        return int(self.query.shape[-2])


@dataclass(frozen=True)
class GramTask:
    """A task given by its inner products: enough for a method whose weights stay in the span of the rows."""

    gram: Array  # [R, N, N], supports first, N = l + q
    labels: Array  # [R, l]
    way: int

    @property
    def supports(self) -> int:
        """Supports in an episode, l."""
        return int(self.labels.shape[-1])

    @property
    def queries(self) -> int:
        """Queries in an episode, q."""
        return int(self.gram.shape[-1]) - self.supports


@dataclass(frozen=True)
class Scores:
    """What a method returns for the queries.

    Parameters
    ----------
    probabilities : array of shape (R, q, way)
        Rows are non-negative and sum to one.
    unknown : array of shape (R, q), optional
        How far a query seems to belong to none of the classes; higher is more unknown.

    See Also
    --------
    Task : What a method is given.
    register : Make a function a method.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import Scores
    >>> Scores(np.array([[[0.8, 0.2]]])).unknown is None
    True
    """

    probabilities: Array  # [R, q, way], rows non-negative and summing to one
    unknown: Array | None = None  # [R, q], higher is more unknown
