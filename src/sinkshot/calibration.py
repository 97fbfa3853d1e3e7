"""How far probabilities can be trusted: calibration error, Brier score, log loss, and risk against coverage.

Confidence is the largest probability of a query. All queries of known classes go into one histogram (`Confidence`) of
integers: histograms of chunks add up exactly to that of the whole, and a million episodes need as little memory as one.
Scores that are means over queries are computed per episode.

    confidence = Confidence.of(probabilities, labels)
    confidence.ece, confidence.ece_null, confidence.aurc, confidence.coverage(0.95)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from sinkshot.arrays import to_numpy
from sinkshot.errors import InputError
from sinkshot.statistics import binomial_probability
from sinkshot.task import Array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 15  # of equal width, (0, 1/15] to (14/15, 1], as usual for the expected calibration error
UNITS = 1 << 30  # confidences are summed as integers, in units of 1 / UNIT
SMALLEST = 2.0**-23  # floor of probabilities in the log loss: below it float32 has only rounding errors
SHIFT = 16  # bits of a float32 to drop: leaves the exponent and 7 bits of the fraction
SUREST = 103 << 7  # 2^-24 shifted in the same way: the smallest distance of a float32 confidence from one
RANKS = (127 << 7) - SUREST + 1

PER_EPISODE = ("macro_accuracy", "brier", "nll")
"""Metrics computed per episode, besides accuracy."""
POOLED: dict[str, Callable[[Confidence], float]] = {
    "ece": lambda confidence: confidence.ece,
    "ece_null": lambda confidence: confidence.ece_null,
    "aurc": lambda confidence: confidence.aurc,
    "coverage95": lambda confidence: confidence.coverage(0.95),
    "coverage99": lambda confidence: confidence.coverage(0.99),
}
"""Metrics of all queries together, by their names in results."""
CONFIDENCE = ("macro_accuracy", "ece", "ece_null", "brier", "nll", "aurc", "coverage95", "coverage99")
"""All of these, in the order of the JSON object of `sinkshot eval`."""


class Reliability(NamedTuple):
    """A reliability diagram: statistics of the queries in each of the 15 bins, [15]; NaN for empty bins."""

    confidence: Floats  # mean confidence
    accuracy: Floats  # accuracy
    share: Floats  # fraction of all queries; zero for empty bins


@dataclass(frozen=True, eq=False)
class Confidence:
    """Histogram of the confidences of queries, and of how many are labelled correctly.

    Sums of histograms are exact. `ece` comes from the 15 bins. Metrics that depend on the order of the queries (`aurc`,
    `coverage`) come from 3,073 ranks of 1 - confidence: 128 for each factor of two from 1 down to 2^-24. Queries of the
    same rank count as equally confident.

    Parameters
    ----------
    ranked : array of shape (2, 3073)
        Queries and correct ones by rank, most confident first.
    binned : array of shape (4, 15)
        Queries, correct ones, sums of confidences and of their squares by bin.

    See Also
    --------
    sinkshot.Result : Holds one in `confidence`.

    Examples
    --------
    >>> from sinkshot.calibration import Confidence
    >>> some = Confidence.of([[0.9, 0.1], [0.8, 0.2]], [0, 1])
    >>> some.queries, some.accuracy, round(some.ece, 3)
    (2, 0.5, 0.45)
    """

    ranked: Ints = field(default_factory=lambda: np.zeros((2, RANKS), np.int64))  # queries, correct; see above
    binned: Ints = field(default_factory=lambda: np.zeros((4, BINS), np.int64))  # queries, correct, sums of c and c^2

    @classmethod
    def of(cls, probabilities: Array, labels: Array) -> Confidence:
        """Count queries.

        Parameters
        ----------
        probabilities : array of shape (..., way)
            Class probabilities.
        labels : array of shape (...)
            True classes; -1 is an unknown class and not counted.

        Returns
        -------
        Confidence
            Their histogram.

        Examples
        --------
        >>> round(Confidence.of([[0.9, 0.1], [0.8, 0.2]], [0, 1]).ece, 3)
        0.45
        """
        given, truth = (np.asarray(a) if isinstance(a, list | tuple) else a for a in (probabilities, labels))
        if given.ndim < 1 or given.shape[:-1] != truth.shape:
            raise InputError(f"probabilities {given.shape} need one label per row; the labels are {truth.shape}.")
        found = judge(given.reshape(1, -1, given.shape[-1]), truth.reshape(1, -1))
        if not found.confidence.queries:
            raise InputError("there is no query of a known class (label 0 or above), so confidence cannot be measured.")
        if not np.isfinite(found.brier).all():
            raise InputError("probabilities must be finite numbers.")
        return found.confidence

    def __add__(self, other: Confidence) -> Confidence:
        return Confidence(self.ranked + other.ranked, self.binned + other.binned)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Confidence):
            return NotImplemented
        return np.array_equal(self.ranked, other.ranked) and np.array_equal(self.binned, other.binned)

    __hash__ = None  # type: ignore[assignment]

    @property
    def queries(self) -> int:
        """Queries counted."""
        return int(self.binned[0].sum())

    @property
    def accuracy(self) -> float:
        """Fraction of the queries that is labelled correctly."""
        return float(self.binned[1].sum() / self.queries)

    @property
    def ece(self) -> float:
        """Expected calibration error: mean of abs(confidence - accuracy) over bins, weighted by their queries."""
        return float(np.abs(self.binned[1] - self.binned[2] / UNITS).sum() / self.queries)

    @property
    def ece_null(self) -> float:
        """The expected `ece` of a perfectly calibrated predictor with the same confidences.

        It is not zero: in a bin of few queries the accuracy deviates from its mean. If each query is correct with a
        probability equal to its confidence, independently of the others, the number of correct ones in a bin is close
        to binomial. The mean absolute deviation of a binomial variable is known (De Moivre); it is scaled down by the
        spread of confidences within the bin.
        """
        n = self.binned[0][full := self.binned[0] > 0].astype(np.float64)
        total, squares = (self.binned[i][full] / UNITS for i in (2, 3))
        p = np.clip(total / n, 0.0, 1.0)
        above = np.floor(n * p) + 1
        distance = 2 * above * (1 - p) * binomial_probability(above, n, p)
        variance = n * p * (1 - p)
        within = np.divide(np.maximum(total - squares, 0.0), variance, out=np.ones_like(n), where=variance > 0)
        return float((distance * np.sqrt(np.minimum(within, 1.0))).sum() / self.queries)

    @property
    def reliability(self) -> Reliability:
        """Mean confidence, accuracy and fraction of the queries by bin."""
        n = self.binned[0]
        mean = np.divide(self.binned[1:3], n, out=np.full((2, BINS), np.nan), where=n > 0)
        return Reliability(mean[1] / UNITS, mean[0], n / self.queries)

    @cached_property
    def _falling(self) -> tuple[Floats, Floats]:
        """Cumulative numbers of queries and errors, most confident first, at the end of each rank that is not empty."""
        queries, right = self.ranked[:, self.ranked[0] > 0]
        return np.cumsum(queries).astype(np.float64), np.cumsum(queries - right).astype(np.float64)

    @property
    def risk_coverage(self) -> tuple[Floats, Floats]:
        """Coverage and risk: the error rate among the most confident queries, for each fraction of queries answered."""
        queries, errors = self._falling
        return queries / self.queries, errors / queries

    @property
    def aurc(self) -> float:
        """Area under the risk-coverage curve: the risk among the k most confident queries, averaged over all k.

        Queries of the same rank count in random order: this is the mean over orders.
        """
        from scipy.special import digamma

        end, errors = self._falling
        start, before = (np.concatenate([[0.0], a[:-1]]) for a in (end, errors))
        rate = (errors - before) / (end - start)
        harmonic = digamma(end + 1) - digamma(start + 1)  # sum of 1 / k within the rank
        return float((rate * (end - start) + (before - rate * start) * harmonic).sum() / self.queries)

    def coverage(self, accuracy: float) -> float:
        """Return the largest fraction of queries, the most confident first, that is labelled with this accuracy.

        Parameters
        ----------
        accuracy : float
            The required accuracy, such as 0.95.

        Returns
        -------
        float
            The fraction; 0 if there is none.
        """
        queries, errors = self._falling
        enough = np.flatnonzero((queries - errors) / queries >= accuracy)
        return float(queries[enough[-1]] / self.queries) if len(enough) else 0.0

    def to_bytes(self) -> bytes:
        """Pack the histogram for a file.

        Returns
        -------
        bytes
            Compressed counts.
        """
        return zlib.compress(np.concatenate([self.ranked.ravel(), self.binned.ravel()]).astype("<i8").tobytes())

    @classmethod
    def from_bytes(cls, packed: bytes) -> Confidence:
        """Unpack what `to_bytes` returned. Raise a ValueError for other bytes.

        Parameters
        ----------
        packed : bytes
            What `to_bytes` returned.

        Returns
        -------
        Confidence
            The histogram.
        """
        try:
            numbers = np.frombuffer(zlib.decompress(packed), "<i8").astype(np.int64)
        except zlib.error as error:
            raise ValueError(f"a histogram of confidences cannot be read ({error})") from error
        if len(numbers) != 2 * RANKS + 4 * BINS or (numbers < 0).any():
            raise ValueError("a histogram of confidences holds inconsistent counts")
        ranked, binned = np.split(numbers, [2 * RANKS])
        return cls(ranked.reshape(2, RANKS), binned.reshape(4, BINS))


@dataclass(frozen=True)
class Judged:
    """Metrics of the answers to R episodes."""

    accuracy: Floats  # [R] on the queries of known classes
    macro_accuracy: Floats  # [R] mean of the per-class accuracies over the classes present
    brier: Floats  # [R] mean squared distance between probabilities and truth, summed over classes: 0 to 2
    nll: Floats  # [R] mean of minus the logarithm of the true class's probability
    confidence: Confidence  # of all of them
    rejection: Mapping[str, Floats] = field(default_factory=dict)  # under `open-set`: `sinkshot.open_set.measures`

    @property
    def per_episode(self) -> dict[str, Floats]:
        """All metrics computed per episode, by name."""
        return {name: getattr(self, name) for name in ("accuracy", *PER_EPISODE)} | dict(self.rejection)


def judge(probabilities: Array, labels: Array) -> Judged:
    """Compare probabilities [R, q, way] with labels [R, q]; label -1 is an unknown class and not counted.

    Both are arrays of one library. Torch tensors stay on their device; all other arrays are converted to NumPy.
    Scores (`brier`, `nll`) of an episode are NaN if one of its probabilities is not finite.
    """
    if not _is_torch(probabilities):
        probabilities, labels = np.asarray(probabilities), np.asarray(labels)
    xp = array_namespace(probabilities)
    episodes, _, way = probabilities.shape
    wide, truth = xp.astype(probabilities, xp.float64), xp.astype(labels, xp.int64)
    known = truth >= 0
    own = xp.where(known, truth, xp.zeros_like(truth))
    right = (xp.argmax(probabilities, axis=-1) == truth) & known
    of_truth = xp.take_along_axis(wide, own[..., None], axis=-1)[..., 0]  # [R, q]
    squares = xp.sum(wide * wide, axis=-1)
    distance = squares - 2 * of_truth + 1
    loss = -xp.log(xp.where(of_truth > SMALLEST, of_truth, xp.full_like(of_truth, SMALLEST)))
    distance, loss = (xp.sum(xp.where(known, one, xp.zeros_like(one)), axis=1) for one in (distance, loss))
    spoilt = 0.0 * xp.sum(squares, axis=1)  # NaN where a probability is not finite
    place = (own + way * xp.arange(episodes, dtype=own.dtype, device=own.device)[:, None])[known]
    hit = xp.astype(right[known], xp.int64)
    counted, hits = (_totals(place, n, episodes * way).reshape(episodes, way) for n in (xp.ones_like(hit), hit))
    largest = xp.max(xp.astype(probabilities, xp.float32), axis=-1)[known]
    return judged(counted, hits, to_numpy(distance + spoilt), to_numpy(loss + spoilt), _count(xp, largest, hit))


def judged(counted: Ints, right: Ints, distance: Floats, loss: Floats, confidence: Confidence) -> Judged:
    """Make the metrics from sums: queries and correct ones by class [R, way], and scores [R] over known queries."""
    known = counted.sum(axis=1)
    recall = np.divide(right, counted, out=np.zeros(right.shape), where=counted > 0)
    with np.errstate(invalid="ignore"):  # an episode without a query of a known class has no accuracy
        macro = recall.sum(axis=1) / (counted > 0).sum(axis=1)
        return Judged(right.sum(axis=1) / known, macro, distance / known, loss / known, confidence)


def _count(xp: Any, confidence: Array, hit: Array) -> Confidence:
    """Make the histogram from confidences [n] float32 and from which queries are correct [n], 1 or 0."""
    one = xp.ones_like(confidence)
    confidence = xp.where(confidence < one, confidence, one)  # NaN becomes one, too
    rank = (((one - confidence).view(xp.int32)) >> SHIFT) - SUREST
    rank = xp.astype(xp.where(rank > 0, rank, xp.zeros_like(rank)), xp.int64)
    wide = xp.astype(confidence, xp.float64)
    place = xp.astype(xp.ceil(wide * BINS), xp.int64) - 1
    place = xp.where(place > 0, place, xp.zeros_like(place))
    units = [xp.astype(xp.floor(values * UNITS + 0.5), xp.int64) for values in (wide, wide * wide)]
    ranked = [_totals(rank, values, RANKS) for values in (xp.ones_like(hit), hit)]
    binned = [_totals(place, values, BINS) for values in (xp.ones_like(hit), hit, *units)]
    return Confidence(np.stack(ranked), np.stack(binned))


def _totals(place: Array, values: Array, size: int) -> Ints:
    """Sum integers by index, [size]; exact."""
    if _is_torch(place):
        return to_numpy(values.new_zeros(size).scatter_add_(0, place, values))
    return np.bincount(place, weights=values, minlength=size).astype(np.int64)  # float64 holds them up to 2^53


def _is_torch(array: Array) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"
