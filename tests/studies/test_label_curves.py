"""Label curves: pools of three kinds, fair rows to measure on, and a report of what strategies reached."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import sinkshot

from sinkshot import FeatureBank, InputError
from sinkshot.selection import STRATEGIES
from sinkshot.studies import parse
from sinkshot.studies.label_curves import (
    CLASSIFIERS,
    POOLS,
    STRANGER,
    area,
    curve,
    difference,
    draw_pool,
    label_curves,
    summary,
)


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 40)
    features = rng.gamma(1 + 3.0 * (labels[:, None] == np.arange(48) % 8)).astype(np.float32)
    return FeatureBank(features, labels, tuple("abcdefgh"))


@pytest.mark.parametrize("kind", POOLS)
def test_a_pool_depends_on_its_seed_alone_and_every_class_can_be_asked_about_and_is_measured(bank, kind):
    one, again, other = (draw_pool(bank, kind, 5, 40, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.rows, again.rows)
    assert not np.array_equal(one.rows, other.rows)
    for c in range(5):
        assert one.test[one.truth == c].any()
        assert not one.test[one.truth == c].all()
    assert (one.truth == STRANGER).any() == (kind == "strangers")
    counts = np.bincount(one.truth[one.truth >= 0])
    assert (counts.max() / counts.min() == 10) == (kind == "long-tail")


def test_strangers_need_a_class_more(bank):
    with pytest.raises(InputError, match="9 classes are needed"):
        draw_pool(bank, "strangers", 8, 40, 0)


@pytest.mark.parametrize(
    "classifier", [pytest.param(name, marks=pytest.mark.slow if name == "sinkshot" else ()) for name in CLASSIFIERS]
)
@pytest.mark.parametrize("kind", POOLS)
def test_curves_begin_at_nothing_and_end_near_the_truth(bank, classifier, kind):
    measured = curve(draw_pool(bank, kind, 5, 40, 0), STRATEGIES["expected-gain"].choose, CLASSIFIERS[classifier], 4)
    accuracy, macro, found, strangers = measured.T
    assert measured[0].tolist() == [0, 0, 0, 0]
    assert found[-1] == 1
    assert (np.diff(found) >= 0).all()
    assert accuracy[-1] > 0.9
    assert macro[-1] > 0.7
    assert (strangers > 0).any() <= (kind == "strangers")


def test_no_row_that_is_measured_is_ever_asked_about(bank):
    drawn = draw_pool(bank, "balanced", 5, 40, 1)
    asked = []

    def choose(pool, count):
        asked.append(STRATEGIES["random"].choose(pool, count))
        return asked[-1]

    curve(drawn, choose, CLASSIFIERS["ncm"], 6)
    rows = np.concatenate(asked)
    assert len(set(rows)) == 30
    assert not drawn.test[rows].any()


@pytest.mark.slow
def test_a_class_without_a_label_counts_as_wrong(bank):
    drawn = draw_pool(bank, "balanced", 5, 40, 1)

    def only_two_classes(pool, count):
        return [int(row) for row in pool.candidates if drawn.truth[row] < 2][:count]

    measured = curve(drawn, only_two_classes, CLASSIFIERS["sinkshot"], 3)
    assert measured[-1, 2] == 0.4
    assert 0.3 < measured[-1, 0] <= 0.4


@pytest.mark.slow
def test_labels_spent_on_strangers_alone_leave_nothing_known(bank):
    drawn = draw_pool(bank, "strangers", 5, 40, 1)

    def only_strangers(pool, count):
        return [int(row) for row in pool.candidates if drawn.truth[row] == STRANGER][:count]

    assert curve(drawn, only_strangers, CLASSIFIERS["sinkshot"], 2)[1:].tolist() == [[0, 0, 0, 1]] * 2


@pytest.mark.slow
def test_strategies_see_the_same_draws_and_ours_is_above_random(bank):
    options = {"pool": "long-tail", "classifier": "sinkshot", "classes": 5, "rows": 40, "labels": 3, "seed": 0}
    facts = label_curves(bank, 4, **options)
    assert json.loads(json.dumps(facts)) == facts
    assert set(facts["strategies"]) == set(STRATEGIES)
    again = label_curves(bank, 4, **options, strategies=("random",))
    assert again["strategies"]["random"] == facts["strategies"]["random"]
    ours, random = (facts["strategies"][name]["accuracy"]["areas"] for name in ("expected-gain", "random"))
    assert difference(ours, random)[0] > 0.03


def test_the_area_is_the_mean_height_of_the_curve():
    assert area(np.array([0.0, 1.0, 1.0])) == pytest.approx(0.75)
    told = summary(np.full((3, 5, 4), 0.5))
    assert told["accuracy"]["areas"] == [0.5, 0.5, 0.5]
    assert told["accuracy"]["half_width"] == [0] * 5


def test_the_study_asks_for_every_pool_bank_and_classifier_and_names_a_wrong_one(tmp_path):
    study = parse.find("next-labels")
    asked = {(m.bank.data_set, dict(m.options)["pool"], dict(m.options)["classifier"]) for m in study.measures()}
    assert asked == {(d, p, c) for d in ("cifar-fs", "cub") for p in POOLS for c in CLASSIFIERS}
    text = (
        'title = "x"\nkind = "label-curves"\n[[sheets]]\ndata_set = "a"\nbackbone = "b"\noptions = { pool = "odd" }\n'
    )
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(InputError, match=r"line 6.*pool is one of balanced, long-tail, strangers"):
        parse.find(str(tmp_path / "odd.toml"))


@pytest.mark.slow
def test_reproduce_writes_curves_and_a_table(bank, tmp_path):
    (tmp_path / "banks").mkdir()
    bank.save(tmp_path / "banks" / "toys_conv4_novel.safetensors")
    options = '{ pool = "strangers", draws = 2, rows = 30, labels = 2 }'
    sheet = f'[[sheets]]\ndata_set = "toys"\nbackbone = "conv4"\noptions = {options}\n'
    text = f'title = "Toys next"\nkind = "label-curves"\n{sheet}'
    (tmp_path / "toys.toml").write_text(text)
    ran = sinkshot("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "report", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "expected-gain" in ran.stdout
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("<svg") >= 3
    assert "labels of strangers" in page
    assert "| expected-gain |" in (tmp_path / "report" / "report.md").read_text()
