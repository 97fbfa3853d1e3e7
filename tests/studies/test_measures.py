"""Measures of features find what was put into them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from sinkshot import FeatureBank
from sinkshot.errors import InputError
from sinkshot.statistics import principal_components
from sinkshot.studies.measures import measure
from sinkshot.studies.study import BankKey, Measure

KEY = BankKey("x", ("y",))


def of(bank, kind, **options):
    return measure(bank, Measure(KEY, kind, tuple(sorted(options.items()))))


@pytest.fixture
def squares():
    """Four classes of 300 rows whose features are squares of Gaussian numbers away from zero, 12 wide."""
    rng = np.random.default_rng(1)
    centres = rng.uniform(8, 12, size=(4, 1, 12))
    features = (centres + rng.normal(size=(4, 300, 12))) ** 2
    return FeatureBank.from_arrays(features.reshape(-1, 12).astype(np.float32), np.repeat(list("abcd"), 300))


def test_squares_of_gaussian_numbers_become_gaussian(squares):
    found = of(squares, "gaussianity")
    assert (found["tests"], found["classes"], found["coordinates"], found["level"]) == (48, 4, 12, 1e-3)
    assert found["after"]["passed"] > 45 > found["before"]["passed"]
    assert found["after"]["rate"] == found["after"]["passed"] / 48
    assert abs(found["after"]["skewness"]) < 0.1 < found["before"]["skewness"]


def test_the_test_is_scipys(squares):
    passed = sum(
        int((stats.normaltest(squares.features[squares.labels == c].astype(np.float64)).pvalue > 1e-3).sum())
        for c in range(4)
    )
    assert of(squares, "gaussianity")["before"]["passed"] == passed


def test_constant_columns_do_not_pass_and_are_counted(squares):
    features = squares.features.copy()
    features[squares.labels == 2, 5] = 1.0
    features[:, 7] = 0.0
    found = of(FeatureBank(features, squares.labels, squares.class_names), "gaussianity")
    assert found["before"]["constant"] == found["after"]["constant"] == 5
    assert found["after"]["passed"] <= 43


def test_small_classes_are_left_out_and_named(squares):
    keep = np.r_[0:610]  # a and b whole, ten of c
    small = FeatureBank.from_arrays(squares.features[keep], np.array(list("abcd"))[squares.labels[keep]])
    found = of(small, "gaussianity")
    assert (found["classes"], found["tests"], found["left_out"]) == (2, 24, ["c"])
    with pytest.raises(InputError, match="needs 20 samples"):
        of(FeatureBank.from_arrays(np.ones((4, 2)), [0, 0, 1, 1]), "gaussianity")


def test_negative_features_take_the_signed_power(squares):
    negative = FeatureBank(squares.features - 100, squares.labels, squares.class_names)
    assert of(negative, "gaussianity", chain="PE")["chain"] == "PsE"


def test_histograms_count_every_row_once(squares):
    found = of(squares, "distribution", bins=20, seed=3)
    assert len(found["classes"]) == 3
    for part in ("before", "after"):
        counts = found[part]["counts"]
        assert list(counts) == found["classes"]
        assert {sum(of_class) for of_class in counts.values()} == {300}
        assert len(found[part]["x"]) == 20
        assert found[part]["x"][1] - found[part]["x"][0] == pytest.approx(found[part]["width"])


def test_histograms_are_of_the_feature_and_classes_they_name(squares):
    found = of(squares, "distribution", bins=1, chain="P")
    rows = np.isin(squares.labels, [squares.class_names.index(name) for name in found["classes"]])
    column = squares.features[rows, found["feature"]].astype(np.float64)
    assert found["before"]["x"] == [pytest.approx(column.min())]
    assert found["before"]["width"] == pytest.approx(np.ptp(column))
    assert found["after"]["x"] == [pytest.approx(np.sqrt(column.min() + 1e-6))]


def test_a_feature_that_is_constant_is_never_drawn(squares):
    features = np.zeros_like(squares.features)
    features[:, 4] = squares.features[:, 4]
    bank = FeatureBank(features, squares.labels, squares.class_names)
    assert {of(bank, "distribution", seed=seed)["feature"] for seed in range(5)} == {4}
    with pytest.raises(InputError, match="no feature varies"):
        of(FeatureBank(np.ones_like(features), squares.labels, squares.class_names), "distribution")


@pytest.mark.parametrize("kind", ["distribution", "projection"])
def test_the_seed_decides_what_is_shown(squares, kind):
    assert of(squares, kind, seed=1) == of(squares, kind, seed=1)
    assert len({tuple(of(squares, kind, seed=seed)["classes"]) for seed in range(8)}) > 1


def test_points_lie_where_principal_components_put_them(squares):
    found = of(squares, "projection", classes=4)
    points = np.concatenate([found["before"]["points"][name] for name in squares.class_names])
    x = squares.features.astype(np.float64)
    x -= x.mean(axis=0)
    _, values, vectors = np.linalg.svd(x, full_matrices=False)
    wanted = x @ vectors[:3].T
    wanted *= np.sign((wanted * points).sum(axis=0))
    np.testing.assert_allclose(points, wanted, atol=2e-3 * np.abs(wanted).max())
    np.testing.assert_allclose(found["before"]["variance"], (values**2 / (values**2).sum())[:3], atol=1e-4)


def test_wide_and_narrow_rows_have_the_same_components():
    x = np.random.default_rng(0).normal(size=(6, 9))
    wide, share = principal_components(x, 3)
    _, values, _ = np.linalg.svd(x - x.mean(axis=0))
    np.testing.assert_allclose(np.linalg.norm(wide, axis=0), values[:3])
    narrow, _ = principal_components(np.vstack([x, x]), 3)
    np.testing.assert_allclose(np.abs(narrow[:6]), np.abs(wide), atol=1e-9)
    assert share.sum() <= 1


def test_fewer_dimensions_than_three_leave_the_rest_at_zero():
    points, share = principal_components(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 5.0]]), 3)
    assert points.shape == (3, 3)
    assert (points[:, 2] == 0).all()
    assert share[2] == 0


@pytest.mark.parametrize("kind", ["gaussianity", "distribution", "projection"])
def test_measures_are_plain_values(squares, kind):
    found = of(squares, kind)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("gaussianity", {"bins": 3}, "unknown option of gaussianity 'bins'"),
        ("distribution", {"bin": 3}, "did you mean 'bins'"),
        ("projection", {"classes": 9}, "9 classes were asked for, but the bank has 4"),
        ("projection", {"seed": -1}, "seed must be a whole number of at least 0"),
        ("distribution", {"chain": "PEMnE"}, "chain must act on each row alone"),
        ("table", {}, "unknown kind of measure 'table'"),
    ],
)
def test_wrong_options_are_refused(squares, kind, options, said):
    with pytest.raises(InputError) as error:
        of(squares, kind, **options)
    assert said in str(error.value)


def test_the_power_transform_makes_more_of_the_bundled_bank_gaussian(bundled):
    few = np.flatnonzero(bundled.labels < 3)
    found = of(FeatureBank(bundled.features[few], bundled.labels[few], bundled.class_names[:3]), "gaussianity")
    assert found["after"]["passed"] > 5 * found["before"]["passed"] > 0
