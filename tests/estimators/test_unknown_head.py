"""Labelled rows, which belong to a class, check the scale of the unknown scores."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot.estimators.unknown_head import USUAL_DOUBT, logit, trusted_by_labels


@pytest.fixture
def pool():
    """Two classes of 60 rows and 40 strangers far from both; ten rows of the classes are labelled."""
    rng = np.random.default_rng(0)
    centres = 5 * rng.normal(size=(3, 16))
    kind = np.repeat([0, 1, 2], [60, 60, 40])
    rows = centres[kind] + rng.normal(size=(160, 16))
    labelled = np.zeros(160, dtype=bool)
    labelled[[0, 1, 2, 3, 4, 60, 61, 62, 63, 64]] = True
    return rows, kind, labelled


def test_a_scale_that_would_reject_the_labelled_rows_is_lowered_and_the_order_stays(pool):
    rows, kind, labelled = pool
    unknown = np.where(labelled, 0.0, np.where(kind == 2, 0.9999, 0.9))
    trusted = trusted_by_labels(rows, unknown, labelled)
    assert (trusted[labelled] == 0).all()
    assert np.allclose(trusted[(kind < 2) & ~labelled], USUAL_DOUBT, atol=1e-3)
    assert (trusted[kind == 2] > trusted[(kind < 2) & ~labelled].max()).all()
    shifts = logit(unknown[~labelled]) - logit(trusted[~labelled])
    assert np.allclose(shifts, shifts[0], atol=1e-4)


def test_a_scale_that_keeps_the_labelled_rows_is_left_alone(pool):
    rows, kind, labelled = pool
    unknown = np.where(labelled, 0.0, np.where(kind == 2, 0.95, 0.05))
    assert trusted_by_labels(rows, unknown, labelled) is unknown


def test_pools_without_labels_or_without_other_rows_are_left_alone(pool):
    rows = pool[0]
    unknown = np.full(160, 0.9)
    assert trusted_by_labels(rows, unknown, np.zeros(160, dtype=bool)) is unknown
    assert trusted_by_labels(rows, unknown, np.ones(160, dtype=bool)) is unknown
