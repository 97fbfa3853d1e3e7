"""The GPU engine gives the reference's answers and draws, at tiny sizes where Triton interprets it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_files import GOLDEN
from triton_runs import KERNELS_RUN, on_a_gpu, on_device, runs

from sinkshot import Recipe, Task, draw
from sinkshot.calibration import judge
from sinkshot.episodes import _group
from sinkshot.errors import DataWarning
from sinkshot.methods.bms import bms, decide
from sinkshot.preprocess import apply, parse, run

if KERNELS_RUN:
    from sinkshot.kernels import bms_triton

CASES = json.loads((GOLDEN / "cases.json").read_text())
NUMBERS = {"lam": 8.5, "steps": 3, "passes": 4, "lr": 0.1, "momentum": 0.8, "kappa": 1.0}
UNEVEN = (0.4, 0.3, 0.2, 0.1)


def unequal_episodes(labels, shots, queries, episodes):
    """Supports and queries of the first classes, class c with shots[c] supports."""
    rng = np.random.default_rng(0)
    support, query = [], []
    for _ in range(episodes):
        rows = [rng.permutation(np.flatnonzero(labels == c)) for c in range(len(shots))]
        support.append(np.concatenate([r[:n] for r, n in zip(rows, shots, strict=True)]))
        query.append(rng.permutation(np.concatenate([r[n:] for r, n in zip(rows, shots, strict=True)]))[:queries])
    return (
        np.int32(support),
        np.tile(np.repeat(np.arange(len(shots), dtype=np.int32), shots), (episodes, 1)),
        np.int32(query),
    )


def both_answers(rows, episodes, way, chain, prior=None, variant="published", epochs=2, **more):
    """Probabilities of the engine, and of the reference in float64."""
    support, labels, query = episodes
    hyper = {**NUMBERS, "prior": prior, "variant": variant, "epochs": epochs, **more}
    ours = bms_triton.bms_episodes(
        on_device(rows),
        *(on_device(a) for a in episodes),
        way=way,
        centre="Mn" in chain,
        normalise="E" in chain,
        settings=decide(way, support.shape[1], **hyper),
    )
    x = rows.astype(np.float64)
    return ours.cpu().numpy(), bms(apply(Task(x[support], labels, x[query], way), chain), **hyper).probabilities


@runs
@pytest.mark.parametrize("variant", ["published", "letter", "robust"])
@pytest.mark.parametrize("prior", [None, "balanced", UNEVEN], ids=str)
def test_answers_are_those_of_the_reference(blobs, variant, prior):
    rows = run(blobs.features, parse("PE")).x
    episodes = unequal_episodes(blobs.labels, (1, 3, 2, 1), 17, episodes=2)
    ours, reference = both_answers(rows, episodes, 4, "MnE", prior, variant)
    np.testing.assert_allclose(ours, reference, atol=2e-6)
    np.testing.assert_allclose(ours.sum(axis=-1), 1, atol=1e-6)


@runs
@pytest.mark.parametrize(
    ("shots", "queries", "chain", "more"),
    [
        ((1,) * 5, 75, "MnE", {"epochs": 0}),  # 80 rows
        ((2,) * 8, 40, "E", {"epochs": 1, "kappa": 90.0}),  # logits that would leave float32
        ((1, 2, 2), 9, "", {"epochs": 2}),  # rows of any length
    ],
    ids=["80 rows", "large kappa", "raw"],
)
def test_every_size_and_chain_gives_the_answers_of_the_reference(blobs, shots, queries, chain, more):
    rows = run(blobs.features, parse("PE")).x
    episodes = unequal_episodes(blobs.labels, shots, queries, episodes=1)
    ours, reference = both_answers(rows * np.float32(1 if chain else 3), episodes, len(shots), chain, **more)
    np.testing.assert_allclose(ours, reference, atol=1e-5)


@runs
def test_more_than_eight_classes():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(11), 9)
    rows = (rng.normal(size=(11, 12))[labels] + rng.normal(size=(99, 12))).astype(np.float32)
    ours, reference = both_answers(rows, unequal_episodes(labels, (1,) * 10 + (2,), 30, 1), 11, "MnE")
    np.testing.assert_allclose(ours, reference, atol=1e-5)


@runs
def test_each_episode_may_have_its_own_prior(blobs):
    episodes = unequal_episodes(blobs.labels, (1, 1, 1, 1), 12, episodes=2)
    ours, reference = both_answers(blobs.features, episodes, 4, "MnE", np.array([UNEVEN, UNEVEN[::-1]]), epochs=0)
    np.testing.assert_allclose(ours, reference, atol=2e-6)


@runs
def test_parts_of_bounded_memory_give_the_same_answers(blobs, monkeypatch):
    episodes = unequal_episodes(blobs.labels, (1, 2), 6, episodes=3)
    whole, _ = both_answers(blobs.features, episodes, 2, "MnE", epochs=0)
    monkeypatch.setattr(bms_triton, "_GRAM_BYTES", 1)
    parts, _ = both_answers(blobs.features, episodes, 2, "MnE", epochs=0)
    np.testing.assert_array_equal(parts, whole)


@runs
def test_a_large_common_offset_costs_no_digits(blobs):
    episodes = unequal_episodes(blobs.labels, (1, 2), 6, episodes=1)
    ours, reference = both_answers(blobs.features + np.float32(64), episodes, 2, "MnE", epochs=0)
    np.testing.assert_allclose(ours, reference, atol=2e-5)


@runs
def test_zero_rows_stay_zero_and_harm_nobody(blobs):
    rows = blobs.features.copy()
    support, labels, query = unequal_episodes(blobs.labels, (1, 2, 1), 9, episodes=1)
    rows[query[0, 0]] = rows[support[0, 0]] = 0
    with pytest.warns(DataWarning, match="2 rows are zero"):  # said by the reference
        ours, reference = both_answers(rows, (support, labels, query), 3, "E", epochs=2)
    np.testing.assert_allclose(ours, reference, atol=1e-5)


@runs
@pytest.mark.parametrize(
    ("centre", "normalise", "chain"), [(True, True, "MnE"), (True, False, "Mn"), (False, False, "")]
)
def test_gram_matrices_are_those_of_the_prepared_rows(blobs, centre, normalise, chain):
    both = np.random.default_rng(0).permutation(320)[:40].reshape(2, 20).astype(np.int32)
    ours = bms_triton.gram_matrices(on_device(blobs.features), on_device(both), centre=centre, normalise=normalise)
    x = run(blobs.features.astype(np.float64)[both], parse(chain)).x
    np.testing.assert_allclose(ours.cpu(), x @ x.swapaxes(1, 2), rtol=2e-6, atol=2e-6 * (1 if normalise else 100))


@runs
@pytest.mark.parametrize(
    ("recipe", "first", "count"),
    [
        (Recipe(way=5, shot=2, query=3, episodes=4, seed=3), 0, 4),
        (Recipe(way=3, shot=1, query=7, episodes=2**34, seed=2**63 - 1), 2**33, 3),
        (Recipe(way=8, shot=1, query=9, episodes=3, seed=1), 1, 2),  # every class, and a whole class
    ],
    ids=["small", "far out", "a whole class"],
)
def test_draws_are_bit_for_bit_those_of_the_cpu(recipe, first, count):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(8), (10, 16, 17, 18, 19, 20, 33, 40)))
    classes = _group(labels)
    tables = (on_device(a.astype(np.int32)) for a in (classes.rows, classes.start, classes.size))
    ours = bms_triton.draw_balanced(*tables, recipe, first, count)
    sizes = {"way": recipe.way, "shot": recipe.shot, "query": recipe.query, "seed": recipe.seed}
    theirs = draw(labels, episodes=count, first=first, **sizes)
    for name in ("support", "support_labels", "query", "query_labels"):
        np.testing.assert_array_equal(getattr(ours, name).cpu(), getattr(theirs, name), err_msg=name)


@runs
def test_accuracy_counts_queries_of_known_classes_alone():
    probabilities = on_device(np.eye(3, dtype=np.float32)[[[0, 1, 2, 0], [2, 2, 2, 2]]])
    labels = on_device(np.int32([[0, 1, 0, -1], [2, 0, 0, 0]]))
    np.testing.assert_allclose(bms_triton.accuracy(probabilities, labels).cpu(), [2 / 3, 1 / 4])


@runs
@pytest.mark.parametrize(("episodes", "queries", "way", "sharp"), [(6, 75, 5, 0.02), (3, 13, 2, 1.0), (2, 40, 16, 0.3)])
def test_metrics_are_those_of_the_reference(episodes, queries, way, sharp):
    from sinkshot.kernels import metrics_triton

    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(way, sharp), (episodes, queries)).astype(np.float32)
    labels = rng.integers(-1, way, (episodes, queries)).astype(np.int32)
    plain = judge(probabilities, labels)
    ours = metrics_triton.judge(on_device(probabilities), on_device(labels))
    assert ours.confidence == plain.confidence
    np.testing.assert_array_equal(ours.accuracy, plain.accuracy)
    for name in ("macro_accuracy", "brier", "nll"):
        np.testing.assert_allclose(getattr(ours, name), getattr(plain, name), rtol=1e-12)
    one_row = on_device(labels[:1]).expand(episodes, -1)  # as balanced draws hand them out
    same = judge(probabilities, np.broadcast_to(labels[:1], labels.shape))
    assert metrics_triton.judge(on_device(probabilities), one_row).confidence == same.confidence
    probabilities[1, 3, 1] = np.nan
    assert np.isnan(metrics_triton.judge(on_device(probabilities), on_device(labels)).brier[1])


@runs
def test_sizes_that_fit_are_those_the_registers_hold():
    assert bms_triton.fits(5, 25, 75, 640)
    assert bms_triton.fits(16, 16, 112, 1)
    assert not bms_triton.fits(17, 17, 75, 640)
    assert not bms_triton.fits(5, 25, 104, 640)


@on_a_gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_answers_are_those_of_the_published_code(case, exact):
    golden = np.load(GOLDEN / f"{case['case']}.npz")
    episodes = draw(exact.labels, protocol="official", shot=case["shot"], episodes=1000)
    prior = "balanced" if case["method"] == "bms-star" else None
    hyper = {**NUMBERS, "steps": 20, "passes": 50, "prior": prior, "variant": "published", "epochs": case["epochs"]}
    probabilities = bms_triton.bms_episodes(
        on_device(run(exact.features, parse("PE")).x),
        *(on_device(a) for a in (episodes.support, episodes.support_labels, episodes.query)),
        way=case["way"],
        centre=True,
        normalise=True,
        settings=decide(case["way"], episodes.support.shape[1], **hyper),
    )
    accuracy = bms_triton.accuracy(probabilities, on_device(episodes.query_labels)).cpu().numpy()
    assert abs(accuracy.mean() - case["accuracy"]) < 0.0002
    assert np.isclose(accuracy, golden["accuracy"], atol=1e-4).mean() >= 0.99
    published = golden["query_scores"] / golden["query_scores"].sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(probabilities[: len(published)].cpu(), published, atol=1e-3)
