"""Every registered strategy starts from zero labels, chooses different unlabelled rows, and finds classes early."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("name", ["typiclust", "max-herding", "uherding"])
def test_the_first_rows_are_of_different_clusters(name):
    rows, truth = clusters(sizes=(150, 60, 20, 10))
    chosen = STRATEGIES[name].choose(Pool(rows, np.zeros(len(rows), dtype=bool)), 4)
    assert len(set(truth[chosen])) >= 3


@pytest.mark.parametrize("name", ["max-herding", "uherding"])
def test_twins_are_not_asked_about_twice(name):
    rows, _ = clusters()
    twins = np.repeat(rows, 2, axis=0)
    chosen = STRATEGIES[name].choose(Pool(twins, np.zeros(len(twins), dtype=bool)), 20)
    assert len({row // 2 for row in chosen}) == 20


@pytest.mark.parametrize("name", ["margin", "entropy", "max-herding", "uherding"])
def test_strangers_are_not_asked_about(name):
    rows, truth = clusters()
    unknown = np.where(truth == 3, 0.999, 0.001)
    probabilities = np.full((len(rows), 4), 0.25)
    chosen = STRATEGIES[name].choose(Pool(rows, np.zeros(len(rows), dtype=bool), probabilities, unknown), 10)
    assert (truth[chosen] != 3).all()


def test_uncertainty_herding_covers_what_is_in_doubt():
    rows, truth = clusters()
    probabilities = np.eye(4)[truth]
    probabilities[truth == 2] = 0.25
    pool = Pool(rows, np.zeros(len(rows), dtype=bool), probabilities)
    assert (truth[selection.get("uherding").choose(pool, 5)] == 2).all()


def test_an_unknown_strategy_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="uherding"):
        selection.get("uherdin")
