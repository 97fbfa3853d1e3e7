"""PT+MAP and BPA+MAP: parity with the public code, the algorithm at other sizes, and what a prior does."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_methods as book
from published_code import KINDS, check, episodes, novel

from sinkshot import METHODS, InputError, Task, draw
from sinkshot.preprocess import apply, parse, run

SIZES = [("balanced", 10, 3, 10), ("dirichlet", 7, 1, 6), ("balanced", 3, 2, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["pt-map", "bpa-map"])
def test_scores_and_accuracy_are_those_of_the_public_code_one_episode_at_a_time(name, kind):
    check(name, kind, tolerance=1e-6)


@pytest.mark.parametrize("name", ["pt-map", "bpa-map"])
def test_single_precision_is_within_the_tolerance_of_the_public_code(name):
    check(name, "5w5s15q", tolerance=5e-3, dtype="float32")


def task_of(protocol, way, shot, query, episodes=2):
    drawn = draw(novel().labels, protocol=protocol, way=way, shot=shot, query=query, episodes=episodes)
    features = novel().features.astype(np.float64)
    return Task(features[drawn.support], drawn.support_labels, features[drawn.query], way)


@pytest.mark.parametrize(("protocol", "way", "shot", "query"), SIZES)
@pytest.mark.parametrize("prior", ["balanced", "uneven"])
def test_other_sizes_and_priors_follow_the_algorithm(protocol, way, shot, query, prior):
    task = apply(task_of(protocol, way, shot, query), "PEMaE")
    shares = np.full(way, 1 / way) if prior == "balanced" else np.arange(1, way + 1) / np.arange(1, way + 1).sum()
    ours = METHODS["pt-map"](task, prior=shares).probabilities
    for r in range(2):
        plan = book.pt_map(task.support[r], task.labels[r], task.query[r], shares * task.queries)
        np.testing.assert_allclose(ours[r], plan / plan.sum(axis=1, keepdims=True), atol=1e-9)


def test_bpa_features_are_the_transport_plan_of_each_row():
    task = apply(task_of("balanced", 5, 2, 6), "PEMaE")
    ours = apply(task, "B")
    for r in range(2):
        t = book.bpa(np.vstack([task.support[r], task.query[r]]))
        np.testing.assert_allclose(np.vstack([ours.support[r], ours.query[r]]), t, atol=1e-12)
    assert ours.query.shape == (2, 30, 40)


def test_bpa_may_stand_before_any_method():
    task, labels = episodes("5w1s15q", slice(0, 20))
    for name in ("ncm", "soft-kmeans", "bms"):
        plain, chained = (METHODS[name](apply(task, chain)).probabilities for chain in ("PEMnE", "PEMnEBEMnE"))
        accuracy = [(p.argmax(axis=-1) == labels).mean() for p in (plain, chained)]
        assert abs(accuracy[1] - accuracy[0]) > 0
        assert accuracy[1] > accuracy[0] - 0.02


def test_the_stop_of_bpa_is_each_episodes_own():
    x = run(np.random.default_rng(0).normal(size=(4, 12, 5)), parse("E"), supports=3).x
    together = run(x, parse("B"), supports=3).x
    apart = np.concatenate([run(x[r : r + 1], parse("B"), supports=3).x for r in range(4)])
    np.testing.assert_array_equal(together, apart)


@pytest.mark.slow
def test_knowing_the_true_shares_lifts_accuracy_on_unequal_classes():
    task, labels = episodes("dir1", slice(0, 40), dtype="float32")
    task = apply(task, "PEMaE")
    shares = (labels[..., None] == np.arange(5)).mean(axis=1)
    accuracy = {
        name: (METHODS["pt-map"](task, prior=prior).probabilities.argmax(axis=-1) == labels).mean()
        for name, prior in (("balanced", "balanced"), ("estimated", "estimated"), ("oracle", shares))
    }
    assert accuracy["balanced"] + 0.05 < accuracy["estimated"] < accuracy["oracle"] - 0.02


def test_a_method_of_known_class_sizes_does_not_run_without():
    with pytest.raises(InputError, match="this method needs class sizes"):
        METHODS["pt-map"](apply(task_of("balanced", 3, 1, 2), "PEMaE"), prior=None)
    with pytest.raises(InputError, match="evaluations, which know the labels"):
        METHODS["pt-map"](apply(task_of("balanced", 3, 1, 2), "PEMaE"), prior="oracle")
