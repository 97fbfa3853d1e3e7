"""Every registered strategy starts from zero labels, chooses different unlabelled rows, and finds classes early."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkshot import selection
from sinkshot.errors import InputError
from sinkshot.selection import STRATEGIES, Pool


def clusters(sizes=(60, 60, 60, 60), width=16, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(len(truth), width)) + 6 * rng.normal(size=(len(sizes), width))[truth]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), truth


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("labels", [0, 3])
def test_chosen_rows_are_different_and_unlabelled(name, labels):
    rows, truth = clusters()
    labelled = np.zeros(len(rows), dtype=bool)
    labelled[:labels] = True
    probabilities = np.eye(4)[truth] * 0.9 + 0.025 if labels else None
    chosen = STRATEGIES[name].choose(Pool(rows, labelled, probabilities), 12)
    assert len(set(chosen)) == 12
    assert not labelled[chosen].any()
    assert chosen == STRATEGIES[name].choose(Pool(rows, labelled, probabilities), 12)


@pytest.mark.parametrize("name", STRATEGIES)
def test_more_rows_than_there_are_give_all_of_them(name):
    rows, _ = clusters(sizes=(3, 2))
    assert sorted(STRATEGIES[name].choose(Pool(rows, np.zeros(5, dtype=bool)), 9)) == [0, 1, 2, 3, 4]
    assert STRATEGIES[name].choose(Pool(rows, np.ones(5, dtype=bool)), 3) == []


@pytest.mark.parametrize("name", ["typiclust", "probcover", "max-herding", "uherding", "expected-gain"])
def test_the_first_rows_are_of_different_clusters(name):
    rows, truth = clusters(sizes=(150, 60, 20, 10))
    chosen = STRATEGIES[name].choose(Pool(rows, np.zeros(len(rows), dtype=bool)), 4)
    assert len(set(truth[chosen])) >= 3


@given(
    sizes=st.lists(st.integers(12, 60), min_size=2, max_size=8),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_the_default_finds_every_cluster_with_two_labels_a_class(sizes, seed):
    rows, truth = clusters(tuple(sizes), width=32, seed=seed)
    chosen = selection.get(selection.DEFAULT).choose(Pool(rows, np.zeros(len(rows), dtype=bool)), 2 * len(sizes))
    assert set(truth[chosen]) == set(range(len(sizes)))


@pytest.mark.parametrize("name", ["max-herding", "uherding", "expected-gain"])
def test_twins_are_not_asked_about_twice(name):
    rows, _ = clusters()
    twins = np.repeat(rows, 2, axis=0)
    chosen = STRATEGIES[name].choose(Pool(twins, np.zeros(len(twins), dtype=bool)), 20)
    assert len({row // 2 for row in chosen}) == 20


@given(
    copies=st.integers(2, 5),
    noise=st.floats(0, 1e-3),
    labels=st.integers(0, 12),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_no_near_twin_of_an_asked_row_comes_before_all_other_rows(copies, noise, labels, seed):
    rng = np.random.default_rng(seed)
    rows, truth = clusters(sizes=(10, 10, 10), seed=seed)
    rows = np.repeat(rows, copies, axis=0) + noise * rng.normal(size=(30 * copies, 16))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    labelled = np.zeros(len(rows), dtype=bool)
    labelled[rng.permutation(30)[:labels] * copies] = True
    probabilities = rng.dirichlet(np.ones(3), len(rows))
    probabilities[labelled] = np.eye(3)[np.repeat(truth, copies)[labelled]]
    chosen = selection.get("expected-gain").choose(Pool(rows, labelled, probabilities), 30 - labels)
    asked = [*chosen, *np.flatnonzero(labelled)]
    assert len({row // copies for row in asked}) == 30


@pytest.mark.parametrize("name", ["margin", "entropy", "max-herding", "uherding", "expected-gain"])
def test_strangers_are_not_asked_about(name):
    rows, truth = clusters()
    unknown = np.where(truth == 3, 0.999, 0.001)
    probabilities = np.full((len(rows), 4), 0.25)
    chosen = STRATEGIES[name].choose(Pool(rows, np.zeros(len(rows), dtype=bool), probabilities, unknown), 10)
    assert (truth[chosen] != 3).all()


@pytest.mark.parametrize("name", STRATEGIES)
def test_closed_rows_are_never_chosen(name):
    rows, truth = clusters()
    closed = np.arange(len(rows)) % 3 == 0
    labelled = np.arange(len(rows)) == 1
    chosen = STRATEGIES[name].choose(Pool(rows, labelled, np.eye(4)[truth], closed=closed), 30)
    assert len(set(chosen)) == 30
    assert not closed[chosen].any()


def test_the_estimate_of_unseen_classes_falls_as_classes_are_seen_twice():
    rows, truth = clusters()
    probabilities = np.eye(4)[truth]

    def new_class(*asked, unknown=None):
        labelled = np.zeros(len(rows), dtype=bool)
        labelled[list(asked)] = True
        return Pool(rows, labelled, probabilities, unknown).new_class

    assert Pool(rows, np.zeros(len(rows), dtype=bool)).new_class == 1
    assert new_class(0, 60, 120, 180) == 1  # each class once
    assert new_class(0, 1, 60, 120) == 0.5
    assert new_class(0, 1, 60, 61) == 0
    assert new_class(0, 1, 60, unknown=np.where(truth == 1, 1.0, 0.0)) == 0  # a stranger's label shows no class


@pytest.mark.slow
def test_a_large_pool_is_thinned_and_labelled_rows_still_count():
    rows, truth = clusters(sizes=(3000, 3000), width=8)
    labelled = truth == 0
    labelled[::7] = False
    chosen = selection.get("expected-gain").choose(Pool(rows, labelled), 3)
    assert (truth[chosen] == 1).sum() >= 2


def test_expected_gain_goes_to_doubt_once_every_class_has_two_labels():
    rows, truth = clusters()
    probabilities = np.eye(4)[truth]
    probabilities[truth == 2] = 0.25
    labelled = np.isin(np.arange(len(rows)), [0, 1, 60, 61, 120, 121, 180, 181])
    probabilities[labelled] = np.eye(4)[truth[labelled]]
    chosen = selection.get("expected-gain").choose(Pool(rows, labelled, probabilities), 5)
    assert (truth[chosen] == 2).all()


def test_uncertainty_herding_covers_what_is_in_doubt():
    rows, truth = clusters()
    probabilities = np.eye(4)[truth]
    probabilities[truth == 2] = 0.25
    pool = Pool(rows, np.zeros(len(rows), dtype=bool), probabilities)
    assert (truth[selection.get("uherding").choose(pool, 5)] == 2).all()


def test_an_unknown_strategy_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="uherding"):
        selection.get("uherdin")


@pytest.mark.parametrize("name", STRATEGIES)
def test_sure_rows_come_after_the_others_and_near_twins_after_both(name):
    rows, truth = clusters()
    rows = np.repeat(rows, 2, axis=0)
    truth = np.repeat(truth, 2)
    labelled = np.arange(len(rows)) < 6  # three pairs of twins
    labelled[1] = False  # the twin of a labelled row
    sure = truth != 2
    order = STRATEGIES[name].choose(Pool(rows, labelled, np.eye(4)[truth]), len(rows), sure)
    assert sorted(order) == np.flatnonzero(~labelled).tolist()
    pairs = [row // 2 for row in order]
    unsure = len({pair for row, pair in zip(order, pairs, strict=True) if not sure[row]})
    apart = len(set(pairs) - {0})
    assert not sure[order[:unsure]].any()
    assert len(set(pairs[:apart])) == apart
    assert 0 not in pairs[:apart]


def test_a_mask_of_another_length_is_refused():
    rows, _ = clusters()
    with pytest.raises(InputError, match="one entry for each of 240 rows"):
        selection.get("margin").choose(Pool(rows, np.zeros(240, dtype=bool)), 3, np.zeros(3, dtype=bool))
