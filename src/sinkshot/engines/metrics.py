"""Open-set metrics from the scores of a method, and a check that its results are finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot import open_set
from sinkshot.arrays import to_numpy
from sinkshot.calibration import Judged
from sinkshot.episodes import Episodes
from sinkshot.errors import InputError
from sinkshot.task import Scores

OUT_OF_RANGE = (
    "the features are too large or too small for float32 under this chain, so the result is not a number. "
    "Scale them, or let the chain begin with E."
)


def rejection(scores: Scores, chunk: Episodes) -> dict[str, NDArray[np.float64]]:
    """How well unknown queries are detected in each episode, by the metrics of `sinkshot.open_set`, [R].

    For a method without an unknown score, one minus its largest probability is used.
    """
    unknown = 1 - to_numpy(scores.probabilities).max(axis=-1) if scores.unknown is None else to_numpy(scores.unknown)
    return open_set.measures(unknown, chunk.query_labels < 0)


def checked(judged: Judged) -> Judged:
    """Raise an error if results are not finite."""
    if not np.isfinite(judged.brier).all():
        raise InputError(OUT_OF_RANGE)
    return judged
