"""A logistic regression on the labelled rows has its say in the answers of `label`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from sinkshot.label.classifier import classify
from sinkshot.label.items import OUTSIDER, Items
from sinkshot.label.second_opinion import combined, decision_values, ranked_again


def pool(ways=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(40) % ways
    features = rng.gamma(1.0 + 3.0 * (truth[:, None] == np.arange(6) % ways))
    return features, truth, np.where(np.arange(40) < 6, truth, -1)


def softmax(values):
    return np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ways", [2, 3])
def test_decision_values_are_those_of_scikit_learn(ways):
    features, _, codes = pool(ways)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    own = LogisticRegression(C=100, max_iter=1000).fit(unit[:6], codes[:6]).predict_proba(unit)
    np.testing.assert_allclose(softmax(decision_values(features, codes)), own, atol=1e-6)


def test_probabilities_are_the_product_of_both_opinions_less_the_classes_sizes():
    features, _, codes = pool()
    decisions = decision_values(features, codes)
    one = np.random.default_rng(1).dirichlet([4, 1], 40)
    one[:6] = np.eye(2)[codes[:6]]
    found = combined(one, decisions, features, codes, "E")  # without W, one regression
    size = one[6:].mean(axis=0) + 0.5 / 34
    expected = one[6:] / size**0.7 * softmax(decisions[6:])
    np.testing.assert_allclose(found[6:], expected / expected.sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(found[:6], one[:6])


def test_where_rows_are_whitened_the_regression_on_them_counts_as_much():
    features, _, codes = pool()
    decisions = decision_values(features, codes)
    even = np.full((40, 2), 0.5)
    rows = np.random.default_rng(2).normal(size=(40, 6))
    found = combined(even, decisions, features, codes, "PEMcEWE", rows)
    expected = np.sqrt(softmax(decisions) * softmax(decision_values(rows, codes)))[6:]
    np.testing.assert_allclose(found[6:], expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(("method", "differs"), [("sinkshot", True), ("bms-open", False)])
def test_signed_features_get_a_second_opinion_on_classes_too(method, differs):
    features, truth, _ = pool(3)
    x = features - features.mean(axis=0)
    labels = tuple(None if code == -1 else f"class {code}" for code in np.where(np.arange(40) < 12, truth, -1))
    items = Items("embeddings", tuple(map(str, range(40))), labels, np.zeros(40, dtype=bool), features=x)
    answers = classify(items, x, method=method, next_count=0)
    assert answers.model is not None
    assert np.allclose(answers.probabilities, answers.model.label_distributions_) != differs


def test_a_method_without_an_opinion_leaves_it_to_the_labels():
    features, truth, codes = pool()
    found = combined(np.full((40, 2), 0.5), decision_values(features, codes), features, codes, "PEMcEWE")
    assert np.mean(found[6:].argmax(axis=1) == truth[6:]) > 0.9
    np.testing.assert_allclose(found.sum(axis=1), 1)


def strangers():
    """Rows of two classes of unequal size and of a third, unlabelled kind."""
    rng = np.random.default_rng(3)
    truth = np.array([0] * 5 + [1] * 5 + [0] * 40 + [1] * 8 + [-1] * 12)
    features = rng.gamma(1.0 + 4.0 * (truth[:, None] % 3 == np.arange(9) % 3))
    return features, truth, np.where(np.arange(70) < 10, truth, -1)


def test_strangers_are_ranked_again_and_as_many_are_rejected():
    features, truth, codes = strangers()
    belongs = np.where(truth[:, None] == np.arange(2), 0.9, 0.1)
    belongs[truth < 0] = 0.5
    unknown = np.where(codes >= 0, 0.0, np.random.default_rng(0).random(70))  # knows nothing
    found = ranked_again(unknown, belongs, decision_values(features, codes), features, codes)
    np.testing.assert_array_equal(np.sort(found[10:]), np.sort(unknown[10:]))
    assert not found[:10].any()
    assert roc_auc_score(truth[10:] < 0, found[10:]) > 0.95


def test_twins_stay_equal_and_the_order_of_rows_does_not_matter():
    features, truth, codes = strangers()
    features[20:30] = features[20]
    belongs = np.where(truth[:, None] == np.arange(2), 0.9, 0.1)
    unknown = np.where(codes >= 0, 0.0, np.random.default_rng(0).random(70))
    unknown[20:30] = unknown[20]
    found = ranked_again(unknown, belongs, decision_values(features, codes), features, codes)
    assert np.ptp(found[20:30]) == 0
    assert found[10:].mean() == pytest.approx(unknown[10:].mean())
    other = np.random.default_rng(1).permutation(70)
    again = ranked_again(
        unknown[other], belongs[other], decision_values(features[other], codes[other]), features[other], codes[other]
    )
    np.testing.assert_allclose(again, found[other], atol=1e-6)


def test_known_outsiders_keep_the_rank_that_the_classifier_learnt_from_them():
    features, truth, codes = strangers()
    labels = tuple(None if code == -1 else f"class {code}" for code in codes)
    known = (*labels[:-1], OUTSIDER)
    for given, again in ((labels, True), (known, False)):
        items = Items("embeddings", tuple(map(str, truth.tolist())), given, np.zeros(70, dtype=bool), features=features)
        answers = classify(items, features, next_count=0)
        assert answers.model is not None
        assert np.array_equal(answers.unknown, answers.model.unknown_) != again
        np.testing.assert_allclose(np.sort(answers.unknown), np.sort(answers.model.unknown_))
