"""How far a fit can be trusted, as far as that can be estimated without the true labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from sinkshot.estimators.prototype_head import unit_length

Floats = NDArray[np.floating[Any]]
_SURPRISE = 0.01  # a leave-one-out result less probable than this contradicts the fit
_LENIENCE = 0.15  # by which single labels may do worse than a pool labelled as a whole
_BLOCK = 4_096  # rows compared at once


@dataclass(frozen=True)
class FitReport:
    """Statistics of a fit that show how far to trust it.

    Attributes
    ----------
    rows, labelled : int
        Rows given to `fit`, and those of them with a label.
    leave_one_out : float or None
        Accuracy of the labelled rows by the nearest mean of the *other* labelled rows; None if every class has only
        one.
    agreement : float or None
        Fraction of the unlabelled rows that get the same class from nearest class means; None without such rows.
    confidence : float or None
        Mean of the largest class probability over the unlabelled rows that are not rejected.
    class_sizes, class_size_errors : array of shape (classes,)
        Estimated number of unlabelled rows in each class, and its standard error.
    rejected : float
        Fraction of the unlabelled rows that were labelled as belonging to no class.
    warnings : tuple of str
        The warnings of `fit`.
    """

    rows: int
    labelled: int
    leave_one_out: float | None
    agreement: float | None
    confidence: float | None
    class_sizes: Floats
    class_size_errors: Floats
    rejected: float
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the report as a few lines of text."""
        shares = {
            "leave-one-out accuracy of labelled rows": self.leave_one_out,
            "agreement with nearest class means": self.agreement,
            "mean confidence": self.confidence,
            "rejected": self.rejected,
        }
        sizes = zip(self.class_sizes, self.class_size_errors, strict=True)
        return "\n".join(
            [
                f"rows: {self.rows:,}, of which {self.labelled:,} have a label",
                *(f"{name}: {share:.1%}" for name, share in shares.items() if share is not None),
                "estimated class sizes: " + ", ".join(f"{size:,.0f} ± {error:,.0f}" for size, error in sizes),
                *(f"warning: {warning}" for warning in self.warnings),
            ]
        )


def nearest_mean_answers(rows: Floats, codes: NDArray[np.int64], way: int) -> tuple[NDArray[np.int64], float | None]:
    """Classes [n] by the nearest mean of the labelled rows, and the leave-one-out accuracy of those.

    `rows` [n, d] have unit length; `codes` [n] are classes, -1 where unlabelled.
    """
    labelled = codes >= 0
    member = np.zeros((int(labelled.sum()), way), dtype=rows.dtype)
    member[np.arange(len(member)), codes[labelled]] = 1
    sums, sizes = member.T @ rows[labelled], member.sum(axis=0)
    answers = (rows @ unit_length(sums).T).argmax(axis=1)
    judged = (sizes > 1)[codes[labelled]]
    if not judged.any():
        return answers, None
    right = 0
    for row, code in zip(rows[labelled][judged], codes[labelled][judged], strict=True):
        others = sums.copy()
        others[code] -= row
        right += int((unit_length(others) @ row).argmax() == code)
    return answers, right / int(judged.sum())


def all_equal(rows: Floats, some: NDArray[np.bool_]) -> bool:
    """Whether all those rows [n, d] are equal that a mask [n] has; they are compared in blocks, until two differ."""
    numbers = np.flatnonzero(some)
    blocks = (rows[numbers[at : at + _BLOCK]] for at in range(0, len(numbers), _BLOCK))
    return all(bool((block == rows[numbers[0]]).all()) for block in blocks)


def contradiction(leave_one_out: float | None, judged: int, confidence: float | None) -> str | None:
    """Return a warning if the accuracy of the labelled rows is far below the confidence of the fit."""
    if leave_one_out is None or confidence is None:
        return None
    expected = max(0.0, confidence - _LENIENCE)
    if binom.cdf(round(leave_one_out * judged), judged, expected) >= _SURPRISE:
        return None
    return (
        f"the labelled rows contradict the answer: left out one by one, {leave_one_out:.0%} of {judged} get their own "
        f"label, while the mean confidence in the unlabelled rows is {confidence:.0%}. Labels may be wrong, or the "
        "features do not tell these classes apart."
    )
