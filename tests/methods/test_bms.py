"""BMS: parity with the published code, and how its variants differ."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_files import GOLDEN
from test_contract import make_task

from sinkshot import InputError, Recipe, Task, draw, evaluate
from sinkshot.methods.bms import bms, min_size_sinkhorn, sinkhorn
from sinkshot.preprocess import apply

CASES = json.loads((GOLDEN / "cases.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_accuracy_is_that_of_the_published_code_episode_by_episode(case, exact, count):
    golden = np.load(GOLDEN / f"{case['case']}.npz")["accuracy"][:count]
    size = {key: case[key] for key in ("way", "shot", "query")}
    result = evaluate(
        exact,
        Recipe("official", **size, episodes=count),
        method=case["method"],
        preprocess=case["preprocess"],
        engine="numpy",
        lam=case["lam"],
        epochs=case["epochs"],
    )
    assert abs(result.accuracy - golden.mean()) < 0.0002
    assert np.isclose(result.per_episode, golden, atol=1e-4).mean() >= 0.99
    if count == case["episodes"]:
        assert abs(result.accuracy - case["accuracy"]) < 0.0002
        assert abs(result.ci95 - case["ci95"]) < 0.0002


@pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_scores_are_those_of_the_published_code(case, exact, xp):
    published = np.load(GOLDEN / f"{case['case']}.npz")["query_scores"]
    episodes = draw(exact.labels, protocol="official", shot=case["shot"], episodes=16)
    arrays = (exact.features[episodes.support], episodes.support_labels, exact.features[episodes.query])
    task = apply(Task(*(xp.asarray(a) for a in arrays), way=case["way"]), "PEMnE")
    prior = "balanced" if case["method"] == "bms-star" else None
    ours = bms(task, prior=prior).probabilities  # epochs as the paper: "auto"
    np.testing.assert_allclose(np.asarray(ours), published / published.sum(axis=-1, keepdims=True), atol=1e-3)


def float64_by_the_book(x, labels, way, *, lam, epochs, steps, passes, lr, momentum, prior):
    """One episode as in the published code: weights in feature space, P scaled in place, no Gram matrix."""
    supports, queries = len(labels), len(x) - len(labels)
    one_hot = np.eye(way)[labels]
    w = np.stack([x[:supports][labels == k].mean(axis=0) for k in range(way)])
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    least = one_hot.sum(axis=0).min()
    for _ in range(steps):
        logits = lam * x[supports:] @ w.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        for _ in range(passes):
            if prior is None:
                p /= p.sum(axis=1, keepdims=True)
                low = p.sum(axis=0) < least
                p[:, low] *= least / p.sum(axis=0)[low]
            else:
                p *= queries * np.asarray(prior) / p.sum(axis=0)
                p /= p.sum(axis=1, keepdims=True)
        every = np.vstack([one_hot, p])
        least = np.bincount(every.argmax(axis=1), minlength=way).min()
        w = every.T @ x
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        speed, kappa, kappa_speed = np.zeros_like(w), 1.0, 0.0
        for _ in range(epochs):
            cosines = x @ w.T
            guess = np.exp(kappa * cosines)
            guess /= guess.sum(axis=1, keepdims=True)
            error = (guess * every.sum(axis=1, keepdims=True) - every) / len(x)
            gradient = kappa * error.T @ x
            gradient -= (gradient * w).sum(axis=1, keepdims=True) * w
            speed, kappa_speed = momentum * speed + gradient, momentum * kappa_speed + (error * cosines).sum()
            w, kappa = w - lr * speed, kappa - lr * kappa_speed
            w /= np.linalg.norm(w, axis=1, keepdims=True)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("way", "shots", "queries", "epochs", "prior"),
    [
        (3, (2, 2, 2), 7, 5, None),
        (2, (1, 1), 30, 0, None),
        (6, (1, 4, 2, 3, 1, 2), 25, 13, None),
        (4, (3, 3, 3, 3), 20, 40, [0.4, 0.3, 0.2, 0.1]),
        (10, (5,) * 10, 30, 3, "balanced"),
    ],
)
def test_the_gram_form_is_the_algorithm_in_feature_space(way, shots, queries, epochs, prior):
    task = apply(make_task(way=way, shots=shots, queries=queries, seed=way), "PEMnE")
    wide = Task(
        *(np.pad(a, ((0, 0), (0, 0), (0, 60))) for a in (task.support,)),
        task.labels,
        np.pad(task.query, ((0, 0), (0, 0), (0, 60))),
        way,
    )
    numbers = {"lam": 8.5, "steps": 20, "passes": 50, "lr": 0.1, "momentum": 0.8}
    shares = np.full(way, 1 / way) if prior == "balanced" else prior
    expected = [
        float64_by_the_book(np.vstack(xs), labels, way, epochs=epochs, prior=shares, **numbers)
        for *xs, labels in zip(task.support, task.query, task.labels, strict=True)
    ]
    for form in (task, wide):  # more rows than columns, and fewer: without and with a Gram matrix
        ours = bms(form, epochs=epochs, prior=prior, **numbers).probabilities
        np.testing.assert_allclose(ours, expected, atol=1e-9)


def test_min_size_sinkhorn_gives_every_class_its_minimum_and_every_row_one():
    kernel = np.random.default_rng(0).gamma(0.3, size=(4, 5, 60))
    p = min_size_sinkhorn(kernel, np.full((4, 1, 1), 9.0), passes=3000)
    assert (p.sum(axis=-1) >= 9 - 1e-6).all()
    np.testing.assert_allclose(p.sum(axis=-2), 1.0, atol=1e-6)


def test_leaving_at_the_fixed_point_changes_no_bit():
    kernel = np.random.default_rng(1).gamma(1.0, size=(4, 5, 60)).astype(np.float32)
    least = np.full((4, 1, 1), 8.0, dtype=np.float32)
    np.testing.assert_array_equal(min_size_sinkhorn(kernel, least, 400), min_size_sinkhorn(kernel, least, 4000))


def test_sinkhorn_with_a_prior_gives_every_class_its_share():
    kernel, target = np.random.default_rng(2).gamma(1.0, size=(1, 3, 40)), np.array([[[25.0], [10.0], [5.0]]])
    p = sinkhorn(kernel, target, passes=500)
    np.testing.assert_allclose(p.sum(axis=-1), target[..., 0], atol=1e-6)
    np.testing.assert_allclose(p.sum(axis=-2), 1.0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "one_shot", "five_shot"),
    [("published", 87.91, 92.00), ("letter", 87.35, 90.27), ("robust", 87.52, 90.64)],
)
def test_variants_score_what_the_design_measured(variant, one_shot, five_shot, exact):
    for shot, expected in ((1, one_shot), (5, five_shot)):
        result = evaluate(exact, Recipe("official", shot=shot, episodes=1000), method="bms", variant=variant)
        assert abs(100 * result.accuracy - expected) < 0.02


@pytest.mark.slow
def test_robust_holds_where_published_falls_under_imbalance(bundled):
    recipe = Recipe("dirichlet", shot=5, episodes=200)
    robust, published = (
        evaluate(bundled, recipe, method="bms", variant=v, engine="numba").accuracy for v in ("robust", "published")
    )
    assert robust > published + 0.1


def test_epochs_follow_the_paper_unless_given():
    few, many = make_task(shots=(1, 1, 1, 1)), make_task(shots=(2, 2, 2, 2))
    for task, prior, epochs in ((few, None, 0), (few, "balanced", 20), (many, None, 40), (many, "balanced", 40)):
        auto, given = (bms(task, prior=prior, epochs=e).probabilities for e in ("auto", epochs))
        np.testing.assert_array_equal(auto, given)


def test_raw_features_of_any_length_give_finite_answers():
    task = make_task(spread=0.5, dtype="float32")
    long = Task(task.support * 300, task.labels, task.query * 300, task.way)
    for variant in ("published", "letter", "robust"):
        for prior in (None, "balanced", [1.0, 0.0, 0.0, 0.0]):
            assert np.isfinite(bms(long, variant=variant, prior=prior).probabilities).all()


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"variant": "robst"}, "did you mean 'robust'"),
        ({"prior": [0.5, 0.5]}, "4 proportions"),
        ({"prior": [0.5, 0.5, 0.5, 0.5]}, "sum to one"),
        ({"prior": "uniform"}, "'balanced'"),
        ({"lam": float("nan")}, "lam must be a number"),
        ({"lam": "abc"}, "lam must be a number"),
        ({"passes": 2.5}, "passes must be a whole number"),
        ({"prior": [0.5, "a", 0.3, 0.2]}, "one proportion per class"),
        ({"variant": 3}, "unknown variant"),
        ({"epochs": -1}, "whole number of at least 0"),
        ({"epochs": "many"}, "whole number of at least 0"),
        ({"lam": 0.0}, "lam must be a number above 0"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_with_a_sentence(hyper, words):
    with pytest.raises(InputError, match=words):
        bms(make_task(), **hyper)
