"""Evaluation: the same result by every route, and the paper's claims on the bundled bank."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sinkshot import (
    METHODS,
    DataWarning,
    FeatureBank,
    InputError,
    Recipe,
    Task,
    compare,
    draw,
    engines,
    evaluate,
    load,
)
from sinkshot.evaluate import Interrupted
from sinkshot.preprocess import apply
from sinkshot.threads import LIMIT, cores, in_order

SMALL = Recipe(way=4, shot=2, query=5, episodes=60, seed=1)


@pytest.mark.parametrize("protocol", ["balanced", "official", "dirichlet", "open-set"])
@pytest.mark.parametrize("name", ["ncm", "bms"])
def test_drawn_episodes_and_their_recipe_give_the_same_numbers(blobs, protocol, name):
    recipe = Recipe(protocol, 4, 2, 5, 60, 1)
    drawn = recipe.draw(blobs.labels)
    a, b = (evaluate(blobs, e, method=name, preprocess="PEMnE") for e in (recipe, drawn))
    np.testing.assert_array_equal(a.per_episode, b.per_episode)


def test_accuracy_is_the_share_of_right_labels_over_all_queries(blobs):
    episodes = SMALL.draw(blobs.labels)
    task = Task(blobs.features[episodes.support], episodes.support_labels, blobs.features[episodes.query], 4)
    right = METHODS["kmeans"](apply(task, "PEMnE")).probabilities.argmax(-1) == episodes.query_labels
    result = evaluate(blobs, episodes, method="kmeans")
    np.testing.assert_allclose(result.per_episode, right.mean(axis=1))
    assert result.accuracy == pytest.approx(right.mean())
    assert result.ci95 == pytest.approx(1.96 * result.per_episode.std(ddof=1) / np.sqrt(60))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_torch_and_numpy_evaluate_alike(blobs, name):
    pytest.importorskip("torch")
    known, recipe = METHODS[name].hyper, replace(SMALL, episodes=20)
    quick = {key: 30 for key in ("steps", "epochs", "samples") if isinstance(known.get(key), int) and known[key] > 500}
    if known.get("steps") == "auto":
        quick["steps"] = 30
    given = {"method": name, "base": blobs, **quick}
    a, b = (evaluate(blobs, recipe, engine=e, **given) for e in ("numpy", "torch"))
    assert (a.engine, b.engine) == ("numpy", "torch")
    np.testing.assert_allclose(a.per_episode, b.per_episode)


def test_under_open_set_accuracy_ignores_strangers_and_auroc_is_of_them(blobs):
    recipe = Recipe("open-set", 3, 5, 6, 40)
    result = evaluate(blobs, recipe, method="ncm", preprocess="PE")
    assert result.accuracy > 0.95
    assert 0.9 < result.auroc <= 1.0
    shuffled = FeatureBank.from_arrays(np.random.default_rng(0).random((320, 24)), blobs.labels)
    assert 0.4 < evaluate(shuffled, recipe, method="ncm", preprocess="PE").auroc < 0.6


@pytest.mark.slow
def test_measures_of_the_open_set_are_those_of_scikit_learn_episode_by_episode(blobs):
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    noisy = FeatureBank.from_arrays(blobs.features + np.random.default_rng(0).random((320, 24)) * 4, blobs.labels)
    episodes = draw(noisy.labels, protocol="open-set", way=3, shot=1, query=6, episodes=10)
    task = Task(noisy.features[episodes.support], episodes.support_labels, noisy.features[episodes.query], 3)
    unknown = METHODS["ncm"](apply(task, "PE")).unknown
    pairs = [(labels < 0, score) for labels, score in zip(episodes.query_labels, unknown, strict=True)]
    curves = [roc_curve(*pair, drop_intermediate=False) for pair in pairs]
    result = evaluate(noisy, episodes, method="ncm", preprocess="PE")
    np.testing.assert_allclose(result.auroc_per_episode, [roc_auc_score(*pair) for pair in pairs], atol=1e-6)
    np.testing.assert_allclose(result.aupr_per_episode, [average_precision_score(*pair) for pair in pairs], atol=1e-6)
    np.testing.assert_allclose(result.fpr95_per_episode, [fpr[tpr >= 0.95][0] for fpr, tpr, _ in curves], atol=1e-6)
    assert result.to_dict()["fpr95"] == result.fpr95 == pytest.approx(result.fpr95_per_episode.mean())


def test_ncm_uses_the_base_mean_where_it_is_known_and_says_what_it_used(blobs):
    with_means = FeatureBank.from_arrays(blobs.features, blobs.labels, base={"PE": np.full(24, 0.1)})
    assert evaluate(blobs, SMALL, method="ncm").preprocess == "PE"
    assert evaluate(with_means, SMALL, method="ncm").preprocess == "PEMbE"
    assert evaluate(blobs, SMALL, method="ncm", base=blobs).preprocess == "PEMbE"


def test_base_features_that_are_bundled_with_a_bank_are_found_and_named(bundled):
    recipe = Recipe(episodes=5)
    for given in ({"method": "bavardage"}, {"method": "ncm", "preprocess": "P0.4EMbE"}):
        result = evaluate(bundled, recipe, **given)
        assert result.notes == (f"{result.method}: the features of the base classes are those bundled with the bank.",)
    assert evaluate(bundled, recipe, method="ncm").notes == ()
    base = load("cifar-fs_wrn-28-10_base")
    given, found = (evaluate(bundled, recipe, method="bavardage", preprocess="E", base=b) for b in (base, None))
    np.testing.assert_array_equal(given.per_episode, found.per_episode)


def test_means_that_a_bank_holds_go_before_bundled_base_features(bundled):
    bank = FeatureBank(bundled.features, bundled.labels, bundled.class_names, bundled.meta, {"": np.zeros(640)})
    recipe = Recipe(episodes=20)
    moved, plain = (evaluate(bank, recipe, method="bavardage", preprocess=chain) for chain in ("MbE", "E"))
    np.testing.assert_array_equal(moved.per_episode, plain.per_episode)


def test_a_method_that_needs_base_features_asks_for_them(blobs):
    with pytest.raises(InputError, match=r"bavardage needs features of the base classes.*--base FILE"):
        evaluate(blobs, SMALL, method="bavardage", preprocess="E")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bms", "bms-star", "kmeans"])
@pytest.mark.parametrize("engine", ["numpy", "numba", "torch"])
def test_an_oracle_tells_each_episode_its_own_class_sizes(blobs, name, engine):
    if engine == "torch":
        pytest.importorskip("torch")
    noisy = FeatureBank.from_arrays(blobs.features + np.random.default_rng(0).random((320, 24)) * 4, blobs.labels)
    episodes = Recipe("dirichlet", 4, 2, 5, 30, 1).draw(noisy.labels)
    task = Task(noisy.features[episodes.support], episodes.support_labels, noisy.features[episodes.query], 4)
    shares = (episodes.query_labels[..., None] == np.arange(4)).mean(axis=1)
    p = METHODS[name](apply(task, "PEMnE"), prior=shares).probabilities
    result = evaluate(noisy, episodes, method=name, preprocess="PEMnE", prior="oracle", engine=engine)
    np.testing.assert_allclose(result.per_episode, (p.argmax(-1) == episodes.query_labels).mean(axis=1))
    assert result.accuracy > evaluate(noisy, episodes, method=name, preprocess="PEMnE", prior="balanced").accuracy


@pytest.mark.parametrize("engine", [pytest.param("numba", marks=pytest.mark.slow), "torch"])
def test_engines_estimate_class_sizes_alike(bundled, engine):
    if engine == "torch":
        pytest.importorskip("torch")
    recipe = Recipe("dirichlet", episodes=20)
    a, b = (evaluate(bundled, recipe, method="bms", prior="estimated", engine=e) for e in ("numpy", engine))
    assert np.isclose(a.per_episode, b.per_episode).mean() > 0.9


def test_a_prior_is_refused_by_methods_without_one(blobs):
    with pytest.raises(InputError, match="hyper-parameter of ncm"):
        evaluate(blobs, SMALL, method="ncm", prior="oracle")


@pytest.mark.parametrize("name", ["ncm", "pt-map", "soft-kmeans"])
def test_threads_change_nothing(blobs, monkeypatch, name):
    monkeypatch.setattr(engines.ENGINES["numpy"], "chunk_bytes", 20_000)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr("sinkshot.engines.base.cores", lambda threads=threads: threads)
        results.append(evaluate(blobs, SMALL, method=name, preprocess="PEMnE", engine="numpy"))
    np.testing.assert_array_equal(results[0].per_episode, results[1].per_episode)


@pytest.mark.parametrize(
    ("name", "engine"), [("ncm", "numpy"), ("ncm", "numba"), ("bms", "numba"), ("kmeans", "numpy")]
)
def test_a_bank_too_large_to_copy_gives_the_same_numbers(blobs, monkeypatch, name, engine):
    recipe = Recipe(way=4, shot=2, query=5, episodes=60, protocol="dirichlet")
    whole = evaluate(blobs, recipe, method=name, preprocess="PEMnE", engine=engine)
    monkeypatch.setattr("sinkshot.engines.base.LARGE", 0)
    drawn = evaluate(blobs, recipe, method=name, preprocess="PEMnE", engine=engine)
    np.testing.assert_array_equal(whole.per_episode, drawn.per_episode)


def test_faults_of_a_bank_too_large_to_copy_are_those_of_its_rows(blobs, monkeypatch):
    monkeypatch.setattr("sinkshot.engines.base.LARGE", 0)
    monkeypatch.setattr("sinkshot.arrays.BLOCK", 3 * blobs.width)
    features = blobs.features.copy()
    features[7] = 0
    with pytest.warns(DataWarning, match="^1 row"):
        evaluate(replace(blobs, features=features), Recipe(way=4, query=5, episodes=20), method="ncm", preprocess="E")
    features[8, 1] = -1
    with pytest.raises(InputError, match="row 8, column 1 is -1"):
        evaluate(replace(blobs, features=features), Recipe(way=4, query=5, episodes=20), method="ncm", preprocess="PE")


def test_a_process_that_shares_its_machine_takes_no_more_than_its_part(monkeypatch):
    monkeypatch.delenv(LIMIT, raising=False)
    everything = cores()
    for given, taken in (("1", 1), (str(everything + 3), everything), ("0", 1), ("many", everything)):
        monkeypatch.setenv(LIMIT, given)
        assert cores() == taken


def test_work_in_threads_comes_out_in_order_and_errors_come_out_too():
    assert list(in_order(lambda i: i * i, range(50), 4)) == [i * i for i in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // (5 - i), range(50), 4))


@pytest.mark.parametrize("chain", ["PEMaE", "PEMa", "PEMcE"])
@pytest.mark.parametrize("name", ["pt-map", "bms", "ncm"])
def test_inner_products_are_enough_where_a_task_has_other_centres_than_its_mean(bundled, chain, name):
    recipe, given = Recipe(episodes=20), {"method": name, "preprocess": chain}
    if name == "bms":
        given["epochs"] = 0
    a, b = (evaluate(bundled, recipe, engine=e, **given) for e in ("numpy", "numba"))
    assert np.isclose(a.per_episode, b.per_episode).mean() >= 0.95


def test_paired_differences_are_of_the_same_episodes(blobs):
    a, b = (evaluate(blobs, SMALL, method=m, preprocess="") for m in ("bms", "ncm"))
    paired = compare(a, b)
    gap = a.per_episode - b.per_episode
    assert (paired.a, paired.b) == ("bms", "ncm")
    assert paired.difference == pytest.approx(gap.mean())
    assert paired.ci95 == pytest.approx(1.96 * gap.std(ddof=1) / np.sqrt(60))


def test_results_on_other_episodes_are_not_paired(blobs):
    a = evaluate(blobs, SMALL, method="ncm")
    b = evaluate(blobs, Recipe(way=4, shot=2, query=5, episodes=60, seed=2), method="ncm")
    with pytest.raises(InputError, match="cannot be paired"):
        compare(a, b)


def test_episodes_of_another_bank_are_refused(blobs):
    drawn = draw(np.repeat(np.arange(8), 900), way=4, query=5, episodes=600)
    for engine in ("numpy", "numba"):
        with pytest.raises(InputError, match="the bank has 320 rows"):
            evaluate(blobs, drawn, method="bms", engine=engine)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_episodes_that_contradict_themselves_are_refused(blobs, engine):
    drawn = SMALL.draw(blobs.labels)
    short = replace(drawn, support_labels=drawn.support_labels[:, :1])
    missing = replace(drawn, support_labels=np.where(drawn.support_labels == 3, 2, drawn.support_labels))
    for wrong, words in ((short, "same shapes"), (missing, "class 3 has no support")):
        with pytest.raises(InputError, match=words):
            evaluate(blobs, wrong, method="bms", engine=engine)


@pytest.mark.parametrize("prior", [[[0.1], [0.2, 0.3]], 0.5, [[0.25] * 4] * 60], ids=str)
def test_a_prior_that_is_no_list_of_proportions_is_refused(blobs, prior):
    with pytest.raises(InputError, match="prior"):
        evaluate(blobs, SMALL, method="bms", prior=prior, engine="numba")


def test_no_episode_is_refused_and_a_single_one_warned_of(blobs):
    for nothing in (Recipe(way=4, query=5, episodes=0), SMALL.draw(blobs.labels)[5:5]):
        with pytest.raises(InputError, match="at least one episode"):
            evaluate(blobs, nothing, method="ncm")
    with pytest.warns(DataWarning, match="no confidence interval"):
        evaluate(blobs, Recipe(way=4, query=5, episodes=1), method="ncm")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_features_beyond_float32_end_in_a_sentence_not_in_a_number(blobs):
    huge = FeatureBank.from_arrays(blobs.features * np.float32(1e25), blobs.labels)
    with pytest.raises(InputError, match="too large or too small"):
        evaluate(huge, SMALL, method="bms", preprocess="")


def test_an_interrupt_hands_out_what_was_finished(blobs):
    def stop_after_some(done, total):
        if done >= 20:
            raise KeyboardInterrupt

    recipe = Recipe(way=4, shot=2, query=5, episodes=50_000, seed=1)
    with pytest.raises(Interrupted) as stopped:
        evaluate(blobs, recipe, method="ncm", progress=stop_after_some)
    done = stopped.value.result
    assert 20 <= done.episodes < 50_000
    np.testing.assert_array_equal(done.per_episode, evaluate(blobs, recipe, method="ncm").per_episode[: done.episodes])


def test_zero_rows_are_counted_in_one_warning(blobs):
    features = blobs.features.copy()
    features[[3, 9]] = 0
    with pytest.warns(DataWarning, match="2 rows are zero") as caught:
        evaluate(FeatureBank.from_arrays(features, blobs.labels), SMALL, method="ncm", preprocess="E")
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "bsm"}, "did you mean 'bms'"),
        ({"method": "bms", "epoch": 3}, "did you mean 'epochs'"),
        ({"method": "bms", "preprocess": "PEXE"}, "'XE'"),
        ({"method": "bms", "engine": "numppy"}, "did you mean 'numpy'"),
        ({"method": "ncm", "preprocess": "PEMbE"}, "--base FILE"),
        ({"method": "ncm", "device": "cuda", "engine": "numpy"}, "runs on the CPU"),
        ({"method": "ncm", "device": "cdua"}, "cannot use the device"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_with_a_sentence(blobs, given, words):
    if "device" in given:
        pytest.importorskip("torch")
    with pytest.raises(InputError, match=words):
        evaluate(blobs, SMALL, **given)


@pytest.mark.parametrize("device", ["fpga", "cdua", "meta", "hpu"])
def test_a_device_that_torch_cannot_use_is_refused_in_one_sentence(blobs, device):
    pytest.importorskip("torch")
    with pytest.raises(InputError) as refused:
        evaluate(blobs, SMALL, method="ncm", device=device)
    sentence = str(refused.value)
    assert sentence.startswith(f"torch cannot use the device '{device}' here: ")
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    assert len(sentence) < 300


def test_negative_features_under_p_are_refused_by_row(blobs):
    features = blobs.features.copy()
    features[17, 3] = -1
    bank = FeatureBank.from_arrays(features, blobs.labels)
    with pytest.raises(InputError, match=r"row 17, column 3 is -1\..*Ps"):
        evaluate(bank, SMALL, method="bms")
    assert evaluate(bank, SMALL, method="bms", preprocess="PsEMnE").accuracy > 0.9


def test_a_base_of_another_width_is_refused(blobs):
    other = FeatureBank.from_arrays(np.ones((4, 7)), [0, 0, 1, 1])
    with pytest.raises(InputError, match="7 columns and the bank has 24"):
        evaluate(blobs, SMALL, method="ncm", base=other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shot", "episodes"),
    [("ncm", 1, 10_000), pytest.param("ncm", 5, 10_000, marks=pytest.mark.long), ("bms", 1, 2_000)],
)
def test_quantising_a_bank_moves_accuracy_by_less_than_a_twentieth_of_a_point(exact, tmp_path, name, shot, episodes):
    exact.save(tmp_path / "compact.safetensors", store="uint8")
    recipe = Recipe(shot=shot, episodes=episodes)
    banks = load(tmp_path / "compact.safetensors"), exact
    small, whole = (evaluate(b, recipe, method=name, preprocess="PEMnE") for b in banks)
    assert abs(small.accuracy - whole.accuracy) < 0.0005


def test_preprocessing_lifts_ncm_above_raw_features(bundled):
    recipe = Recipe(shot=1, episodes=1000)
    gain = compare(*(evaluate(bundled, recipe, method="ncm", preprocess=chain) for chain in ("PEMbE", "")))
    assert gain.difference > gain.ci95


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [2000, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("name", "shot", "least"), [("bms", 1, 0.885), ("bms", 5, 0.925), ("bms-star", 1, 0.895)])
def test_many_episodes_of_the_bundled_bank_reach_the_paper(bundled, name, shot, least, episodes):
    assert evaluate(bundled, Recipe(shot=shot, episodes=episodes), method=name).accuracy >= least


def test_a_result_prints_as_one_line_without_the_numbers_of_its_episodes(bundled):
    result = evaluate(bundled, Recipe(shot=5, episodes=30), method="ncm")
    accuracy = f"accuracy {result.accuracy:.4f} ± {result.ci95:.4f}"
    assert repr(result) == f"Result(ncm, 'PEMbE', 5-way 5-shot, balanced, 30 episodes, {accuracy})"
    one = replace(result, per_episode=np.ones(1))
    assert repr(one) == "Result(ncm, 'PEMbE', 5-way 5-shot, balanced, 1 episode, accuracy 1.0000)"


@pytest.mark.slow
def test_under_imbalance_robust_is_above_ncm_at_one_shot_and_not_below_at_five(bundled):
    for shot in (1, 5):
        recipe = Recipe("dirichlet", shot=shot, episodes=2000)
        robust = evaluate(bundled, recipe, method="bms", variant="robust")
        gain = compare(robust, evaluate(bundled, recipe, method="ncm", preprocess="PEMbE"))
        assert gain.difference - gain.ci95 > 0 if shot == 1 else gain.difference + gain.ci95 > 0


def printed(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_sinkshot_leaves_torch_and_other_large_packages_alone():
    imported = printed("import sinkshot, sys; print(*sys.modules)").split()
    assert not {"torch", "sklearn", "scipy", "numba", "matplotlib"} & set(imported)


@pytest.mark.timing
def test_importing_sinkshot_takes_less_than_a_second():
    code = "import time; t = time.perf_counter(); import sinkshot; print(time.perf_counter() - t)"
    assert min(float(printed(code)) for _ in range(3)) < 1
