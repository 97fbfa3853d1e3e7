"""The CPU engine gives the reference's answers, whatever the size, threads and chunks."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from golden_files import GOLDEN
from threadpoolctl import threadpool_info

from sinkshot import FeatureBank, InputError, Recipe, Task, draw, evaluate
from sinkshot.kernels import gram_numba, jit
from sinkshot.kernels.bms_numba import bms_episodes
from sinkshot.methods import bms
from sinkshot.preprocess import apply, parse, run

CASES = json.loads((GOLDEN / "cases.json").read_text())


@pytest.fixture(scope="module")
def unit_rows(exact):
    return gram_numba.padded(run(exact.features, parse("PE")).x)


def settings(way, supports, epochs="auto", prior=None, variant="published", **more):
    numbers = {"lam": 8.5, "steps": 20, "passes": 50, "lr": 0.1, "momentum": 0.8, "kappa": 1.0, **more}
    return bms.decide(way, supports, epochs=epochs, prior=prior, variant=variant, **numbers)


def fused(rows, episodes, way, numbers, threads=None, centre=True, normalise=True):
    arrays = (rows, episodes.support, episodes.support_labels, episodes.query)
    return bms_episodes(*arrays, way=way, centre=centre, normalise=normalise, settings=numbers, threads=threads)


def reference(bank, episodes, way, numbers, chain="PEMnE"):
    """The readable code in float64."""
    x = bank.features.astype(np.float64)
    task = apply(Task(x[episodes.support], episodes.support_labels, x[episodes.query], way), chain)
    return bms.solve(task, numbers).assignment.swapaxes(1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_golden_cases_hold(case, exact):
    golden = np.load(GOLDEN / f"{case['case']}.npz")
    recipe = Recipe("official", case["way"], case["shot"], case["query"], case["episodes"])
    result = evaluate(exact, recipe, method=case["method"], engine="numba")
    assert result.engine == "numba"
    assert abs(result.accuracy - case["accuracy"]) < 0.0002
    assert np.isclose(result.per_episode, golden["accuracy"], atol=1e-4).mean() >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("shot", "prior"), [(1, None), (1, "balanced"), (5, None)])
def test_labels_over_many_episodes_are_those_of_the_float64_reference(exact, unit_rows, shot, prior, count):
    episodes = draw(exact.labels, shot=shot, episodes=count)
    numbers = settings(5, 5 * shot, prior=prior)
    ours = fused(unit_rows, episodes, 5, numbers)
    same = [
        (ours[i : i + 50].argmax(-1) == reference(exact, episodes[i : i + 50], 5, numbers).argmax(-1)).mean()
        for i in range(0, count, 50)
    ]
    assert np.mean(same) >= 0.999


@pytest.mark.parametrize("variant", ["published", "letter", "robust"])
@pytest.mark.parametrize(
    ("way", "shot", "query", "prior"),
    [
        (2, 1, 1, None),
        (3, 2, 7, "balanced"),
        (5, 1, 30, [0.5, 0.2, 0.1, 0.1, 0.1]),
        (9, 3, 4, None),
        (20, 5, 6, None),
    ],
)
def test_sizes_and_variants_give_the_reference_scores(exact, unit_rows, variant, way, shot, query, prior):
    episodes = draw(exact.labels, way=way, shot=shot, query=query, episodes=6, seed=way)
    numbers = settings(way, way * shot, epochs=7, prior=prior, variant=variant)
    np.testing.assert_allclose(
        fused(unit_rows, episodes, way, numbers), reference(exact, episodes, way, numbers), atol=2e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["", "E", "PEMn", "PEMbE", "PsEMnE"])
def test_chains_that_a_gram_matrix_can_follow_give_the_reference_accuracy(bundled, chain):
    recipe = Recipe(shot=5, episodes=60, seed=2)
    hyper = {"method": "bms", "preprocess": chain, "epochs": 40 if chain.endswith("E") else 0}
    a, b = (evaluate(bundled, recipe, engine=e, **hyper) for e in ("numba", "numpy"))
    assert np.abs(a.per_episode - b.per_episode).mean() < 0.002


def test_a_width_that_is_no_multiple_of_eight_is_as_good(exact):
    narrow = FeatureBank(exact.features[:, :613], exact.labels, exact.class_names)
    recipe = Recipe(shot=1, episodes=100)
    a, b = (evaluate(narrow, recipe, method="bms", engine=e) for e in ("numba", "numpy"))
    np.testing.assert_allclose(a.per_episode, b.per_episode, atol=1e-9)


def test_answers_do_not_depend_on_threads_or_batches_or_the_run(exact, unit_rows):
    episodes = draw(exact.labels, shot=5, episodes=70)
    numbers = settings(5, 25, epochs=4)
    whole = fused(unit_rows, episodes, 5, numbers, threads=2)
    np.testing.assert_array_equal(whole, fused(unit_rows, episodes, 5, numbers, threads=1))
    np.testing.assert_array_equal(whole, fused(unit_rows, episodes, 5, numbers, threads=3))
    parts = [fused(unit_rows, episodes[i : i + 9], 5, numbers) for i in range(0, 70, 9)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize(("centre", "normalise"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("rows", [2, 7, 80, 101])
def test_gram_matrices_are_inner_products_after_the_chain(exact, centre, normalise, rows):
    chosen = np.random.default_rng(rows).integers(0, 12_000, size=(5, rows)).astype(np.int32)
    x = exact.features.astype(np.float64)[chosen]
    x = run(x, parse("Mn" * centre + "E" * normalise)).x
    ours = gram_numba.gram_matrices(exact.features, chosen, centre=centre, normalise=normalise)
    np.testing.assert_allclose(ours, x @ x.swapaxes(1, 2), atol=2e-5)


@pytest.mark.parametrize("name", ["ncm", "kmeans", "soft-kmeans"])
@pytest.mark.parametrize("protocol", ["balanced", "open-set"])
def test_other_methods_profit_from_gram_matrices_and_answer_alike(bundled, name, protocol):
    recipe = Recipe(protocol, shot=5, episodes=150)
    a, b = (evaluate(bundled, recipe, method=name, preprocess="PEMnE", engine=e) for e in ("numba", "numpy"))
    assert np.isclose(a.per_episode, b.per_episode).mean() > 0.99
    if protocol == "open-set":
        np.testing.assert_allclose(a.auroc_per_episode, b.auroc_per_episode, atol=1e-3)


def test_fewer_rows_than_minimum_sizes_give_the_reference_scores(exact, unit_rows):
    episodes = draw(exact.labels, way=20, shot=20, query=1, episodes=3)
    numbers = settings(20, 400, epochs=2)
    ours, theirs = fused(unit_rows, episodes, 20, numbers), reference(exact, episodes, 20, numbers)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.slow
def test_long_rows_with_logistic_regression_are_left_to_the_readable_code(exact):
    long = FeatureBank(exact.features * 100, exact.labels, exact.class_names)
    recipe = Recipe(shot=5, episodes=600)
    assert evaluate(long, recipe, method="bms", preprocess="", epochs=3).engine == "numpy"
    assert evaluate(long, recipe, method="bms", preprocess="", epochs=0).engine == "numba"
    with pytest.raises(InputError, match="numba cannot do bms"):
        evaluate(long, recipe, method="bms", preprocess="", epochs=3, engine="numba")


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_features_out_of_the_range_of_float32_products_end_in_a_sentence(exact, scale):
    far = FeatureBank(exact.features * np.float32(scale), exact.labels, exact.class_names)
    with pytest.raises(InputError, match="too large or too small"):
        evaluate(far, Recipe(episodes=20), method="bms", preprocess="MnE", engine="numba")


@pytest.mark.slow
def test_evaluations_in_several_threads_agree_and_leave_blas_as_it_was(bundled):
    before = [pool["num_threads"] for pool in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(evaluate, bundled, Recipe(episodes=40), method=m) for m in ("bms", "ncm") * 3]
        results = [job.result() for job in jobs]
    assert [pool["num_threads"] for pool in threadpool_info()] == before
    for one in results[2:]:
        same = results[0] if one.method == "bms" else results[1]
        np.testing.assert_array_equal(one.per_episode, same.per_episode)


@pytest.mark.slow
def test_auto_takes_numpy_for_small_jobs_and_numba_for_large_ones(bundled):
    assert evaluate(bundled, Recipe(episodes=20), method="bms").engine == "numpy"
    assert evaluate(bundled, Recipe(episodes=600), method="bms").engine == "numba"
    assert evaluate(bundled, Recipe(episodes=600), method="logreg").engine == "numpy"
    assert evaluate(bundled, Recipe(episodes=600), method="bms", preprocess="PEZE").engine == "numpy"


def test_an_engine_that_cannot_is_refused(bundled):
    with pytest.raises(InputError, match="numba cannot do logreg"):
        evaluate(bundled, Recipe(episodes=20), method="logreg", engine="numba")
    with pytest.raises(InputError, match="numba cannot do bms with PEZE"):
        evaluate(bundled, Recipe(episodes=20), method="bms", preprocess="PEZE", engine="numba")


def test_the_person_is_told_of_the_first_compilation_and_of_no_other(caplog, monkeypatch):
    monkeypatch.setattr(jit._Announcement, "said", False)

    def _twice(x):
        for i in range(len(x)):
            x[i] *= 2

    with caplog.at_level(logging.INFO, logger="sinkshot"):
        for fresh in (numba.njit(_twice), numba.njit(_twice)):
            jit.in_batches(fresh, 1, lambda _, fresh=fresh: fresh(np.ones(3)))
            assert len(fresh.signatures) == 1
            assert caplog.text.count("compiling") == 1
