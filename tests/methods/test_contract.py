"""What every registered method promises; a method is tested here by being registered."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from array_api_compat import array_namespace

from sinkshot import METHODS, FeatureBank, InputError, Task
from sinkshot.preprocess import apply
from sinkshot.task import GramTask

MEANS = {prefix: np.full(16, 0.1) for prefix in ("", "P", "E", "PE")}
NAMES = sorted(METHODS)


def base_bank(classes=10, rows=12, spread=0.3):
    """Base classes drawn like those of the tasks."""
    rng, labels = np.random.default_rng(5), np.repeat(np.arange(classes), rows)
    centres = rng.gamma(1.0, 1.0, size=(classes, 16))[labels]
    return FeatureBank.from_arrays(np.abs(centres + spread * rng.normal(size=centres.shape)), labels)


BASE = base_bank()

# Long trainings, and many samples, are cut short where the claim does not depend on their length.
QUICK = {
    **{name: {"steps": 30} for name in ("adaptive-manifold", "alpha-tim", "ostim", "protolp", "sgc", "tim-gd")},
    "distribution-calibration": {"samples": 60},
    "ilpc": {"epochs": 100},
}
# Where a claim cannot be had to the default beside its test, and why.
AGREE: dict[str, float] = {}  # NumPy against other libraries
SINGLE: dict[str, float] = {}  # float32 against float64
FOUND = {
    "openmax": 0.7,  # takes most from the nearest class, which classes as much alike as these can upset
    "paddle": 0.5,  # favours few classes on purpose, and 16 features are too few to outweigh that
}
BY_NUMBER = {"tafssl-pca-bkm": "its k-means starts at rows that are drawn by their number"}


def make_task(xp=np, *, episodes=3, way=4, shots=(2, 2, 2, 2), queries=9, dtype="float64", seed=0, spread=0.6):
    """Supports and queries around random class centres, non-negative."""
    rng = np.random.default_rng(seed)
    centres = rng.gamma(1.0, 1.0, size=(episodes, way, 16))
    labels = np.repeat(np.arange(way), shots)
    truth = rng.integers(0, way, size=(episodes, queries))
    support = np.abs(centres[:, labels] + spread * rng.normal(size=(episodes, len(labels), 16)))
    query = np.abs(
        np.take_along_axis(centres, truth[..., None], axis=1) + spread * rng.normal(size=(episodes, queries, 16))
    )
    kind = getattr(xp, dtype)
    labels = np.tile(labels, (episodes, 1)).astype(np.int32)
    return Task(xp.asarray(support, dtype=kind), xp.asarray(labels), xp.asarray(query, dtype=kind), way, BASE)


def answer(name, task, **hyper):
    method = METHODS[name]
    return method(apply(task, method.preprocess, MEANS), **{**QUICK.get(name, {}), **hyper})


def probabilities(name, task, **hyper):
    return np.asarray(answer(name, task, **hyper).probabilities)


@cache
def usual(name, xp, dtype):
    """The scores of the usual task; several tests compare with them, and nothing changes them."""
    return answer(name, make_task(xp, dtype=dtype))


def usual_probabilities(name, xp=np, dtype="float64"):
    return np.asarray(usual(name, xp, dtype).probabilities)


def permuted(task, *, support=slice(None), query=slice(None), rename=None):
    labels = task.labels if rename is None else np.asarray(rename, dtype=np.int32)[task.labels]
    return Task(task.support[:, support], labels[:, support], task.query[:, query], task.way, task.base)


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_have_their_shape_and_sum_to_one(name, xp):
    scores = usual(name, xp, "float64")
    assert array_namespace(scores.probabilities) == array_namespace(make_task(xp).query)
    p = np.asarray(scores.probabilities)
    assert p.shape == (3, 9, 4)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-6)
    if scores.unknown is not None:
        assert np.asarray(scores.unknown).shape == (3, 9)


@pytest.mark.parametrize("name", NAMES)
def test_renaming_classes_renames_the_answer(name):
    task, rename = make_task(), np.array([2, 0, 3, 1])
    renamed = probabilities(name, permuted(task, rename=rename))
    np.testing.assert_allclose(renamed[..., rename], usual_probabilities(name), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_reordering_rows_reorders_the_answer(name):
    if name in BY_NUMBER:
        pytest.skip(BY_NUMBER[name])
    task, order = make_task(), np.random.default_rng(1).permutation(9)
    supports = slice(None) if METHODS[name].ordered else [3, 1, 7, 0, 6, 2, 5, 4]
    moved = probabilities(name, permuted(task, query=order, support=supports))
    np.testing.assert_allclose(moved, usual_probabilities(name)[:, order], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_does_not_see_its_neighbours(name):
    task = make_task(episodes=5)
    alone = Task(task.support[2:3], task.labels[2:3], task.query[2:3], task.way, task.base)
    np.testing.assert_allclose(probabilities(name, task)[2:3], probabilities(name, alone), atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if "prior" in METHODS[name].hyper])
def test_each_episode_may_have_its_own_class_sizes(name):
    task = make_task(queries=12)
    shares = np.array([[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1], [0.5, 0.5, 0.0, 0.0]])
    together = probabilities(name, task, prior=shares)
    np.testing.assert_allclose(together.sum(axis=-1), 1.0, atol=1e-6)
    for r in range(3):
        alone = Task(task.support[r : r + 1], task.labels[r : r + 1], task.query[r : r + 1], task.way, task.base)
        np.testing.assert_allclose(together[r : r + 1], probabilities(name, alone, prior=list(shares[r])), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_array_library_gives_numpys_answer(name, xp):
    np.testing.assert_allclose(usual_probabilities(name, xp), usual_probabilities(name), atol=AGREE.get(name, 1e-9))


@pytest.mark.parametrize("name", NAMES)
def test_the_score_of_the_unknown_keeps_the_same_promises(name):
    torch = pytest.importorskip("torch")
    task, order = make_task(episodes=5), np.random.default_rng(1).permutation(9)

    def unknown(given):
        return np.asarray(answer(name, given).unknown)

    if answer(name, task).unknown is None:
        pytest.skip(f"{name} has no score of the unknown")
    whole = unknown(task)
    alone = Task(task.support[2:3], task.labels[2:3], task.query[2:3], task.way, task.base)
    np.testing.assert_allclose(unknown(alone), whole[2:3], atol=1e-12)
    np.testing.assert_allclose(unknown(permuted(task, query=order)), whole[:, order], atol=1e-5)
    np.testing.assert_allclose(unknown(make_task(torch, episodes=5)), whole, atol=1e-9)
    np.testing.assert_allclose(unknown(make_task(episodes=5, dtype="float32")), whole, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if METHODS[name].gram])
def test_inner_products_alone_give_the_same_answer(name, xp):
    task = apply(make_task(xp), METHODS[name].preprocess, MEANS)
    x = np.concatenate([np.asarray(task.support), np.asarray(task.query)], axis=1)
    inner = GramTask(xp.asarray(x @ x.swapaxes(1, 2)), task.labels, task.way)
    ours = np.asarray(METHODS[name](inner, **QUICK.get(name, {})).probabilities)
    np.testing.assert_allclose(ours, usual_probabilities(name, xp), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_float32_agrees_with_float64(name, xp):
    single, double = (usual_probabilities(name, xp, t) for t in ("float32", "float64"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=SINGLE.get(name, 2e-4))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "size",
    [
        {"queries": 1},
        {"shots": (1, 5, 2, 3)},
        {"way": 2, "shots": (1, 1)},
        {"queries": 60, "spread": 0.01},
        {"shots": (1, 1, 1, 1), "queries": 3},
    ],
    ids=str,
)
def test_odd_sizes_give_finite_probabilities(name, size):
    if min(size.get("shots", (2,))) < (least := METHODS[name].least_shots):
        with pytest.raises(InputError, match=f"{name} needs at least {least} supports per class"):
            answer(name, make_task(**size))
        return
    p = probabilities(name, make_task(**size))
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_of_one_class_gives_finite_probabilities(name):
    task = make_task(queries=12)
    same = Task(task.support, task.labels, np.repeat(task.support[:, :1], 12, axis=1), task.way, task.base)
    p = probabilities(name, same)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_well_separated_classes_are_found(name):
    task = make_task(episodes=6, shots=(5, 5, 5, 5), queries=40, spread=0.05, seed=3)
    rng = np.random.default_rng(3)
    rng.gamma(1.0, 1.0, size=(6, 4, 16))
    truth = rng.integers(0, 4, size=(6, 40))
    assert (probabilities(name, task).argmax(axis=-1) == truth).mean() > FOUND.get(name, 0.9)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_hyper_parameter_is_refused(name):
    with pytest.raises(InputError, match="hyper-parameter"):
        answer(name, make_task(), no_such_thing=1)


@pytest.mark.parametrize("name", NAMES)
def test_labels_out_of_range_and_classes_without_support_are_refused(name):
    task = make_task()
    for labels, words in ((task.labels + 1, "must be 0 to 3"), (task.labels * 0, "class 1 of the task has no support")):
        with pytest.raises(InputError, match=words):
            answer(name, Task(task.support, labels, task.query, task.way, task.base))


@pytest.mark.parametrize("name", [name for name in NAMES if METHODS[name].features])
def test_a_method_that_needs_base_features_asks_for_them(name):
    task = make_task()
    with pytest.raises(InputError, match="--base FILE"):
        answer(name, Task(task.support, task.labels, task.query, task.way))


@pytest.mark.parametrize("name", NAMES)
def test_hyper_parameters_of_another_kind_are_refused(name):
    for key, default in METHODS[name].hyper.items():
        for wrong in (float("nan"), "some words", *([] if isinstance(default, bool) else [True])):
            if isinstance(default, int | float) or key == "epochs":
                with pytest.raises(InputError, match=key):
                    answer(name, make_task(), **{key: wrong})


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_where_it_comes_from(name):
    method = METHODS[name]
    assert method.reference
    assert method.summary.endswith(".")
