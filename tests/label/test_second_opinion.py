"""A logistic regression on the labelled rows has its say in the probabilities of `label`."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from sinkshot.label.second_opinion import combined


def pool(seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(40) % 2
    features = rng.gamma(1.0 + 3.0 * (truth[:, None] == np.arange(6) % 2))
    return features, truth, np.where(np.arange(40) < 6, truth, -1)


def test_probabilities_are_the_product_of_both_opinions():
    features, _, codes = pool()
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    own = LogisticRegression(C=100, max_iter=1000).fit(unit[:6], codes[:6]).predict_proba(unit[6:])
    one = np.random.default_rng(1).dirichlet([1, 1], 40)
    one[:6] = np.eye(2)[codes[:6]]
    found = combined(one, features, codes, "E")
    expected = one[6:] * own / (one[6:] * own).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[6:], expected, atol=1e-9)
    np.testing.assert_array_equal(found[:6], one[:6])


def test_a_method_without_an_opinion_leaves_it_to_the_labels():
    features, truth, codes = pool()
    found = combined(np.full((40, 2), 0.5), features, codes, "PEMcEWE")
    assert np.mean(found[6:].argmax(axis=1) == truth[6:]) > 0.9
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_one_class_or_no_pool_is_left_as_it_is():
    features, truth, codes = pool()
    single = np.ones((40, 1))
    assert combined(single, features, np.where(codes == -1, -1, 0), "E") is single
    both = np.eye(2)[truth]
    assert combined(both, features, truth, "E") is both
