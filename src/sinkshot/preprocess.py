"""The steps P, E, M, Z of the paper's section 3.3 and others, chained by a string such as "PEMnE".

    P    power, (x + 1e-6)^beta, for features >= 0      Mn   subtract the mean of the task (supports and queries)
    Ps   signed power, sign(x) |x|^beta                 Ma   subtract the mean of the supports from the supports and
    E    unit length                                         the mean of the queries from the queries
    Z    batch norm over the rows of the task           Mb   subtract the mean of the base classes, taken at this
    B    replace each row by its affinities to the           point of the chain
         other rows (BPA)                               Mc   subtract the mean of the class means of the supports,
    W    divide by the spread of the task in each            with the task's mean as one more support per class
         direction, shrunk                              ""   nothing

A chain is read from left to right. beta is 0.5 unless a number follows the power: "P0.4EMnE". W multiplies rows by
(S + r t I)^(-1/2), S the covariance of the task's rows, t the mean of its eigenvalues, r the shrinkage, 10 unless
a number follows: "PEMcEW3E". P, Ps, E and Mb are row-wise. If a task has features of the base classes, they go through
the steps before the first that is not row-wise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from sinkshot import bpa
from sinkshot.arrays import one_hot
from sinkshot.bank import FeatureBank
from sinkshot.chain import OF_TASK, Chain, Step, needs_base, parse, spell, split
from sinkshot.errors import DataWarning, InputError
from sinkshot.task import Array, Task
from sinkshot.whitening import whitened

__all__ = [
    "BaseMean",
    "Centring",
    "Chain",
    "NegativeFeatureError",
    "Prepared",
    "Step",
    "apply",
    "base_after",
    "base_mean_of",
    "centred_apart",
    "centred_by_classes",
    "centring",
    "class_centre",
    "class_weights",
    "needs_base",
    "parse",
    "refuse_negative",
    "run",
    "spell",
    "split",
    "warn_of_zero_rows",
    "whitened",
]

EPSILON = 1e-6  # epsilon of the power transform
BATCH_NORM_EPSILON = 1e-5
BaseMean = Callable[[Chain], NDArray[Any]]


class NegativeFeatureError(InputError):
    """A feature is negative where the power step P is asked for."""


class Centring(NamedTuple):
    """The part of a chain that needs the task, in a form that can be applied to a Gram matrix."""

    centre: bool  # subtract the mean of the task
    apart: bool  # subtract the means of supports and queries separately
    normalise: bool  # then scale to unit length
    classes: bool = False  # subtract the mean of the class means


def centring(task_wise: Chain) -> Centring | None:
    """Return the `Centring` of a chain, or None if the chain needs more than inner products."""
    names = [step.name for step in task_wise]
    normalise = names[1:] == ["E"]
    if names[:1] in ([], ["Mn"], ["Ma"], ["Mc"]) and (normalise or len(names) < 2):
        return Centring(names[:1] == ["Mn"], names[:1] == ["Ma"], normalise, names[:1] == ["Mc"])
    return None


def centred_apart(gram: Array, supports: int, normalise: bool) -> Array:
    """Subtract the means of supports and queries on both sides of Gram matrices [R, N, N]; optionally unit length.

    To avoid cancellation, subtract the mean of the task first. A row that is zero up to rounding becomes zero.
    """
    xp = array_namespace(gram)
    for _ in range(2):  # rows, then columns
        parts = gram[..., :supports, :], gram[..., supports:, :]
        gram = xp.concat([part - xp.mean(part, axis=-2, keepdims=True) for part in parts], axis=-2)
        gram = xp.matrix_transpose(gram)
    return _unit_length(gram) if normalise else gram


def centred_by_classes(gram: Array, labels: Array, normalise: bool) -> Array:
    """Subtract the centre of Mc on both sides of Gram matrices [R, N, N]; the first l rows are supports, labels [R, l].

    To avoid cancellation, subtract the mean of the task first. A row that is zero up to rounding becomes zero.
    """
    xp = array_namespace(gram)
    along = class_centre(labels, gram) @ gram  # [R, 1, N]: inner products of the centre with all rows
    square = along @ xp.matrix_transpose(class_centre(labels, gram))  # [R, 1, 1]
    gram = gram - along - xp.matrix_transpose(along) + square
    return _unit_length(gram) if normalise else gram


def class_centre(labels: Array, rows: Array) -> Array:
    """Weights [..., 1, N] of the rows [..., N, d], supports first, in the mean of the class means.

    The mean of all rows counts as one more support of each class, because the mean of a few supports is noisy.
    """
    xp = array_namespace(rows)
    of_supports, of_mean = class_weights(labels, rows)
    of_queries = xp.zeros_like(rows[..., labels.shape[-1] :, 0])[..., None, :]
    return xp.concat([of_supports, of_queries], axis=-1) + of_mean / rows.shape[-2]


def class_weights(labels: Array, like: Array) -> tuple[Array, Array]:
    """Weights of the supports [..., 1, l] and of the mean of all rows [..., 1, 1] in the mean of the class means."""
    xp = array_namespace(like)
    member = one_hot(labels, int(xp.max(labels)) + 1, like)  # [..., way, l]
    share = 1.0 / (xp.sum(member, axis=-1, keepdims=True) + 1.0)  # [..., way, 1]
    return xp.mean(member * share, axis=-2, keepdims=True), xp.mean(share, axis=-2, keepdims=True)


def _unit_length(gram: Array) -> Array:
    xp = array_namespace(gram)
    squares = xp.linalg.diagonal(gram)  # [R, N]
    some = squares > 4 * xp.finfo(gram.dtype).eps * xp.mean(squares, axis=-1, keepdims=True)
    length = xp.sqrt(xp.where(some, squares, xp.ones_like(squares)))
    scale = xp.where(some, 1.0 / length, xp.zeros_like(length))
    return gram * scale[..., None] * scale[..., None, :]


@dataclass(frozen=True)
class Prepared:
    """Rows after a chain, and the means and scales that the chain used.

    Parameters
    ----------
    x : array of shape (..., N, d)
        The rows.
    statistics : tuple of (shift, scale)
        What each step Mn, Mb, Mc and Z subtracted and divided by, in order.
    zero_rows : int
        Number of zero rows at a step E; they stay zero.

    See Also
    --------
    run : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot.preprocess import parse, run
    >>> run(np.array([[3.0, 4.0], [0.0, 0.0]]), parse("E")).zero_rows
    1
    """

    x: Array  # [..., N, d]
    statistics: tuple[tuple[Array, Array | None], ...]  # shift and scale of each Mn, Mb, Mc, Z in order
    zero_rows: int  # number of zero rows at a step E; they stay zero


def run(
    x: Array,
    steps: Sequence[Step],
    *,
    supports: int | None = None,
    labels: Array | None = None,
    base_mean: BaseMean | None = None,
    statistics: Sequence[tuple[Array, Array | None]] | None = None,
    what: str = "row",
    first: int | NDArray[np.integer[Any]] = 0,
) -> Prepared:
    """Apply a chain to rows.

    Parameters
    ----------
    x : array of shape (..., N, d)
        The rows.
    steps : sequence of Step
        The chain, as `parse` returns it.
    supports : int, optional
        The number of supports, which come first among the rows of a task; Ma and B need it.
    labels : array of shape (..., l), optional
        Classes of the supports, 0 .. way-1; Mc needs them.
    base_mean : callable, optional
        Returns the mean of the base classes after the steps before Mb.
    statistics : sequence of (shift, scale), optional
        Means and scales of an earlier run, to be used again.
    what : str
        The word for a row in error messages.
    first : int or array of shape (N,)
        The number of the first row in error messages, if x is part of a larger array, or the numbers of all rows.

    Returns
    -------
    Prepared
        The rows, and the means and scales used.

    See Also
    --------
    apply : The same for a task.
    sinkshot.PEME : The same as a scikit-learn transformer.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot.preprocess import parse, run
    >>> run(np.array([[3.0, 4.0]]), parse("E")).x.tolist()
    [[0.6, 0.8]]
    """
    xp = array_namespace(x)
    kept: list[tuple[Array, Array | None]] = []
    zero_rows = 0
    for i, step in enumerate(steps):
        match step.name:
            case "P":
                refuse_negative(x, what, first)
                x = (x + EPSILON) ** step.beta
            case "Ps":
                x = xp.sign(x) * xp.abs(x) ** step.beta
            case "E":
                norm = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
                zero = norm == 0
                zero_rows += int(xp.count_nonzero(zero))
                x = x / xp.where(zero, xp.ones_like(norm), norm)
            case "Ma" | "B" if supports is None:
                raise InputError(f"the step {step.name} needs a task of supports and queries, not just rows; use Mn.")
            case "Mc" if labels is None and statistics is None:
                raise InputError("the step Mc needs a task with the labels of its supports, not just rows; use Mn.")
            case "Ma":
                parts = x[..., :supports, :], x[..., supports:, :]
                x = xp.concat([part - xp.mean(part, axis=-2, keepdims=True) for part in parts], axis=-2)
            case "B":
                x = bpa.transform(x)
            case "W":
                x = whitened(x, step.beta)
            case _:  # Mn, Mb, Mc, Z
                if statistics is not None:
                    shift, scale = statistics[len(kept)]
                else:
                    shift, scale = _statistics(x, step, tuple(steps[:i]), base_mean, labels)
                kept.append((shift, scale))
                x = x - shift if scale is None else (x - shift) / scale
    return Prepared(x, tuple(kept), zero_rows)


def _statistics(
    x: Array, step: Step, before: Chain, base_mean: BaseMean | None, labels: Array | None
) -> tuple[Array, Array | None]:
    xp = array_namespace(x)
    if step.name == "Mc":
        return class_centre(labels, x) @ x, None
    if step.name == "Mb":
        if base_mean is None:
            raise InputError("the step Mb needs the base classes; give them, or use Mn, the mean of the task.")
        return xp.asarray(np.array(base_mean(before)), dtype=x.dtype, device=device(x)), None
    shift = xp.mean(x, axis=-2, keepdims=True)
    if step.name == "Mn":
        return shift, None
    variance = xp.mean((x - shift) ** 2, axis=-2, keepdims=True)
    return shift, xp.sqrt(variance + BATCH_NORM_EPSILON)


def refuse_negative(x: Array, what: str, first_row: int | NDArray[np.integer[Any]] = 0) -> None:
    """Raise the error for negative entries under P, naming the first."""
    xp = array_namespace(x)
    below = x < 0
    if not bool(xp.any(below)):
        return
    width = x.shape[-1]
    first = int(xp.argmax(xp.astype(xp.reshape(below, (-1,)), xp.int8)))
    row, column = divmod(first, width)
    value = float(xp.reshape(x, (-1,))[first])
    number = first_row + row if isinstance(first_row, int) else first_row[row]
    raise NegativeFeatureError(
        f"the power step P needs features >= 0, and {what} {number}, column {column} is {value:.6g}. "
        "Use the signed power Ps (as in PsEMnE), or leave P out."
    )


def base_mean_of(means: Mapping[str, NDArray[Any]], base: FeatureBank | None) -> BaseMean:
    """Return the function that gives Mb its mean: a stored mean if there is one, else the mean of a base bank."""

    def base_mean(before: Chain) -> NDArray[Any]:
        prefix = spell(before)
        if any(step.name in OF_TASK for step in before):
            raise InputError(
                f"Mb cannot follow {prefix!r}: after a step that uses the task, the base classes have no mean."
            )
        if prefix in means:
            return means[prefix]
        if base is not None:
            rows = base_after(base, before, base_mean).features
            return np.asarray(np.mean(rows, axis=0, dtype=np.float64), dtype=np.float32)
        known = f" (it has the mean after {', '.join(repr(p) for p in means)})" if means else ""
        raise InputError(
            f"the step Mb after {prefix!r} needs a mean of the base classes that this bank does not hold{known}. "
            "Give the base features (base=, --base FILE), or use Mn, the mean of the task."
        )

    return base_mean


def base_after(base: FeatureBank, steps: Chain, base_mean: BaseMean) -> FeatureBank:
    """Return a base bank after the row-wise part of a chain; the same object if nothing changes."""
    row_wise, _ = split(steps)
    if not row_wise:
        return base
    shifts = [base_mean(row_wise[:i]).tobytes() for i, step in enumerate(row_wise) if step.name == "Mb"]
    key = (spell(row_wise), *shifts)
    known = _BASE_AFTER.setdefault(base, {})
    if key not in known:
        rows = run(base.features, row_wise, base_mean=base_mean, what="row of the base features").x
        known[key] = FeatureBank(rows, base.labels, base.class_names, base.meta)
    return known[key]


_BASE_AFTER: WeakKeyDictionary[FeatureBank, dict[tuple[Any, ...], FeatureBank]] = WeakKeyDictionary()


def apply(task: Task, chain: str, means: Mapping[str, NDArray[Any]] | None = None) -> Task:
    """Apply a chain to the supports and queries of a task together.

    The row-wise part of the chain is also applied to the task's base bank, if there is one.

    Parameters
    ----------
    task : Task
        It needs `base` if the chain has Mb and `means` does not hold its mean.
    chain : str
        Such as "PEMnE".
    means : mapping of str to array [d], optional
        Means of the base classes by chain prefix, as `FeatureBank.base` has them.

    Returns
    -------
    Task
        With the same labels.

    See Also
    --------
    run : The same for rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import Task
    >>> from sinkshot.preprocess import apply
    >>> rows = np.random.default_rng(0).gamma(1.0, size=(1, 8, 16))
    >>> task = apply(Task(rows[:, :2], np.array([[0, 1]]), rows[:, 2:], way=2), "PEMnE")
    >>> bool(np.allclose((task.query**2).sum(axis=-1), 1))
    True
    """
    xp = array_namespace(task.support, task.query)
    both = xp.concat([task.support, task.query], axis=-2)  # [R, N, d]
    steps, base_mean = parse(chain), base_mean_of(means or {}, task.base)
    done = run(both, steps, supports=task.supports, labels=task.labels, base_mean=base_mean)
    warn_of_zero_rows(done.zero_rows)
    base = None if task.base is None else base_after(task.base, steps, base_mean)
    support, query = done.x[..., : task.supports, :], done.x[..., task.supports :, :]
    return replace(task, support=support, query=query, base=base)


def warn_of_zero_rows(count: int) -> None:
    """Warn once of the number of zero rows, which have no direction."""
    if count:
        told = "1 row is zero before unit length (E) and stays zero."
        if count > 1:
            told = f"{count} rows are zero before unit length (E) and stay zero."
        warnings.warn(told, DataWarning, stacklevel=3)
