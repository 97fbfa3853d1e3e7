"""From the answers of a method to what is reported of them beside accuracy and confidence: measures of the open set."""

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
    "the features are too large or too small for float32 under this chain, so the answer is not a number. "
    "Scale them, or let the chain begin with E."
)


def rejection(scores: Scores, chunk: Episodes) -> dict[str, NDArray[np.float64]]:
    """How well unknown queries are told from known ones in each episode, by the measures of `sinkshot.open_set`, [R].

    A method without a score of its own is judged by one minus its largest probability.
    """
    unknown = 1 - to_numpy(scores.probabilities).max(axis=-1) if scores.unknown is None else to_numpy(scores.unknown)
    return open_set.measures(unknown, chunk.query_labels < 0)


def checked(judged: Judged) -> Judged:
    """Refuse answers that are not numbers."""
    if not np.isfinite(judged.brier).all():
        raise InputError(OUT_OF_RANGE)
    return judged
