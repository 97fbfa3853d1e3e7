"""Metrics of confidence equal plain references, however the probabilities are split into chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, log_loss

import sinkshot
from sinkshot import InputError, Recipe
from sinkshot.calibration import BINS, CONFIDENCE, Confidence, judge
from sinkshot.kernels import metrics_numba
from sinkshot.statistics import binomial_probability

EXACT = 1e-12


def made(episodes=40, queries=75, way=5, sharp=0.3, seed=0, dtype=np.float32):
    """Probabilities of a calibrated predictor, and labels drawn by them."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(way, sharp), (episodes, queries)).astype(dtype)
    labels = (rng.random((episodes, queries, 1)) > probabilities.cumsum(axis=-1)).sum(axis=-1)
    return probabilities, np.minimum(labels, way - 1).astype(np.int32)


def flat(probabilities, labels):
    """Confidence in float64 of every known query, and whether it is right."""
    known = labels >= 0
    return probabilities.max(axis=-1)[known].astype(np.float64), (probabilities.argmax(axis=-1) == labels)[known]


def reference_ece(confidence, right):
    place = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1)
    gaps = [abs(confidence[place == b].sum() - right[place == b].sum()) for b in range(BINS)]
    return sum(gaps) / len(confidence)


def reference_risks(confidence, right):
    """Risk among the k most confident, for each k."""
    order = np.argsort(-confidence, kind="stable")
    return np.cumsum(~right[order]) / np.arange(1, len(right) + 1)


@pytest.mark.parametrize("engine", [judge, metrics_numba.judge], ids=["numpy", "numba"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("way", "sharp"), [(2, 1.0), (5, 0.05), (20, 0.3)])
def test_metrics_are_those_of_all_probabilities(engine, dtype, way, sharp):
    probabilities, labels = made(way=way, sharp=sharp, dtype=dtype)
    labels[:, ::7] = -1
    judged = engine(probabilities, labels)
    single = probabilities.astype(np.float32)
    for number, (p, y) in enumerate(zip(probabilities.astype(np.float64), labels, strict=True)):
        p, y = p[y >= 0], y[y >= 0]
        one_hot = np.eye(way)[y]
        assert judged.accuracy[number] == (p.argmax(axis=1) == y).mean()
        present = np.unique(y)
        recall = [(p[y == k].argmax(axis=1) == k).mean() for k in present]
        assert judged.macro_accuracy[number] == pytest.approx(np.mean(recall), abs=EXACT)
        assert judged.brier[number] == pytest.approx(((p - one_hot) ** 2).sum(axis=1).mean(), abs=EXACT)
        loss = -np.log(np.maximum(p[np.arange(len(y)), y], 2.0**-23)).mean()
        assert judged.nll[number] == pytest.approx(loss, abs=EXACT)
    confidence, right = flat(single, labels)
    histogram = judged.confidence
    assert histogram.queries == len(right)
    assert histogram.accuracy == right.mean()
    assert histogram.ece == pytest.approx(reference_ece(confidence, right), abs=1e-9)
    assert histogram.aurc == pytest.approx(reference_risks(confidence, right).mean(), abs=5e-4)
    ordered = 1 - reference_risks(confidence, right)
    for target in (0.95, 0.99):
        above = np.flatnonzero(ordered >= target)
        expected = (above[-1] + 1) / len(right) if len(above) else 0.0
        assert histogram.coverage(target) == pytest.approx(expected, abs=0.02)


def test_metrics_of_one_episode_are_those_of_scikit_learn():
    probabilities, labels = made(episodes=1, queries=400, sharp=1.0)
    judged = judge(probabilities, labels)
    assert judged.nll[0] == pytest.approx(log_loss(labels[0], probabilities[0].astype(np.float64)), abs=1e-6)
    predicted = probabilities[0].argmax(axis=1)
    assert judged.macro_accuracy[0] == pytest.approx(balanced_accuracy_score(labels[0], predicted), abs=EXACT)


def test_compiled_code_and_torch_count_what_numpy_counts():
    torch = pytest.importorskip("torch")
    probabilities, labels = made(sharp=0.02)  # many probabilities next to one
    labels[:, 3] = -1
    plain = judge(probabilities, labels)
    for other in (
        metrics_numba.judge(probabilities, labels),
        judge(torch.from_numpy(probabilities), torch.from_numpy(labels)),
    ):
        assert other.confidence == plain.confidence
        np.testing.assert_array_equal(other.accuracy, plain.accuracy)
        for name in ("macro_accuracy", "brier", "nll"):
            np.testing.assert_allclose(getattr(other, name), getattr(plain, name), rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, 39), max_size=6, unique=True), seed=st.integers(0, 100))
def test_parts_add_up_to_the_whole_exactly(cuts, seed):
    probabilities, labels = made(seed=seed)
    parts = zip(np.split(probabilities, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True)
    assert sum((judge(*part).confidence for part in parts), Confidence()) == judge(probabilities, labels).confidence


def test_a_histogram_survives_its_file_and_damage_is_noticed():
    histogram = Confidence.of(*made())
    packed = histogram.to_bytes()
    assert Confidence.from_bytes(packed) == histogram
    assert len(packed) < 10_000
    for damaged in (packed[:-9], b"nothing", Confidence(histogram.ranked[:, :7], histogram.binned).to_bytes()):
        with pytest.raises(ValueError, match="histogram of confidences"):
            Confidence.from_bytes(damaged)


# --- known values ---------------------------------------------------------------------------------------------------


def always(confidence, right):
    """Two classes, every answer with the same confidence; `right` says which are."""
    other = 1 - confidence
    return Confidence.of(np.tile([confidence, other], (len(right), 1)), 1 - np.asarray(right, dtype=int))


@pytest.mark.parametrize(("confidence", "share"), [(0.75, 0.75), (0.9, 0.5), (0.6, 1.0)])
def test_one_confidence_for_all_is_off_by_its_distance_from_accuracy(confidence, share):
    right = np.arange(1000) < 1000 * share
    histogram = always(confidence, right)
    assert histogram.ece == pytest.approx(abs(confidence - share), abs=1e-6)
    assert histogram.aurc == pytest.approx(1 - share, abs=EXACT), "the order is left to chance"
    assert histogram.coverage(0.95) == (1.0 if share >= 0.95 else 0.0)
    assert histogram.reliability.share.max() == 1


@pytest.mark.parametrize("trials", [1, 2, 15, 16, 75, 10_000, 10_000_000])
def test_binomial_probabilities_are_those_of_scipy(trials):
    from scipy.stats import binom

    chance = np.concatenate([[0.0, 1.0, 0.5], np.random.default_rng(0).uniform(size=500) ** 0.2])
    for successes in (np.floor(trials * chance), np.floor(trials * chance) + 1, np.zeros(503), np.full(503, trials)):
        ours = binomial_probability(successes, np.full(503, trials), chance)
        np.testing.assert_allclose(ours, binom.pmf(successes, trials, chance), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("queries", [1, 2, 7, 100, 10_000])
@pytest.mark.parametrize("confidence", [0.55, 0.97])
def test_the_null_of_equal_confidences_is_the_mean_distance_of_a_binomial(queries, confidence):
    from scipy.stats import binom

    k = np.arange(queries + 1)
    expected = (binom.pmf(k, queries, confidence) * np.abs(k - queries * confidence)).sum() / queries
    null = always(confidence, np.ones(queries)).ece_null
    assert null == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("queries", "expected"), [(75, 0.089), (1000, 0.027), (20_000, 0.0055)])
def test_the_null_is_what_calibrated_predictors_show(queries, expected):
    rng = np.random.default_rng(1)
    confidence = rng.beta(5.2, 1.0, queries) * 0.5 + 0.5 * rng.beta(6, 1, queries)
    confidence = np.clip(confidence, 0.5, 1).astype(np.float32)
    both = np.stack([confidence, 1 - confidence], axis=1)
    simulated = [Confidence.of(both, (rng.random(queries) > confidence).astype(int)).ece for _ in range(200)]
    null = Confidence.of(both, np.zeros(queries, int)).ece_null
    assert null == pytest.approx(np.mean(simulated), rel=0.06)
    assert null == pytest.approx(expected, rel=0.25)


def test_a_perfect_order_loses_nothing_before_the_first_error():
    confidence = np.linspace(0.999, 0.501, 400)
    labels = np.where(np.arange(400) < 300, 0, 1)  # the 100 least confident are wrong
    histogram = Confidence.of(np.stack([confidence, 1 - confidence], axis=1), labels)
    assert histogram.coverage(1.0) == pytest.approx(0.75, abs=0.01)
    assert histogram.coverage(0.95) == pytest.approx(300 / 0.95 / 400, abs=0.01)
    k = np.arange(1, 401)
    assert histogram.aurc == pytest.approx((np.maximum(k - 300, 0) / k).mean(), abs=1e-3)
    coverage, risk = histogram.risk_coverage
    assert coverage[-1] == 1
    assert risk[-1] == 0.25
    assert (np.diff(coverage) > 0).all()


def test_certain_answers_have_no_doubt_left():
    histogram = Confidence.of(np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 0])
    assert (histogram.ece, histogram.ece_null, histogram.aurc, histogram.coverage(0.99)) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("probabilities", "labels", "words"),
    [
        ([[0.5, 0.5]], [0, 1], "need one label per row"),
        ([[np.nan, 0.5]], [0], "finite"),
        ([[0.5, 0.5]], [-1], "no query of a known class"),
    ],
)
def test_what_cannot_be_judged_is_refused(probabilities, labels, words):
    with pytest.raises(InputError, match=words), np.errstate(invalid="ignore"):
        Confidence.of(probabilities, labels)


@pytest.mark.parametrize("engine", [judge, metrics_numba.judge], ids=["numpy", "numba"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("label", [0, -1])
def test_an_answer_that_is_not_a_number_spoils_its_episode_alone(engine, bad, label):
    probabilities, labels = made(episodes=3)
    probabilities[1, 4, 2], labels[1, 4] = bad, label
    with np.errstate(invalid="ignore"):
        assert np.isnan(engine(probabilities, labels).brier).tolist() == [False, True, False]


# --- evaluations ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_results_do_not_depend_on_chunks(bundled, engine, monkeypatch):
    recipe = Recipe("dirichlet", episodes=60, alpha=0.5)
    whole = sinkshot.evaluate(bundled, recipe, method="bms", engine=engine)
    from sinkshot.engines import ENGINES

    monkeypatch.setattr(ENGINES[engine], "_chunk_size", lambda self: 7)
    parts = sinkshot.evaluate(bundled, recipe, method="bms", engine=engine)
    assert parts.confidence == whole.confidence
    for name in CONFIDENCE:
        assert parts.value(name) == whole.value(name)


def test_a_result_has_every_metric_and_macro_accuracy_leaves_absent_classes_out(bundled):
    result = sinkshot.evaluate(bundled, Recipe("dirichlet", episodes=50, alpha=0.3), method="ncm")
    assert result.confidence.queries == 50 * 75
    assert result.confidence.accuracy == pytest.approx(result.accuracy, abs=EXACT)
    answer = result.to_dict()
    assert [name for name in answer if name in CONFIDENCE] == list(CONFIDENCE)
    assert answer["macro_accuracy"] != pytest.approx(answer["accuracy"], abs=1e-3)
    assert answer["ece"] > 3 * answer["ece_null"], "NCM's probabilities are known to be too low"
    balanced = sinkshot.evaluate(bundled, Recipe(episodes=50), method="ncm")
    np.testing.assert_allclose(balanced.macro_accuracy_per_episode, balanced.per_episode, atol=EXACT)


def test_open_queries_do_not_count(bundled):
    result = sinkshot.evaluate(bundled, Recipe("open-set", episodes=20), method="ncm")
    assert result.confidence.queries == 20 * 75
    assert result.confidence.accuracy == pytest.approx(result.accuracy, abs=EXACT)
