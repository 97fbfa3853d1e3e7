"""Cosine attention: its votes, and its two limits."""

from __future__ import annotations

import numpy as np
from test_contract import make_task

from sinkshot import METHODS
from sinkshot.preprocess import apply


def test_votes_are_the_softmax_over_supports_summed_by_class():
    task = apply(make_task(shots=(1, 5, 2, 3)), "E")
    for r in range(3):
        for q in range(9):
            odds = np.exp(3.0 * task.support[r] @ task.query[r, q])
            expected = [odds[task.labels[r] == k].sum() / odds.sum() for k in range(4)]
            ours = METHODS["matching"](task, temperature=3.0).probabilities[r, q]
            np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_a_high_temperature_follows_the_nearest_support_alone():
    task = apply(make_task(), "E")
    nearest = (task.query @ task.support.swapaxes(1, 2)).argmax(axis=-1)
    p = METHODS["matching"](task, temperature=1e5).probabilities
    np.testing.assert_array_equal(p.argmax(axis=-1), np.take_along_axis(task.labels, nearest, axis=1))
