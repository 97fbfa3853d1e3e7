"""FewShotClassifier keeps scikit-learn's contract with any method, rejects rows, learns from outsiders, and reports."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sinkshot import (
    METHODS,
    PEME,
    BMSClassifier,
    DataWarning,
    FeatureBank,
    FewShotClassifier,
    InputError,
    NearestClassMean,
    SoftKMeansClassifier,
    load,
    open_set,
)
from sinkshot.estimators.auto_chain import auto_chain, mean_skewness

NAMES = np.array(["cat", "dog", "owl"], dtype=object)


def pool(sizes=(60, 60, 60), shot=4, width=48, strangers=0, seed=0, signed=False, separation=3.0):
    """Rows whose class raises every way-th column, strangers that raise others; the truth (-1: no class) and y."""
    way = len(sizes)
    truth = np.concatenate([np.tile(np.arange(way), shot), np.repeat(np.arange(way), sizes), np.full(strangers, -1)])
    column = np.arange(width)
    raised = (truth[:, None] == column % way) | ((truth[:, None] < 0) & (column // way % 4 == 0))
    x = np.random.default_rng(seed).gamma(1.0 + separation * raised)
    y = np.where(np.arange(len(truth)) < way * shot, truth, -1)
    return (x - x.mean(axis=0) if signed else x), truth, y


# scikit-learn's contract


def test_it_passes_scikit_learns_checks_but_the_one_where_minus_one_is_a_class(check_estimator):
    expected = {"check_classifiers_classes": "-1 is a class there, unlabelled here"}
    checks = check_estimator(FewShotClassifier(), expected_failed_checks=expected, on_skip=None)
    assert {check["check_name"] for check in checks if check["status"] == "xfail"} == set(expected)
    assert {check["status"] for check in checks} <= {"passed", "skipped", "xfail"}


def test_hyper_parameters_of_the_method_are_parameters():
    model = FewShotClassifier("kmeans", steps=3)
    assert model.get_params()["steps"] == 3
    assert clone(model).set_params(steps=5).steps == 5
    with pytest.raises(InputError, match=r"unknown parameter.*'stpes'.*'steps'"):
        model.set_params(stpes=3)
    with pytest.raises(InputError, match=r"unknown method 'kmens'.*kmeans"):
        FewShotClassifier("kmens").fit(*pool()[::2])


def test_a_grid_search_finds_the_hyper_parameter_that_works():
    x, truth, _ = pool(separation=1.0)
    search = GridSearchCV(FewShotClassifier("bms"), {"lam": [1e-6, 8.5], "preprocess": ["PEMnE", "MnE"]}, cv=3)
    assert search.fit(x, truth).best_score_ > 0.6


def test_it_stands_at_the_end_of_a_pipeline_and_keeps_column_names():
    x, truth, y = pool()
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(x.shape[1])])
    model = make_pipeline(StandardScaler(), FewShotClassifier()).fit(frame, y)
    assert np.mean(model.predict(frame) == truth) > 0.9
    named = FewShotClassifier().fit(frame, pd.Series(y))
    assert named.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame.rename(columns={"f0": "g0"}))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_labels_a_pool_and_new_rows(method):
    x, truth, y = pool(sizes=(12, 12, 12), shot=3)
    base = pool(seed=2, sizes=(100, 100, 100))[0] if METHODS[method].features else None
    quick = {"steps": 50} if method == "adaptive-manifold" else {}
    model = FewShotClassifier(method, base=base, **quick).fit(x.astype(np.float32), y)
    floor = 0.5 if METHODS[method].features or method == "openmax" else 0.9  # made rows are poor base classes
    assert np.mean(model.transduction_ == truth) > floor
    assert model.label_distributions_.shape == (len(x), 3)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, atol=1e-5)
    new, new_truth, _ = pool(seed=1)
    assert np.mean(model.predict(new) == new_truth) > floor


# labels


def test_strings_and_every_mark_of_the_unlabelled_give_the_same_answer():
    x, _, y = pool()
    numbers = FewShotClassifier().fit(x, y)
    for mark in (None, np.nan, "", pd.NA):
        names = [NAMES[code] if code >= 0 else mark for code in y]
        named = FewShotClassifier().fit(x, names)
        assert named.classes_.tolist() == ["cat", "dog", "owl"]
        assert np.array_equal(named.transduction_, NAMES[numbers.transduction_])


def test_labelled_rows_keep_their_label():
    x, _, y = pool()
    y[:3] = [1, 2, 0]  # wrong on purpose
    model = FewShotClassifier(unknown=0.5).fit(x, y)
    assert np.array_equal(model.transduction_[y >= 0], y[y >= 0])
    assert (model.unknown_[y >= 0] == 0).all()


# preprocessing


def test_auto_takes_the_power_for_features_that_are_never_negative_and_leaves_it_out_for_signed_ones():
    x, truth, y = pool()
    assert FewShotClassifier().fit(x, y).preprocess_.startswith("P")
    signed, _, _ = pool(signed=True)
    model = FewShotClassifier().fit(signed, y)
    assert "P" not in model.preprocess_.replace("Ps", "")
    assert np.mean(model.transduction_ == truth) > 0.9


def test_auto_leaves_the_power_out_for_features_that_are_not_skewed():
    x, _, y = pool()
    assert FewShotClassifier().fit(np.sqrt(np.sqrt(x)), y).preprocess_ == "EMcE"
    for unit in (1e-150, 1e150):
        assert mean_skewness(unit * x) == pytest.approx(mean_skewness(x))
    assert mean_skewness(np.array([[0.0], [0.0], [0.0], [1.0]] * 20)) == pytest.approx(2 / np.sqrt(3))
    few = load("cifar-fs_wrn-28-10_base").features[:6]  # too few rows to tell, as features that do not vary
    for unclear in (np.ones((60, 2)), few):
        assert auto_chain(METHODS["sinkshot"], unclear, has_base=False) == "PEMcE"


@pytest.mark.parametrize("kind", [FewShotClassifier, NearestClassMean, BMSClassifier, SoftKMeansClassifier, PEME])
def test_base_classes_are_given_as_a_bank_or_as_its_features(kind):
    x, truth, y = pool()
    y = truth if kind is NearestClassMean else y
    bank = FeatureBank(pool(seed=2)[0], np.repeat(np.arange(4), 48), ("a", "b", "c", "d"))

    def answers(base):
        model = kind(preprocess="PEMbE", base=base).fit(x, y)
        return model.transform(x) if kind is PEME else model.predict_proba(x)

    np.testing.assert_array_equal(answers(bank), answers(bank.features))
    assert not np.allclose(answers(bank), answers(np.flip(bank.features, axis=1) ** 2))
    with pytest.raises(InputError, match="base has 48 columns and X has 47"):
        kind(preprocess="PEMbE", base=bank).fit(x[:, :47], y)
    with pytest.raises(InputError, match="do not whiten by base classes"):
        kind(preprocess="PEMbEWbE", base=bank).fit(x, y)


def test_a_method_that_uses_base_classes_reads_them_from_a_bank():
    x, _, y = pool()
    bank = FeatureBank(pool(seed=2)[0], np.repeat(np.arange(4), 48), ("a", "b", "c", "d"))
    one = FeatureBank(bank.features, np.zeros(192, np.int64), ("a",))
    by_class, as_one, features = (
        FewShotClassifier("distribution-calibration", base=base, samples=60).fit(x, y).label_distributions_
        for base in (bank, one, bank.features)
    )
    np.testing.assert_array_equal(as_one, features)
    assert not np.array_equal(by_class, features)


def test_digits_are_labelled_as_well_as_by_their_neighbours():
    from sklearn.datasets import load_digits
    from sklearn.semi_supervised import LabelSpreading

    x, truth = load_digits(n_class=5, return_X_y=True)
    gains = []
    for draw in range(4):
        order = np.random.default_rng(draw).permutation(len(truth))
        y = np.full(len(truth), -1)
        for digit in range(5):
            y[order[truth[order] == digit][:5]] = digit
        found = [m.fit(x, y).transduction_ for m in (FewShotClassifier(), LabelSpreading("knn", n_neighbors=7))]
        gains.append(np.mean(found[0] == truth) - np.mean(found[1] == truth))
    assert np.mean(gains) > 0.01


def test_a_chain_of_ones_own_is_used_as_it_is():
    x, _, y = pool()
    assert FewShotClassifier(preprocess="MnE").fit(x, y).preprocess_ == "MnE"
    with pytest.raises(InputError, match="unknown preprocessing step"):
        FewShotClassifier(preprocess="Q").fit(x, y)


# the unknown


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strangers_are_rejected_and_the_others_are_not(dtype):
    x, truth, y = pool(strangers=60)
    model = FewShotClassifier(unknown=0.5).fit(x.astype(dtype), y)
    strange = truth < 0
    assert np.mean(model.transduction_[strange] == -1) > 0.9
    assert np.mean(model.transduction_[~strange] == truth[~strange]) > 0.9
    new, new_truth, _ = pool(strangers=60, seed=1)
    assert open_set.auroc(model.predict_unknown(new.astype(dtype)), new_truth < 0) > 0.95
    assert np.mean(model.predict(new.astype(dtype)) == new_truth) > 0.85


def test_without_strangers_hardly_a_row_is_rejected():
    x, _, y = pool(sizes=(150, 30, 20))
    assert np.mean(FewShotClassifier(unknown=0.5).fit(x, y).transduction_ == -1) <= 0.03


def test_among_strings_the_unknown_is_a_word():
    x, _, y = pool(strangers=60)
    names = np.where(y < 0, None, NAMES[y])
    assert set(FewShotClassifier(unknown=0.5).fit(x, names).transduction_) == {*NAMES, "unknown"}


def test_known_outsiders_teach_what_does_not_belong():
    x, truth, y = pool(strangers=60, separation=0.8)
    none = np.zeros(len(y), dtype=bool)
    none[np.flatnonzero(truth < 0)[:15]] = True
    rest = (y < 0) & ~none
    untaught = FewShotClassifier(unknown=0.5).fit(x, y).unknown_
    taught = FewShotClassifier(unknown=0.5).fit(x, y, none=none)
    assert (taught.unknown_[none] == 1).all()
    assert (taught.transduction_[none] == -1).all()
    assert open_set.auroc(taught.unknown_[rest], truth[rest] < 0) >= open_set.auroc(untaught[rest], truth[rest] < 0)


def test_a_method_without_a_probability_of_the_unknown_says_which_have_one():
    x, _, y = pool()
    with pytest.raises(InputError, match=r"bms gives no probability.*sinkshot"):
        FewShotClassifier("bms", unknown=0.5).fit(x, y)
    with pytest.raises(InputError, match=r"probability above which a row is rejected"):
        FewShotClassifier(unknown=1.5).fit(x, y)
    with pytest.raises(InputError, match=r"gives every row a class"):
        FewShotClassifier("ncm").fit(x, y).predict_unknown(x)  # it has a score, and no probability


# new rows


def test_new_rows_do_not_depend_on_each_other():
    x, _, y = pool(strangers=30)
    model = FewShotClassifier(unknown=0.5).fit(x, y)
    new = pool(seed=1, strangers=30)[0]
    np.testing.assert_allclose(model.predict_proba(new)[:5], model.predict_proba(new[:5]), atol=1e-12)
    np.testing.assert_allclose(model.predict_unknown(new)[:5], model.predict_unknown(new[:5]), atol=1e-12)


@pytest.mark.parametrize("names", [False, True])
def test_a_saved_classifier_answers_alike(tmp_path, names):
    x, _, y = pool(strangers=60)
    model = FewShotClassifier(unknown=0.4).fit(x, np.where(y < 0, None, NAMES[y]) if names else y)
    model.save(tmp_path / "model.safetensors")
    loaded = FewShotClassifier.load(tmp_path / "model.safetensors")
    new = pool(seed=1, strangers=60)[0]
    assert np.array_equal(loaded.predict(new), model.predict(new))
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert np.array_equal(loaded.predict_unknown(new), model.predict_unknown(new))
    assert loaded.get_params() == model.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(new), model.predict(new))


def test_a_damaged_model_is_refused_in_a_sentence(tmp_path):
    x, _, y = pool()
    file = tmp_path / "model.safetensors"
    FewShotClassifier().fit(x, y).save(file)
    whole = file.read_bytes()
    for cut in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            FewShotClassifier.load(file)
    file.write_bytes(whole.replace(b'\\"scale\\"', b'\\"scalp\\"'))
    with pytest.raises(InputError, match="damaged"):
        FewShotClassifier.load(file)


# what it says of itself


def test_the_report_tells_sizes_agreement_and_rejections():
    x, _, y = pool(sizes=(120, 30, 30), strangers=40, shot=6)
    report = FewShotClassifier(unknown=0.5).fit(x, y).report_
    assert (report.rows, report.labelled) == (len(x), 18)
    assert report.leave_one_out > 0.8
    assert report.agreement > 0.8
    assert np.all(np.abs(report.class_sizes - [120, 30, 30]) < 15)
    assert (report.class_size_errors >= 0).all()
    assert abs(report.rejected - 40 / 220) < 0.1
    lines = str(report).splitlines()
    assert lines[0] == f"rows: {len(x)}, of which 18 have a label"
    assert f"rejected: {report.rejected:.1%}" in lines
    assert lines[-1].startswith("estimated class sizes: ")


def test_labels_that_contradict_the_answer_are_told():
    x, _, y = pool(shot=10)
    y[:30] = np.random.default_rng(0).permutation(y[:30])
    with pytest.warns(DataWarning, match="labelled rows contradict"):
        FewShotClassifier().fit(x, y)


def test_equal_rows_are_told():
    x, _, y = pool()
    x[y < 0] = x[-1]
    with pytest.warns(DataWarning, match="all unlabelled rows are equal"):
        FewShotClassifier().fit(x, y)


@pytest.mark.filterwarnings("ignore::sinkshot.DataWarning")
@pytest.mark.parametrize("unknown", [None, 0.5])
def test_odd_pools_get_an_answer(unknown):
    x, truth, y = pool()
    model = FewShotClassifier(unknown=unknown)
    alone = np.flatnonzero(y < 0)[:1]
    one_query = np.r_[np.flatnonzero(y >= 0), alone]
    assert len(model.fit(x[one_query], y[one_query]).transduction_) == len(one_query)
    assert np.mean(model.fit(x, truth).predict(x) == truth) > 0.9  # no queries
    one_class = np.where(y == 0, 0, -1)
    assert set(model.fit(x, one_class).transduction_) <= {0, -1}
    unequal = y.copy()
    unequal[np.flatnonzero(truth == 0)[:50]] = 0
    unequal[np.flatnonzero(unequal == 1)[1:]] = -1
    assert np.isfinite(model.fit(x, unequal).label_distributions_).all()
    zero = x.copy()
    zero[-5:] = 0
    assert np.isfinite(model.fit(zero, y).label_distributions_).all()
    many = pool(sizes=(3,) * 120, shot=1, width=240, separation=20.0)
    assert np.mean(model.fit(many[0], many[2]).label_distributions_.argmax(axis=1) == many[1]) > 0.5


def forged(file, **changes):
    """Change the metadata of a saved classifier."""
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    described = json.loads(header["__metadata__"]["sinkshot-model"])
    for name, value in changes.items():
        described[name] = {**described[name], **value} if isinstance(value, dict) else value
    header["__metadata__"]["sinkshot-model"] = json.dumps(described)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


@pytest.mark.parametrize(
    "changes",
    [
        {"params": {"predict": 1}},
        {"params": {"classes_": []}},
        {"params": {"unknown": "x"}},
        {"classes": ["a", "a"]},
        {"classes": []},
        {"features": 10**12},
        {"statistics": 3},
        {"scale": float("nan")},
        {"row_wise": "PEMn"},
        {"extra": None},
    ],
)
def test_a_forged_classifier_is_refused_in_a_sentence(tmp_path, changes):
    file, rng = tmp_path / "model.safetensors", np.random.default_rng(0)
    y = np.array(["a", "b", *[None] * 18], dtype=object)
    FewShotClassifier(preprocess="PE").fit(rng.random((20, 4)), y).save(file)
    forged(file, **changes)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        FewShotClassifier.load(file)


def test_a_classifier_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.safetensors cannot be read: No such file"):
        FewShotClassifier.load(tmp_path / "gone.safetensors")


# What to label next


def test_suggest_starts_from_a_pool_without_labels():
    x, truth, _ = pool(sizes=(60, 40, 20))
    first = FewShotClassifier().suggest(6, X=x)
    assert set(truth[first]) == {0, 1, 2}
    y = np.full(len(x), -1)
    y[first] = truth[first]
    model = FewShotClassifier().fit(x, y)
    later = model.suggest(5)
    assert len(set(later) | set(first)) == 11
    assert model.suggest(5, "random").tolist() != later.tolist()


def test_suggest_refuses_rows_that_are_not_finite_and_a_classifier_without_rows():
    x, _, _ = pool()
    x[3, 2] = np.nan
    with pytest.raises(InputError, match="row 3"):
        FewShotClassifier().suggest(2, X=x)
    with pytest.raises(NotFittedError, match="give X=pool"):
        FewShotClassifier().suggest(2)
