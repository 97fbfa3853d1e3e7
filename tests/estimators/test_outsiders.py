"""Known outsiders: their kinds become classes that compete with the others for rows."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot import FewShotClassifier
from sinkshot.estimators.outsiders import MOST_KINDS, kinds_of
from sinkshot.estimators.pool_neighbours import PoolNeighbours


def rows_of(kinds, seed=0, width=24, noise=0.35):
    """Rows around one random direction for each kind."""
    rng = np.random.default_rng(seed)
    kinds = np.asarray(kinds)
    directions = np.random.default_rng(9).normal(size=(int(kinds.max()) + 1, width)) / np.sqrt(width)
    return directions[kinds] + noise * rng.normal(size=(len(kinds), width)) / np.sqrt(width)


def pool(strangers=60, known=4, seed=0):
    """Three classes with five labels each; strangers of two kinds, some of each known; what each row is."""
    kinds = np.concatenate([np.repeat([0, 1, 2], 40), np.repeat([3, 4], (strangers + 2 * known) // 2)])
    y = np.where(np.arange(len(kinds)) % 40 < 5, kinds, -1)
    y[kinds > 2] = -1
    none = np.zeros(len(kinds), dtype=bool)
    for kind in (3, 4):
        none[np.flatnonzero(kinds == kind)[:known]] = True
    return rows_of(kinds, seed), y, none, kinds


def test_outsiders_that_are_as_near_as_labels_of_a_class_are_of_one_kind():
    labelled, outside = rows_of(np.repeat([0, 1], 5)), rows_of([2, 3, 2, 3, 2, 4], seed=1, noise=0.2)
    kinds = kinds_of(labelled, np.repeat([0, 1], 5), outside)
    assert kinds[0] == kinds[2] == kinds[4]
    assert kinds[1] == kinds[3]
    assert len(set(kinds[[0, 1, 5]])) == 3


@pytest.mark.parametrize("count", [1, 60, 3_000])
def test_any_number_of_outsiders_has_few_kinds(count):
    outside = np.random.default_rng(0).normal(size=(count, 24))
    kinds = kinds_of(rows_of([0, 0, 1, 1]), np.array([0, 0, 1, 1]), outside)
    assert len(kinds) == count
    assert set(kinds) == set(range(kinds.max() + 1))
    assert kinds.max() < MOST_KINDS


def test_most_of_their_kind_are_rejected_and_few_members():
    x, y, none, kinds = pool()
    model = FewShotClassifier(unknown=0.5).fit(x, y, none=none)
    rejected, free = model.transduction_ == -1, (y < 0) & ~none
    assert rejected[free & (kinds > 2)].mean() > 0.9
    assert rejected[free & (kinds < 3)].mean() < 0.03
    assert rejected[none].all()


def test_without_strangers_in_the_pool_outsiders_reject_few_members():
    x, y, none, kinds = pool(strangers=0)
    rejected = FewShotClassifier(unknown=0.5).fit(x, y, none=none).transduction_ == -1
    assert rejected[(y < 0) & (kinds < 3)].mean() < 0.03


def test_outsiders_do_not_change_the_class_of_a_row():
    x, y, none, _ = pool()
    taught = FewShotClassifier().fit(x, y, none=none)
    np.testing.assert_array_equal(taught.label_distributions_, FewShotClassifier().fit(x, y).label_distributions_)


def test_a_method_that_rejects_nothing_learns_it_from_outsiders():
    x, y, none, kinds = pool()
    model = FewShotClassifier("ncm", unknown=0.5).fit(x, y, none=none)
    free = (y < 0) & ~none
    assert model.unknown_[free & (kinds > 2)].mean() > model.unknown_[free & (kinds < 3)].mean() + 0.2


def test_the_rows_that_a_fit_keeps_are_those_of_its_first_run():
    x, y, none, _ = pool()
    with_outsiders, without = PoolNeighbours(), PoolNeighbours()
    FewShotClassifier().fit(x, y, none=none, neighbours=with_outsiders)
    FewShotClassifier().fit(x, y, neighbours=without)
    np.testing.assert_array_equal(with_outsiders.task_rows, without.task_rows)


def test_everything_may_be_labelled_or_outside():
    x, y, none, kinds = pool(strangers=0)
    y = np.where(none, -1, np.where(kinds < 3, kinds, -1))
    model = FewShotClassifier(unknown=0.5).fit(x, y, none=none)
    np.testing.assert_array_equal(model.transduction_, np.where(none, -1, y))
