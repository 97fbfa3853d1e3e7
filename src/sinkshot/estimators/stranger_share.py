"""Put `unknown` on a scale that the pool sets: as many rows are above one half as the pool seems to have strangers.

The network of `sinkshot.estimators.stranger_network` estimates their share from samples of the pool. Strangers are
believed in only where the odds are clearly for them, so that a pool without any loses next to nothing. A pool of up to
600 unlabelled rows, or 8 a class if that is more, is looked at as a whole: then the network also ranks the rows. In a
larger one the method's own ranking stands, which knows the neighbours of every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.estimators.stranger_network import BELIEF, Opinion, stranger_network
from sinkshot.estimators.unknown_head import logit, sigmoid
from sinkshot.methods.stranger_clues import stranger_clues
from sinkshot.task import Scores, Task

Floats = NDArray[Any]
LEAST_ROWS = 60  # unlabelled ones; fewer tell too little
MOST_ROWS, ROWS_A_CLASS = 600, 8  # unlabelled rows of a sample: 600, or more of many classes
MOST_LABELS = MOST_CLASSES = 200  # of a sample; with more classes too few rows of each would be in it
SAMPLES = 4  # of a large pool, at most
LEAST_SHARE = 0.02  # of strangers; less counts as none
NONE_ABOVE = 6.0  # log odds of one half less those of the first row, where no row is to be rejected
LOOSE = 0.4  # of the share: a clear gap so near to it is where the cut is
CLEAR = 1.0  # log odds between two rows beside each other
SLOPES = (0.5, 10.0)  # least and most that log odds are multiplied with
_LARGEST = 80.0  # log odds
_LEAST, _MOST = 1e-30, 1 - 2.0**-24  # probabilities whose log odds are told apart


@dataclass(frozen=True)
class PoolSample:
    """Rows that are looked at together."""

    labelled: NDArray[np.int64]  # numbers among the labelled rows
    others: NDArray[np.int64]  # numbers among the unlabelled rows


def tells_enough(way: int, unlabelled: int) -> bool:
    """Whether the strangers of a pool with so many classes and unlabelled rows are counted."""
    return 2 <= way <= MOST_CLASSES and unlabelled >= LEAST_ROWS


def samples(codes: NDArray[np.int64], unlabelled: int) -> Iterator[PoolSample]:
    """Draw samples of a pool, the same every time; none of a pool that tells too little.

    Parameters
    ----------
    codes : array of int of shape (l,)
        Classes of the labelled rows, 0 .. way-1.
    unlabelled : int
        Number of unlabelled rows.
    """
    way = int(codes.max()) + 1
    if not tells_enough(way, unlabelled):
        return
    rng = np.random.default_rng(0)
    most = max(MOST_ROWS, ROWS_A_CLASS * way)
    count = min(SAMPLES, math.ceil(unlabelled / most))
    size = min(unlabelled // count, most)
    drawn = np.arange(size) if count == 1 else rng.choice(unlabelled, count * size, replace=False)
    for others in drawn.reshape(count, size):
        yield PoolSample(_some_of_each_class(codes, way, rng), np.sort(others))


def _some_of_each_class(codes: NDArray[np.int64], way: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of at most 200 labelled rows, as even over the classes as these have them; at least one of each."""
    if len(codes) <= MOST_LABELS:
        return np.arange(len(codes))
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    begin = np.searchsorted(codes[order], np.arange(way))
    place = np.arange(len(codes)) - begin[codes[order]]  # of a row within its class
    first = np.argsort(place, kind="stable")[:MOST_LABELS]
    return np.sort(order[first])


def opinion(labelled: Floats, codes: NDArray[np.int64], others: Floats) -> Opinion:
    """Ask the network about rows: labelled [l, d] with their classes [l], and others [q, d]."""
    x = np.concatenate([labelled, others])
    lengths = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)  # clues are cosines, whatever the chain
    x = (x / np.where(lengths > 0, lengths, 1)).astype(np.float32)[None]
    return stranger_network()(stranger_clues(x, codes[None], int(codes.max()) + 1))


def share_of(opinions: list[Opinion]) -> float:
    """Return the share of strangers that is believed in, from opinions on samples of one pool."""
    return float(BELIEF.share(*np.mean([what_counts(each) for each in opinions], axis=0)))


def what_counts(told: Opinion) -> tuple[float, ...]:
    """Return what `Belief.share` takes of an opinion."""
    return told.odds, told.share, told.labels, told.pieces


@dataclass(frozen=True)
class Scale:
    """How log odds become those of a pool: (odds - cut) * slope."""

    cut: float = 0.0
    slope: float = 1.0
    shift: float = 0.0  # subtracted last, as the neighbours of labelled rows ask for: `shift_by_labels`

    def __call__(self, odds: Floats) -> Floats:
        """Return the probability of belonging to no class."""
        scaled = self.slope * (np.asarray(odds, np.float64) - self.cut)
        if self.shift:
            return np.asarray(sigmoid(logit(sigmoid(scaled)) - self.shift))
        return np.asarray(1 / (1 + np.exp(np.clip(-scaled, -_LARGEST, _LARGEST))))


def scale_of(odds: Floats, share: float) -> Scale:
    """Return the scale on which about this share of log odds [q] is above zero.

    If rows are clearly of two kinds nearby, the cut is between these, since the share is an estimate. The slope is that
    of two kinds of rows with a common variance: the difference of their means over it. Where the share is none, log
    odds are lowered until all are far below zero, but never raised.
    """
    wanted = share * len(odds)
    if wanted < 1 or share < LEAST_SHARE:
        return Scale(max(float(odds.max()) + NONE_ABOVE, 0.0))
    ordered = -np.sort(-odds)
    whole = min(max(round(wanted), 1), len(odds) - 1)
    begin, end = max(round((1 - LOOSE) * wanted), 1), min(round((1 + LOOSE) * wanted), len(odds) - 1)
    gaps = ordered[begin - 1 : end] - ordered[begin : end + 1]
    if len(gaps) and gaps.max() > CLEAR:
        whole = begin + int(gaps.argmax())
    if ordered[whole - 1] == ordered[whole]:
        whole = _edge_of_tie(ordered, whole, wanted)
    cut = float(0.5 * (ordered[whole - 1] + ordered[whole]))
    above, below = odds[odds > cut], odds[odds <= cut]
    if not len(above):
        return Scale(cut)  # all rows are equal
    variance = (above.var() * len(above) + below.var() * len(below)) / len(odds)
    return Scale(cut, float(np.clip((above.mean() - below.mean()) / max(variance, 1e-6), *SLOPES)))


def _edge_of_tie(ordered: Floats, whole: int, wanted: float) -> int:
    """Number of rows before or after those that are equal at a cut, in falling order, whichever is nearer."""
    equal = np.flatnonzero(ordered == ordered[whole])
    edges = [edge for edge in (int(equal[0]), int(equal[-1]) + 1) if 0 < edge < len(ordered)]
    return min(edges, key=lambda edge: abs(edge - wanted), default=whole)


def log_odds(unknown: Floats) -> Floats:
    """Return the log odds of probabilities, down to one in 10^30."""
    kept = np.clip(np.asarray(unknown, np.float64), _LEAST, _MOST)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def on_scale_of_pool(scores: Scores, task: Task) -> Scores:
    """Return the scores of a single task with `unknown` on the scale of its pool."""
    if scores.unknown is None:
        return scores
    codes = np.asarray(task.labels[0])
    found = []
    for sample in samples(codes, task.queries):
        rows = np.asarray(task.support[0])[sample.labelled], np.asarray(task.query[0])[sample.others]
        found.append(opinion(rows[0], codes[sample.labelled], rows[1]))
    if not found:
        return scores
    odds = found[0].rows if len(found[0].rows) == task.queries else log_odds(np.asarray(scores.unknown[0]))
    unknown = scale_of(odds, share_of(found))(odds)
    return replace(scores, unknown=unknown[None].astype(scores.unknown.dtype))
