"""The pictures show what their captions say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sinkshot.bank import FeatureBank
from sinkshot.episodes import Recipe
from sinkshot.evaluate import evaluate
from sinkshot.report.figures import demo
from sinkshot.statistics import principal_components, skewness


def bank_of(features: np.ndarray, classes: int) -> FeatureBank:
    labels = np.repeat(np.arange(classes), len(features) // classes)
    return FeatureBank(features.astype(np.float32), labels, tuple(f"class {c}" for c in range(classes)))


@pytest.fixture(scope="module")
def bank() -> FeatureBank:
    random = np.random.default_rng(1)
    return bank_of(random.gamma(0.6, 1.0, (8 * 40, 12)) * np.repeat(random.gamma(1.0, 1.0, (8, 12)), 40, axis=0), 8)


@pytest.mark.slow
def test_example_is_a_median_episode_scored_as_in_the_results(bank: FeatureBank) -> None:
    result = evaluate(bank, Recipe(episodes=41), method="bms", engine="numpy")
    example = demo.example(bank, result, "BMS")
    assert example.right == pytest.approx(result.per_episode[example.number])
    assert example.right == pytest.approx(np.median(result.per_episode))
    raw = evaluate(bank, Recipe(episodes=41), method="ncm", preprocess="", engine="numpy")
    assert example.raw == pytest.approx(raw.per_episode[example.number])
    assert len(example.key) == 5 + 2


def test_plane_is_that_of_the_first_two_principal_components() -> None:
    x = np.random.default_rng(0).normal(size=(30, 50)) * np.linspace(3, 0.1, 50)
    points, shares = principal_components(x, 2)
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    assert np.abs(points) == pytest.approx(np.abs(u[:, :2] * s[:2]))
    assert shares == pytest.approx((s**2 / (s**2).sum())[:2])


def test_plane_of_equal_rows_is_a_point() -> None:
    points, shares = principal_components(np.ones((5, 3)), 2)
    assert np.abs(points).max() < 1e-6
    assert np.isfinite(shares).all()


def test_skewness_is_scipys_and_zero_for_a_constant() -> None:
    x = np.random.default_rng(0).gamma(1.0, 1.0, (100, 4))
    assert skewness(x) == pytest.approx(stats.skew(x))
    assert skewness(np.full((10, 1), 0.1)) == 0


def test_power_tells_the_skewness_of_the_features_it_shows(bank: FeatureBank) -> None:
    power = demo.power(bank)
    assert power.step == "P"
    assert power.classes == bank.class_names[:3]
    for feature in (power.symmetric, power.typical):
        for c, (before, after) in enumerate(feature.skewness):
            column = bank.features[bank.labels == c, feature.column].astype(np.float64)
            assert before == pytest.approx(stats.skew(column))
            assert after == pytest.approx(stats.skew(np.sqrt(column + 1e-6)))
    assert power.gaussian is not None
    assert power.gaussian[1] > power.gaussian[0]


def test_power_leaves_out_features_that_never_change() -> None:
    features = np.random.default_rng(0).gamma(1.0, 1.0, (60, 3))
    features[:, 0] = 0.25
    assert demo.power(bank_of(features, 3)).symmetric.column != 0


def test_signed_features_get_the_signed_power_and_small_classes_no_test() -> None:
    power = demo.power(bank_of(np.random.default_rng(0).normal(size=(20, 3)), 2))
    assert power.step == "Ps"
    assert power.gaussian is None


def test_spread_tells_how_often_the_second_is_above(bank: FeatureBank) -> None:
    a, b = (evaluate(bank, Recipe(episodes=25), method=m, preprocess="PE", engine="numpy") for m in ("ncm", "bms"))
    spread = demo.spread(a, b, ("NCM", "BMS"))
    assert spread.better == (b.per_episode > a.per_episode).mean()
    assert spread.better + spread.level + (b.per_episode < a.per_episode).mean() == pytest.approx(1)


@given(queries=st.integers(2, 200), data=st.data())
def test_every_accuracy_falls_inside_a_bin_and_never_on_an_edge(queries: int, data: st.DataObject) -> None:
    right = data.draw(st.lists(st.integers(0, queries), min_size=1, max_size=20))
    share = np.array(right) / queries
    for values, edges in (
        (share, demo.accuracy_edges(share.min(), queries)),
        (share - share[::-1], demo.gap_edges(share - share[::-1], queries)),
    ):
        assert np.histogram(values, edges)[0].sum() == len(values)
        assert np.abs(values[:, None] - edges).min() > 0.4 / queries
    assert demo.accuracy_edges(0.0, queries)[-1] == pytest.approx((queries + 0.5) / queries)
