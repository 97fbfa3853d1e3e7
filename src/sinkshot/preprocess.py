"""The steps P, E, M, Z of the paper's section 3.3 and others, chained by a string such as "PEMnE".

    P    power, (x + 1e-6)^beta, for features >= 0      Mn   subtract the mean of the task (supports and queries)
    Ps   signed power, sign(x) |x|^beta                 Ma   subtract the mean of the supports from the supports and
    E    unit length                                         the mean of the queries from the queries
    Z    batch norm over the rows of the task           Mb   subtract the mean of the base classes, taken at this
    B    replace each row by its affinities to the           point of the chain
         other rows (BPA)                               Mc   subtract the mean of the class means of the supports,
    W    divide by the spread of the task in each            with the task's mean as one more support per class
         direction, shrunk                              ""   nothing
    Wb   the same with the spread within base classes

A chain is read from left to right. beta is 0.5 unless a number follows the power: "P0.4EMnE". W multiplies rows by
(S + r t I)^(-1/2), S the covariance of the task's rows, t the mean of its eigenvalues, r the shrinkage, 10 unless
a number follows: "PEMcEW3E". Wb does so with S the covariance of base rows, each less the mean of its class: directions
in which images of one class differ count less. P, Ps, E, Mb and Wb are row-wise. If a task has features of the base
classes, they go through the steps before the first that is not row-wise.
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
from sinkshot.bank import FeatureBank
from sinkshot.centring import Centring, centred_apart, centred_by_classes, centring, class_centre, class_weights
from sinkshot.chain import OF_TASK, Chain, Step, needs_base, needs_base_features, parse, spell, split
from sinkshot.errors import DataWarning, InputError
from sinkshot.task import Array, Task
from sinkshot.whitening import whitened, within_classes

__all__ = [
    "BaseStatistics",
    "Centring",
    "Chain",
    "NegativeFeatureError",
    "Prepared",
    "Step",
    "apply",
    "base_after",
    "base_statistics",
    "centred_apart",
    "centred_by_classes",
    "centring",
    "class_centre",
    "class_weights",
    "has_classes",
    "needs_base",
    "needs_base_features",
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


class BaseStatistics(NamedTuple):
    """What chains use of the base classes, each at one point of a chain."""

    mean: Callable[[Chain], NDArray[Any]]  # [d], after the steps before Mb
    whitening: Callable[[Chain, float], NDArray[Any]]  # [d, d], after the steps before Wb, with a shrinkage


class NegativeFeatureError(InputError):
    """A feature is negative where the power step P is asked for."""


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
    base: BaseStatistics | None = None,
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
    base : BaseStatistics, optional
        What Mb and Wb use of the base classes, as `base_statistics` returns it.
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
            case "Wb" if base is None:
                raise InputError("the step Wb needs features of the base classes; give them, or leave Wb out.")
            case "Wb":
                assert base is not None
                x = x @ xp.asarray(base.whitening(tuple(steps[:i]), step.beta), dtype=x.dtype, device=device(x))
            case _:  # Mn, Mb, Mc, Z
                if statistics is not None:
                    shift, scale = statistics[len(kept)]
                else:
                    shift, scale = _statistics(x, step, tuple(steps[:i]), base, labels)
                kept.append((shift, scale))
                x = x - shift if scale is None else (x - shift) / scale
    return Prepared(x, tuple(kept), zero_rows)


def _statistics(
    x: Array, step: Step, before: Chain, base: BaseStatistics | None, labels: Array | None
) -> tuple[Array, Array | None]:
    xp = array_namespace(x)
    if step.name == "Mc":
        return class_centre(labels, x) @ x, None
    if step.name == "Mb":
        if base is None:
            raise InputError("the step Mb needs the base classes; give them, or use Mn, the mean of the task.")
        return xp.asarray(np.array(base.mean(before)), dtype=x.dtype, device=device(x)), None
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
        "Use the signed power Ps (preprocess PsEMnE, on the command line --preprocess PsEMnE), or leave P out (EMnE)."
    )


def base_statistics(means: Mapping[str, NDArray[Any]], base: FeatureBank | None) -> BaseStatistics:
    """Return what chains use of the base classes: stored means where there are some, else those of a base bank."""

    def mean(before: Chain) -> NDArray[Any]:
        prefix = _before("Mb", before)
        if prefix in means:
            return means[prefix]
        if base is not None:
            rows = base_after(base, before, statistics).features
            return np.asarray(np.mean(rows, axis=0, dtype=np.float64), dtype=np.float32)
        known = f" (it has the mean after {', '.join(repr(p) for p in means)})" if means else ""
        raise InputError(
            f"the step Mb after {prefix!r} needs a mean of the base classes that this bank does not hold{known}. "
            "Give the base features (base=, --base FILE), or use Mn, the mean of the task."
        )

    def whitening(before: Chain, shrinkage: float) -> NDArray[Any]:
        prefix = _before("Wb", before)
        if base is None or not has_classes(base):
            held = "" if base is None else " of several classes, some with two rows or more"
            raise InputError(
                f"the step Wb after {prefix!r} needs features of the base classes{held}. "
                "Give them (base=, --base FILE), or leave Wb out."
            )
        rows = base_after(base, before, statistics)
        known = _WHITENING.setdefault(rows, {})
        if shrinkage not in known:
            known[shrinkage] = within_classes(rows.features, rows.labels, shrinkage)
        return known[shrinkage]

    statistics = BaseStatistics(mean, whitening)
    return statistics


def _before(step: str, before: Chain) -> str:
    """Write the chain before a step that uses the base classes; refuse one that has used the task."""
    prefix = spell(before)
    if any(each.name in OF_TASK for each in before):
        raise InputError(
            f"{step} cannot follow {prefix!r}: a step that uses the task leaves the base classes without a counterpart."
        )
    return prefix


def has_classes(base: FeatureBank) -> bool:
    """Whether a base bank shows how rows of one class differ, which Wb needs: several classes, one with two rows."""
    return base.classes > 1 and len(base.labels) > base.classes


def base_after(base: FeatureBank, steps: Chain, statistics: BaseStatistics) -> FeatureBank:
    """Return a base bank after the row-wise part of a chain; the same object if nothing changes."""
    row_wise, _ = split(steps)
    if not row_wise:
        return base
    shifts = [statistics.mean(row_wise[:i]).tobytes() for i, step in enumerate(row_wise) if step.name == "Mb"]
    key = (spell(row_wise), *shifts)
    known = _BASE_AFTER.setdefault(base, {})
    if key not in known:
        rows = run(base.features, row_wise, base=statistics, what="row of the base features").x
        known[key] = FeatureBank(rows, base.labels, base.class_names, base.meta)
    return known[key]


_WHITENING: WeakKeyDictionary[FeatureBank, dict[float, NDArray[Any]]] = WeakKeyDictionary()
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
    steps, statistics = parse(chain), base_statistics(means or {}, task.base)
    done = run(both, steps, supports=task.supports, labels=task.labels, base=statistics)
    warn_of_zero_rows(done.zero_rows)
    base = None if task.base is None else base_after(task.base, steps, statistics)
    support, query = done.x[..., : task.supports, :], done.x[..., task.supports :, :]
    return replace(task, support=support, query=query, base=base)


def warn_of_zero_rows(count: int) -> None:
    """Warn once of the number of zero rows, which have no direction."""
    if count:
        told = "1 row is zero before unit length (E) and stays zero."
        if count > 1:
            told = f"{count} rows are zero before unit length (E) and stay zero."
        warnings.warn(told, DataWarning, stacklevel=3)
