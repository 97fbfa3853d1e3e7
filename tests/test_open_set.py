"""Open-set metrics equal scikit-learn's in every episode, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from sinkshot import InputError
from sinkshot.metrics import sign
from sinkshot.open_set import OPEN_SET, aupr, auroc, fpr_at_tpr, measures


def fpr_of_curve(strange, scores, tpr):
    alarms, hits, _ = roc_curve(strange, scores, drop_intermediate=False)
    return alarms[hits >= tpr - 1e-9][0]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40).filter(
        lambda pairs: len({strange for _, strange in pairs}) == 2
    ),
    st.sampled_from([0.5, 0.95, 1.0]),
)
def test_measures_agree_with_scikit_learn_where_scores_tie(pairs, tpr):
    scores, strange = (np.array(part) for part in zip(*pairs, strict=True))
    assert auroc(scores, strange) == pytest.approx(roc_auc_score(strange, scores))
    assert aupr(scores, strange) == pytest.approx(average_precision_score(strange, scores))
    assert fpr_at_tpr(scores, strange, tpr) == pytest.approx(fpr_of_curve(strange, scores, tpr))


def test_each_episode_is_measured_by_itself_and_all_measures_at_once():
    rng = np.random.default_rng(0)
    scores, strange = rng.normal(size=(3, 4, 30)), np.arange(30) >= 18
    strange = np.broadcast_to(strange, scores.shape)
    found = measures(scores, strange)
    assert tuple(found) == OPEN_SET
    for name, function in (("auroc", auroc), ("aupr", aupr), ("fpr95", fpr_at_tpr)):
        assert found[name].shape == (3, 4)
        np.testing.assert_array_equal(found[name], function(scores, strange))
        assert found[name][1, 2] == function(scores[1, 2], strange[1, 2])


def test_a_perfect_score_a_useless_one_and_the_worst():
    strange = np.array([False, False, True, True])
    for scores, expected in (([0, 1, 2, 3], (1, 1, 0)), ([1, 1, 1, 1], (0.5, 0.5, 1)), ([3, 2, 1, 0], (0, 5 / 12, 1))):
        assert tuple(map(float, measures(scores, strange).values())) == pytest.approx(expected)


def test_only_of_false_alarms_less_is_better():
    assert [sign(name) for name in ("accuracy", *OPEN_SET)] == [1, 1, 1, -1]


@pytest.mark.parametrize(
    ("scores", "strange", "sentence"),
    [
        ([0.1, 0.2], [True], "must have one shape"),
        ([0.1, np.nan], [True, False], "finite"),
        ([[0.1, 0.2], [0.1, 0.2]], [[True, False], [True, True]], "known and of unknown classes"),
    ],
)
def test_what_cannot_be_measured_is_refused(scores, strange, sentence):
    with pytest.raises(InputError, match=sentence):
        auroc(scores, strange)


@pytest.mark.parametrize("tpr", [0, 95, float("nan"), -0.1])
def test_a_rate_that_is_no_share_is_refused(tpr):
    with pytest.raises(InputError, match="tpr"):
        fpr_at_tpr([0.1, 0.9], [False, True], tpr)


@pytest.mark.parametrize("queries", [3, 49, 75, 999])
def test_a_perfect_score_is_exactly_one_whatever_the_number_of_queries(queries):
    strange = np.arange(2 * queries) < queries
    found = measures(np.where(strange, 0.9, 0.1) + 1e-3 * np.arange(2 * queries) / queries, strange)
    assert (found["auroc"], found["aupr"], found["fpr95"]) == (1.0, 1.0, 0.0)
