"""Priors: what is accepted, and how close the estimate is to the truth."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import episodes

from sinkshot import METHODS, InputError
from sinkshot.methods.priors import estimate, proportions
from sinkshot.preprocess import apply
from sinkshot.task import GramTask


@pytest.fixture(scope="module")
def unequal():
    """Sixty Dirichlet episodes after PEMnE, and their true class shares."""
    task, labels = episodes("dir1", slice(0, 60), dtype="float32")
    return apply(task, "PEMnE"), (labels[..., None] == np.arange(5)).mean(axis=1), labels


def test_the_estimate_is_nearer_to_unequal_shares_than_balance_is(unequal):
    task, truth, _ = unequal
    off = np.abs(estimate(task) - truth).sum(axis=-1).mean()
    assert off < 0.7 * np.abs(0.2 - truth).sum(axis=-1).mean()


def test_the_estimate_sums_to_one_and_inner_products_are_enough(unequal, xp):
    task, _, _ = unequal
    x = np.concatenate([task.support, task.query], axis=1)[:4].astype(np.float64)
    gram = GramTask(xp.asarray(x @ x.swapaxes(1, 2)), xp.asarray(task.labels[:4]), 5)
    found = estimate(gram)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0)
    np.testing.assert_allclose(found, estimate(task)[:4], atol=1e-4)


def test_balanced_queries_are_found_nearly_balanced():
    task, _ = episodes("5w5s15q", slice(0, 40), dtype="float32")
    assert np.abs(estimate(apply(task, "PEMnE")) - 0.2).sum(axis=-1).mean() < 0.2


@pytest.mark.slow
def test_bms_gains_from_the_estimate_and_more_from_the_truth(unequal):
    task, truth, labels = unequal
    accuracy = {}
    for name, prior in (("balanced", "balanced"), ("none", None), ("estimated", "estimated"), ("oracle", truth)):
        accuracy[name] = (METHODS["bms"](task, prior=prior).probabilities.argmax(axis=-1) == labels).mean()
    assert accuracy["balanced"] < accuracy["none"] < accuracy["estimated"] < accuracy["oracle"]


@pytest.mark.parametrize(
    ("prior", "words"), [("equal", "'balanced', 'estimated'"), ("oracle", "evaluations"), ([1, 2], "sum to one")]
)
def test_what_is_no_prior_is_refused(prior, words):
    with pytest.raises(InputError, match=words):
        proportions(prior, 2)
