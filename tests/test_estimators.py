"""The estimators keep scikit-learn's contract, and label real pools better than nearest class means."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

from sinkshot.errors import DataWarning, InputError
from sinkshot.estimators import PEME, BMSClassifier, NearestClassMean, SoftKMeansClassifier

CLASSIFIERS = (NearestClassMean, SoftKMeansClassifier, BMSClassifier)
UNLABELLED_HERE = {"check_classifiers_classes": "-1 is a class there, unlabelled here"}


def pool(rows=60, way=3, shot=4, width=24, seed=0, dtype=np.float64):
    """Features >= 0 whose class raises every way-th column, the truth, and y with `shot` labels a class."""
    truth = np.arange(rows) % way
    x = np.random.default_rng(seed).gamma(1.0 + 2.0 * (truth[:, None] == np.arange(width) % way)).astype(dtype)
    return x, truth, np.where(np.arange(rows) < way * shot, truth, -1)


@pytest.fixture(params=CLASSIFIERS)
def classifier(request):
    return request.param()


# scikit-learn's own battery


@pytest.mark.parametrize("estimator", [PEME(), PEME(preprocess="")], ids=str)
def test_the_transformer_passes_every_check(estimator, check_estimator):
    checks = check_estimator(estimator, on_skip=None)
    assert {check["status"] for check in checks} <= {"passed", "skipped"}


@pytest.mark.parametrize("preprocess", [None, ""])
def test_classifiers_pass_every_check_but_the_one_where_minus_one_is_a_class(classifier, preprocess, check_estimator):
    if preprocess is not None:
        classifier.set_params(preprocess=preprocess)
    checks = check_estimator(classifier, expected_failed_checks=UNLABELLED_HERE, on_skip=None)
    assert {check["check_name"] for check in checks if check["status"] == "xfail"} == set(UNLABELLED_HERE)
    assert {check["status"] for check in checks} <= {"passed", "skipped", "xfail"}


@pytest.mark.parametrize(("preprocess", "positive"), [("PE", True), ("P0.4EMnE", True), ("PsE", False), ("", False)])
def test_only_a_chain_with_the_plain_power_asks_for_leniency(classifier, preprocess, positive):
    tags = get_tags(classifier.set_params(preprocess=preprocess))
    assert (tags.input_tags.positive_only, tags.classifier_tags.poor_score) == (positive, positive)
    assert get_tags(PEME(preprocess)).input_tags.positive_only == positive


def test_examples_in_docstrings_hold():
    results = [
        doctest.testmod(sys.modules[estimator.__module__]) for estimator in (PEME, NearestClassMean, BMSClassifier)
    ]
    assert sum(result.attempted for result in results) > 15
    assert not any(result.failed for result in results)


def test_importing_sinkshot_does_not_import_scikit_learn():
    code = "import sys, sinkshot; assert not any(m.split('.')[0] == 'sklearn' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# unlabelled rows


def test_labelled_rows_keep_their_label_and_every_row_gets_a_distribution(classifier):
    x, truth, y = pool()
    y[:3] = [1, 2, 0]  # wrong on purpose
    classifier.fit(x, y)
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(classifier.transduction_[y >= 0], y[y >= 0])
    assert classifier.label_distributions_.shape == (60, 3)
    assert np.allclose(classifier.label_distributions_.sum(axis=1), 1)
    assert classifier.prototypes_.shape == (3, 24)
    assert np.mean(classifier.transduction_[y < 0] == truth[y < 0]) > 0.9


@pytest.mark.parametrize("dtype", [str, object])
def test_among_strings_the_unlabelled_mark_may_be_a_string(classifier, dtype):
    x, _, y = pool()
    names = np.array(["cat", "dog", "owl", -1], dtype=dtype)[y]  # y == -1 picks the last
    named = clone(classifier).fit(x, names)
    assert named.classes_.tolist() == ["cat", "dog", "owl"]
    assert np.array_equal(named.transduction_, named.classes_[classifier.fit(x, y).transduction_])


def test_a_pool_without_any_label_is_refused(classifier):
    with pytest.raises(InputError, match=r"every row of y is -1.*label at least one row"):
        classifier.fit(pool()[0], np.full(60, -1))


def test_bms_without_unlabelled_rows_is_the_nearest_unit_length_class_mean():
    x, truth, _ = pool()
    model = BMSClassifier().fit(x, truth)
    prepared = PEME().fit_transform(x)
    means = np.stack([prepared[truth == k].mean(axis=0) for k in range(3)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert np.allclose(model.prototypes_, means)
    new = pool(seed=1)[0]
    distances = ((PEME().fit(x).transform(new)[:, None] - means) ** 2).sum(axis=-1)
    assert np.array_equal(model.predict(new), distances.argmin(axis=1))
    assert np.array_equal(model.label_distributions_, np.eye(3)[truth])


@pytest.mark.slow
@pytest.mark.parametrize("epochs", ["auto", 0, 5])
@pytest.mark.parametrize("variant", ["robust", "published", "letter"])
@pytest.mark.parametrize("prior", [None, "balanced", "estimated", [0.5, 0.5, 0.0]])
def test_classes_absent_from_the_pool_leave_probabilities_finite(epochs, variant, prior):
    x, truth, y = pool()
    for present in ([0, 1], [2]):
        kept = (y >= 0) | np.isin(truth, present)
        model = BMSClassifier(epochs=epochs, variant=variant, prior=prior).fit(x[kept], y[kept])
        for probabilities in (model.label_distributions_, model.predict_proba(x)):
            assert np.isfinite(probabilities).all()
            assert np.allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("unlabelled", [1, 3])
@pytest.mark.parametrize("variant", ["robust", "published"])
def test_fewer_unlabelled_rows_than_classes_leave_probabilities_finite(unlabelled, variant):
    x, _, y = pool(rows=100 + unlabelled, way=20, shot=5, dtype=np.float32)
    model = BMSClassifier(variant=variant, epochs=0).fit(x, y)
    assert np.isfinite(model.label_distributions_).all()
    assert np.isfinite(model.predict_proba(x)).all()


def test_a_single_class_gets_everything(classifier):
    x = pool()[0]
    classifier.fit(x, np.where(np.arange(60) < 5, "cat", "-1"))
    assert set(classifier.transduction_) == {"cat"}
    assert np.array_equal(classifier.predict_proba(x), np.ones((60, 1)))


def test_estimated_class_sizes_are_those_of_an_unequal_pool():
    x, truth, y = pool(rows=400)
    kept = (truth != 2) | (np.arange(400) < 12) | (np.arange(400) % 10 == 2)  # of class 2 hardly any
    model = BMSClassifier(prior="estimated").fit(x[kept], y[kept])
    unlabelled = y[kept] == -1
    share = model.label_distributions_[unlabelled].mean(axis=0)
    np.testing.assert_allclose(share, np.bincount(truth[kept][unlabelled]) / unlabelled.sum(), atol=0.03)
    assert (model.transduction_ == truth[kept]).mean() > 0.97


@pytest.mark.parametrize("chain", ["PEMaE", "PEB"])
def test_a_chain_that_needs_a_task_is_refused_with_a_sentence(chain):
    with pytest.raises(InputError, match="needs a task of supports and queries"):
        PEME(chain).fit(pool()[0])


def test_a_prior_gives_every_class_its_share():
    x, _, y = pool(rows=90)
    model = BMSClassifier(prior=[0.5, 0.3, 0.2]).fit(x, y)
    assert np.allclose(model.label_distributions_[y < 0].mean(axis=0), [0.5, 0.3, 0.2], atol=0.01)


# invariances


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(3)), st.sampled_from(CLASSIFIERS), st.integers(0, 2**16))
def test_renaming_classes_renames_the_answer(names, kind, seed):
    x, _, y = pool(seed=seed)
    renamed = np.append(names, -1)[y]
    model, other = kind().fit(x, y), kind().fit(x, renamed)
    assert np.allclose(other.label_distributions_[:, names], model.label_distributions_, atol=1e-6)
    assert np.allclose(other.predict_proba(x)[:, names], model.predict_proba(x), atol=1e-6)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.sampled_from(CLASSIFIERS), st.integers(0, 2**16))
def test_the_order_of_rows_does_not_matter(kind, seed):
    x, _, y = pool(seed=seed)
    order = np.random.default_rng(seed).permutation(60)
    model, other = kind().fit(x, y), kind().fit(x[order], y[order])
    assert np.allclose(other.label_distributions_, model.label_distributions_[order], atol=1e-6)
    assert np.allclose(other.prototypes_, model.prototypes_, atol=1e-6)


def test_new_rows_are_answered_one_by_one_as_all_together(classifier):
    x, _, y = pool()
    new = pool(seed=1)[0]
    together = classifier.fit(x, y).predict_proba(new)
    one_by_one = np.vstack([classifier.predict_proba(row[None]) for row in new])
    assert np.allclose(together, one_by_one, atol=1e-12)


def test_float32_stays_float32_and_agrees_with_float64(classifier):
    x, _, y = pool(dtype=np.float32)
    single, double = clone(classifier).fit(x, y), clone(classifier).fit(x.astype(np.float64), y)
    for name in ("label_distributions_", "prototypes_"):
        assert getattr(single, name).dtype == np.float32
        assert np.allclose(getattr(single, name), getattr(double, name), atol=1e-4)
    assert single.predict_proba(x).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, object])
def test_other_dtypes_become_float64(classifier, dtype):
    x, _, y = pool()
    rounded = x.astype(np.uint8)
    model = clone(classifier).fit(rounded.astype(dtype), y)
    assert model.label_distributions_.dtype == np.float64
    assert np.array_equal(model.transduction_, classifier.fit(rounded.astype(np.float64), y).transduction_)


def test_hyper_parameters_may_be_numpy_scalars():
    x, _, y = pool(dtype=np.float32)
    plain = BMSClassifier(lam=9.0, epochs=3).fit(x, y)
    model = BMSClassifier(lam=np.float64(9), epochs=np.int64(3)).fit(x, y)
    assert model.predict_proba(x).dtype == np.float32
    assert np.array_equal(model.label_distributions_, plain.label_distributions_)
    soft = SoftKMeansClassifier(temperature=np.float64(4)).fit(x, y)
    assert soft.predict_proba(x).dtype == np.float32


# the chain


def test_new_rows_use_the_means_of_the_fit():
    x = pool()[0]
    model = PEME("EMnZ").fit(x)
    assert np.allclose(model.transform(x[:1]), model.fit_transform(x)[:1])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert np.allclose(PEME("EMn").fit(x).transform(x[:1]), unit[:1] - unit.mean(axis=0))


def test_base_features_give_mb_its_mean():
    x, base = pool()[0], pool(seed=1)[0]
    root = np.sqrt(base + 1e-6)
    mean = (root / np.linalg.norm(root, axis=1, keepdims=True)).mean(axis=0)
    assert np.allclose(PEME("PEMb", base=base).fit_transform(x), PEME("PE").fit_transform(x) - mean, atol=1e-6)
    _, _, y = pool()
    assert NearestClassMean("PEMbE", base=base).fit(x, y).predict(x).shape == (60,)


def test_changing_the_chain_after_fit_waits_for_the_next_fit(classifier):
    x, _, y = pool()
    before = classifier.fit(x, y).predict_proba(x)
    assert np.array_equal(classifier.set_params(preprocess="Z").predict_proba(x), before)


# bad input


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_what_is_not_finite_is_named_by_row_and_column(classifier, value, word):
    x, _, y = pool()
    bad = x.copy()
    bad[[7, 9], [5, 2]] = value
    for call in (lambda: clone(classifier).fit(bad, y), lambda: classifier.fit(x, y).predict(bad)):
        with pytest.raises(InputError, match=f"X is {word} in row 7, column 5"):
            call()
    with pytest.raises(InputError, match=f"base is {word} in row 7, column 5"):
        PEME("EMb", base=bad).fit(x)


def test_negative_entries_under_the_power_are_named_and_the_signed_power_suggested(classifier):
    x, _, y = pool()
    x[7, 5] = -2
    with pytest.raises(InputError, match=r"row 7, column 5 is -2.*Ps"):
        classifier.fit(x, y)
    with pytest.raises(InputError, match=r"base.*row 7, column 5 is -2.*Ps"):
        PEME("PEMb", base=x).fit(abs(x))
    assert classifier.set_params(preprocess="PsEMnE").fit(x, y).predict(x).shape == (60,)


def test_base_features_that_are_missing_or_of_another_width_are_refused():
    x = pool()[0]
    with pytest.raises(InputError, match="Mb needs the base classes"):
        PEME("PEMbE").fit(x)
    with pytest.raises(InputError, match="base has 20 columns and X has 24"):
        PEME("PEMbE", base=x[:, :20]).fit(x)


def test_unknown_steps_and_variants_are_refused_by_name():
    x, _, y = pool()
    with pytest.raises(InputError, match="unknown preprocessing step 'Q'"):
        PEME("PEQ").fit(x)
    with pytest.raises(InputError, match="did you mean 'robust'"):
        BMSClassifier(variant="robus").fit(x, y)


def test_zero_rows_are_told_and_stay_zero():
    x = pool()[0]
    x[[3, 8]] = 0
    with pytest.warns(DataWarning, match="2 rows are zero"):
        prepared = PEME("E").fit_transform(x)
    assert not prepared[[3, 8]].any()


# pipelines


def test_estimators_survive_pickling_cloning_and_searching(classifier):
    x, truth, y = pool()
    classifier.fit(x, y)
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert clone(classifier).get_params() == classifier.get_params()
    search = GridSearchCV(classifier, {"preprocess": ["PE", "PEMnE"]}, cv=2).fit(x, truth)
    assert search.best_score_ > 0.9
    assert (
        cross_val_score(make_pipeline(PEME(), clone(classifier).set_params(preprocess="")), x, truth, cv=2).min() > 0.9
    )


def test_pandas_names_go_through_the_transformer_and_are_checked_by_classifiers(classifier):
    pandas = pytest.importorskip("pandas")
    x, _, y = pool()
    frame = pandas.DataFrame(x, columns=[f"f{i}" for i in range(24)])
    prepared = PEME().set_output(transform="pandas").fit_transform(frame)
    assert prepared.columns.tolist() == frame.columns.tolist()
    assert PEME().fit(frame).get_feature_names_out().tolist() == frame.columns.tolist()
    classifier.fit(frame, pandas.Series(y))
    assert classifier.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame.rename(columns={"f0": "other"}))


# real and large pools


@pytest.fixture(scope="module")
def real_pools(exact):
    """Four draws of 5 classes, 5 shots and 1,000 unlabelled rows, 300 to 100 a class, and BMS fitted to each."""
    draws = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        shots, rest = [], []
        for kind, size in zip(random.choice(exact.classes, 5, replace=False), (300, 250, 200, 150, 100), strict=True):
            rows = random.permutation(np.flatnonzero(exact.labels == kind))
            shots.append(rows[:5])
            rest.append(rows[5 : 5 + size])
        rows = np.concatenate([*shots, *rest])
        truth = exact.labels[rows]
        draws.append((exact.features[rows], truth, np.where(np.arange(len(rows)) < 25, truth, -1)))
    with threadpool_limits(1):  # more threads only wait for each other on arrays this small
        return draws, [BMSClassifier().fit(x, y) for x, _, y in draws]


@pytest.mark.slow
def test_bms_labels_unbalanced_real_pools_better_than_nearest_class_means(real_pools):
    gain = []
    for (x, truth, y), bms in zip(*real_pools, strict=True):
        found, nearest = bms.transduction_, NearestClassMean().fit(x, y).transduction_
        gain.append(np.mean(found[y < 0] == truth[y < 0]) - np.mean(nearest[y < 0] == truth[y < 0]))
    assert np.mean(gain) > 0.005


@pytest.mark.slow
def test_bms_predicts_the_rows_of_its_pool_one_by_one_as_it_labelled_them_together(real_pools):
    for (x, _, y), bms in zip(*real_pools, strict=True):
        assert np.mean(bms.predict(x[y < 0]) == bms.transduction_[y < 0]) > 0.98


_LARGE_POOL = """
import resource
import numpy as np
from sinkshot.estimators import BMSClassifier

truth = np.arange(20_000) % 20
x = np.random.default_rng(0).random((20_000, 640), dtype=np.float32)
x[np.arange(20_000), truth] += 3
y = np.where(np.arange(20_000) < 100, truth, -1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = BMSClassifier(epochs=1).fit(x, y)  # "auto" is 40 of that step: as much memory, more time
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown / 1024, np.mean(model.transduction_ == truth))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss counts KiB on Linux only")
def test_a_pool_of_20000_rows_fits_into_a_quarter_of_a_gigabyte():
    done = subprocess.run([sys.executable, "-c", _LARGE_POOL], check=True, capture_output=True, text=True)
    mebibytes, accuracy = map(float, done.stdout.split())
    assert mebibytes < 256  # the rows alone are 49; one 20,000 x 20,000 float32 matrix is 1,526
    assert accuracy > 0.95
