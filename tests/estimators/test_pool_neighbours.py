"""A pool that is fitted again with its neighbours known: the same answer, without another search among all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot import FewShotClassifier, preprocess
from sinkshot.errors import InputError
from sinkshot.estimators.pool_neighbours import CANDIDATES, PoolNeighbours
from sinkshot.kernels import LARGE_POOL, nearest_rows


@pytest.fixture(scope="module")
def pool():
    rng, way = np.random.default_rng(0), 6
    truth = rng.integers(0, way, LARGE_POOL + 200)
    centres = rng.gamma(1.0, 1.0, size=(way, 32))
    rows = np.abs(centres[truth] + 1.2 * rng.normal(size=(len(truth), 32))).astype(np.float32)
    return rows, np.array([f"class {code}" for code in truth], dtype=object)


def labels_of(truth, count):
    y = np.full(len(truth), None, dtype=object)
    y[:count] = truth[:count]
    return y


@pytest.mark.slow
def test_candidates_ranked_from_another_centre_hold_the_nearest_rows(pool):
    rows = pool[0][:1_000]
    centre = rows[:100].mean(axis=0)
    order = np.random.default_rng(1).permutation(len(rows))
    cosines, numbers = PoolNeighbours().seen_from(rows, centre, order)
    assert numbers.shape == (1_000, CANDIDATES)
    unit = (rows - centre)[order]
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    exact = unit @ unit.T
    np.fill_diagonal(exact, -2)
    assert np.allclose(cosines, np.take_along_axis(exact, numbers, axis=1), atol=1e-5)
    best = np.argsort(-exact, axis=1)[:, :6]
    held = np.mean([len(set(a) & set(b)) / 6 for a, b in zip(numbers[:, :6].tolist(), best.tolist(), strict=True)])
    assert held > 0.98


def test_later_fits_agree_with_fits_from_scratch(pool):
    rows, truth = pool
    known = PoolNeighbours()
    for count in (30, 60, 300, 2_500):
        y = labels_of(truth, count)
        y[count : count + 5] = "_none"
        again = FewShotClassifier(unknown=0.5).fit(rows, y, neighbours=known)
        whole = FewShotClassifier(unknown=0.5).fit(rows, y)
        assert np.mean(again.transduction_ == whole.transduction_) > 0.998
        assert np.abs(again.unknown_ - whole.unknown_).mean() < 0.002


@pytest.mark.slow
def test_later_fits_of_a_whitened_pool_agree_with_fits_from_scratch(pool):
    """The matrix is that of the first fit; what is not whitened in between stands beside it."""
    rows, truth = pool
    known = PoolNeighbours()
    for count, spelled in ((30, "PEMcE"), (60, "PEMcEWE"), (62, "PEMcEWE"), (300, "PEMcE"), (2_500, "PEMcEWE")):
        y = labels_of(truth, count)
        again = FewShotClassifier(preprocess=spelled, unknown=0.5).fit(rows, y, neighbours=known)
        whole = FewShotClassifier(preprocess=spelled, unknown=0.5).fit(rows, y)
        assert np.mean(again.transduction_ == whole.transduction_) > 0.998


def test_the_first_fit_of_a_whitened_pool_has_the_rows_of_its_chain(pool):
    rows, truth = pool
    known, y = PoolNeighbours(), labels_of(truth, 60)
    FewShotClassifier(preprocess="PEMcEWE").fit(rows, y, neighbours=known)
    codes = np.unique(truth[:60], return_inverse=True)[1]
    expected = preprocess.run(rows, preprocess.parse("PEMcEWE"), supports=60, labels=codes).x
    np.testing.assert_allclose(known.task_rows, expected, atol=2e-5)


def test_later_fits_do_not_compare_all_pairs(pool, monkeypatch):
    rows, truth = pool
    known = PoolNeighbours()
    FewShotClassifier().fit(rows, labels_of(truth, 30), neighbours=known)

    def never(*_args, **_options):
        raise AssertionError("all pairs were compared")

    monkeypatch.setattr(nearest_rows, "nearest_rows", never)
    monkeypatch.setattr("sinkshot.kernels.sinkshot_large.nearest_rows", never)
    monkeypatch.setattr("sinkshot.estimators.pool_neighbours.nearest_rows", never)
    FewShotClassifier().fit(rows, labels_of(truth, 60), neighbours=known)
    with pytest.raises(AssertionError, match="all pairs"):
        FewShotClassifier().fit(rows, labels_of(truth, 60))


def test_neighbours_of_another_pool_are_refused(pool):
    rows, truth = pool
    known = PoolNeighbours()
    FewShotClassifier().fit(rows, labels_of(truth, 30), neighbours=known)
    with pytest.raises(InputError, match="other rows"):
        FewShotClassifier().fit(rows[::-1] * 2, labels_of(truth, 30), neighbours=known)


def test_small_pools_need_no_neighbours(pool):
    rows, truth = pool[0][:200], pool[1][:200]
    known = PoolNeighbours()
    again = FewShotClassifier(unknown=0.5).fit(rows, labels_of(truth, 30), neighbours=known)
    whole = FewShotClassifier(unknown=0.5).fit(rows, labels_of(truth, 30))
    assert known.numbers is None
    assert np.array_equal(again.label_distributions_, whole.label_distributions_)
