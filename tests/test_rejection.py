"""`BMSClassifier(unknown=...)` labels rows of no class "unknown", in the pool and among new rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sinkshot import InputError, open_set
from sinkshot.estimators import BMSClassifier

KINDS = np.array(["cat", "dog", "owl"])


def pool(strange=60, seed=0):
    """180 rows of 3 classes, 4 labelled each, and rows of another kind, all unlabelled; and the truth, -1 for those."""
    truth = np.append(np.arange(180) % 3, np.full(strange, -1))
    column = np.arange(48)
    raised = (truth[:, None] == column % 3) | ((truth[:, None] < 0) & (column // 3 % 4 == 0))
    x = np.random.default_rng(seed).gamma(1.0 + 3.0 * raised)
    return x, truth, np.where(np.arange(len(truth)) < 12, truth, -1)


@pytest.fixture(scope="module")
def fitted():
    x, truth, y = pool()
    return BMSClassifier(unknown=0.5).fit(x, y), truth


def test_rows_of_no_class_are_marked_and_the_others_keep_their_class(fitted):
    model, truth = fitted
    assert np.mean(model.transduction_ == truth) > 0.97
    assert np.mean(model.transduction_[truth < 0] == -1) > 0.95


def test_labelled_rows_are_known_and_every_row_has_a_distribution(fitted):
    model, _ = fitted
    assert (model.unknown_[:12] == 0).all()
    assert model.unknown_.min() >= 0
    assert model.unknown_.max() <= 1
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1)


def test_new_rows_are_rejected_alike_and_one_by_one(fitted):
    model, _ = fitted
    x, truth, _ = pool(seed=1)
    assert np.mean(model.predict(x) == truth) > 0.95
    np.testing.assert_allclose(model.predict_unknown(x[:5]), model.predict_unknown(x)[:5], atol=1e-12)


def test_among_strings_the_mark_is_a_word():
    x, truth, y = pool()
    model = BMSClassifier(unknown=0.5).fit(x, np.where(y < 0, "-1", KINDS[y]))
    assert set(model.transduction_) == {"cat", "dog", "owl", "unknown"}
    assert np.mean(model.predict(x) == np.where(truth < 0, "unknown", KINDS[truth])) > 0.95


def test_a_lower_threshold_rejects_more():
    x, _, y = pool()
    few, many = (np.mean(BMSClassifier(unknown=at).fit(x, y).transduction_ == -1) for at in (0.9, 0.001))
    assert few < many


def test_without_a_threshold_nothing_changes_and_the_score_is_refused():
    x, _, y = pool()
    model = BMSClassifier().fit(x, y)
    assert -1 not in model.predict(x)
    assert not hasattr(model, "unknown_")
    with pytest.raises(InputError, match=r"unknown=0\.5"):
        model.predict_unknown(x)


def test_without_unlabelled_rows_new_ones_are_judged_by_the_supports():
    x, truth, y = pool()
    model = BMSClassifier(unknown=0.5).fit(x[:12], y[:12])
    unknown, strange = model.predict_unknown(x[12:]), truth[12:] < 0
    assert open_set.auroc(unknown, strange) > 0.9
    assert np.mean(unknown[strange] > 0.5) > 0.6
    assert np.mean(unknown[~strange] > 0.5) < 0.2


@pytest.mark.parametrize("threshold", [0, 1, 2.0, "half"])
def test_a_threshold_that_is_no_probability_is_refused(threshold):
    x, _, y = pool()
    with pytest.raises(InputError, match="unknown"):
        BMSClassifier(unknown=threshold).fit(x, y)


def test_the_threshold_is_that_of_the_fit_and_nothing_of_an_earlier_one_is_left():
    x, _, y = pool()
    model = BMSClassifier(unknown=0.5).fit(x, y)
    model.set_params(unknown=None)
    assert -1 in model.predict(x)
    model.fit(x, y)
    assert not hasattr(model, "unknown_")
    assert -1 not in model.predict(x)


@pytest.mark.parametrize("wrong", [{"variant": "foo"}, {"prior": [1.0]}, {"steps": 0}])
def test_what_does_not_count_is_checked_all_the_same(wrong):
    x, _, y = pool()
    with pytest.raises(InputError):
        BMSClassifier(unknown=0.5, **wrong).fit(x, y)


def test_a_class_called_unknown_is_refused():
    x, _, y = pool()
    with pytest.raises(InputError, match="rename"):
        BMSClassifier(unknown=0.5).fit(x, np.where(y < 0, "-1", np.array(["cat", "dog", "unknown"])[y]))


def test_it_keeps_the_contract_of_scikit_learn(check_estimator):
    failing = {"check_classifiers_classes": "-1 is a class there, unlabelled here"}
    check_estimator(BMSClassifier(preprocess="", unknown=0.999), expected_failed_checks=failing)


def test_it_survives_pickling(fitted):
    model, _ = fitted
    x, _, _ = pool(seed=2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))


def test_strangers_in_a_real_pool_are_found(exact):
    """Five classes with five labels each among 500 rows of them and 500 rows of five others."""
    random = np.random.default_rng(3)
    kinds = random.choice(exact.classes, 10, replace=False)
    rows = [random.permutation(np.flatnonzero(exact.labels == kind))[:105] for kind in kinds]
    order = np.concatenate([*(r[:5] for r in rows[:5]), *(r[5:] for r in rows)])
    truth = exact.labels[order]
    model = BMSClassifier(unknown=0.5).fit(exact.features[order], np.where(np.arange(1025) < 25, truth, -1))
    strange, pooled = ~np.isin(truth, kinds[:5]), slice(25, None)
    assert open_set.auroc(model.unknown_[pooled], strange[pooled]) > 0.85
    kept = (model.transduction_ == truth)[~strange]
    assert kept.mean() > 0.75
    assert (model.transduction_[strange] == -1).mean() > 0.6
