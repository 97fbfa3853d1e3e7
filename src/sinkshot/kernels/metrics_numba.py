"""Probabilities of episodes to accuracies, scores and the histogram of confidences, in one compiled pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkshot.calibration import BINS, SHIFT, SMALLEST, SUREST, UNITS, Confidence, Floats, Ints, Judged, judged
from sinkshot.kernels.jit import announced, cached


def judge(probabilities: NDArray[np.float32], labels: NDArray[np.int32]) -> Judged:
    """Compare probabilities [R, q, way] with labels [R, q], as `sinkshot.calibration.judge` does.

    Scores of an episode are NaN if one of its probabilities is not finite.
    """
    counted, scores = np.zeros((2, len(labels), probabilities.shape[-1]), np.int64), np.zeros((2, len(labels)))
    confidence = Confidence()
    arrays = (np.ascontiguousarray(probabilities), np.ascontiguousarray(labels))
    with announced(_judge):
        _judge(*arrays, counted, scores, confidence.ranked, confidence.binned)
    return judged(counted[0], counted[1], scores[0], scores[1], confidence)


def _judge(
    probabilities: NDArray[np.float32],
    labels: NDArray[np.int32],
    counted: Ints,
    scores: Floats,
    ranked: Ints,
    binned: Ints,
) -> None:
    """Sum queries and correct ones by class [2, R, way], both scores [2, R], and the histogram."""
    episodes, queries, way = probabilities.shape
    doubt = np.empty(1, np.float32)
    bits = doubt.view(np.int32)
    for episode in range(episodes):
        everything = 0.0
        for query in range(queries):
            largest, best, squares = probabilities[episode, query, 0], 0, 0.0
            for label in range(way):
                p = probabilities[episode, query, label]
                squares += np.float64(p) * np.float64(p)
                if p > largest:
                    largest, best = p, label
            everything += squares
            truth = labels[episode, query]
            if truth < 0:
                continue
            right = best == truth
            counted[0, episode, truth] += 1
            counted[1, episode, truth] += right
            own = np.float64(probabilities[episode, query, truth])
            scores[0, episode] += squares - 2 * own + 1
            scores[1, episode] -= np.log(max(own, SMALLEST))
            confidence = np.float32(largest) if largest < 1 else np.float32(1)  # NaN becomes one, too
            doubt[0] = np.float32(1) - confidence
            rank = max((bits[0] >> SHIFT) - SUREST, 0)
            ranked[0, rank] += 1
            ranked[1, rank] += right
            wide = np.float64(confidence)
            place = max(int(np.ceil(wide * BINS)) - 1, 0)
            binned[0, place] += 1
            binned[1, place] += right
            binned[2, place] += int(np.floor(wide * UNITS + 0.5))
            binned[3, place] += int(np.floor(wide * wide * UNITS + 0.5))
        scores[:, episode] += 0.0 * everything  # NaN where a probability is not finite


_judge = cached(_judge, nogil=True)
