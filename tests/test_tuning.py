"""Hyper-parameter search: on validation classes only, on the same episodes, against the published defaults."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from array_api_compat import array_namespace

import sinkshot
from sinkshot import METHODS, FeatureBank, InputError, Recipe, Scores, register, tune
from sinkshot.classes import check_split, others, part
from sinkshot.methods import ncm
from sinkshot.tuning import Stopped, _rounds, written

RECIPE = Recipe(way=4, shot=1, query=5, episodes=60)


@pytest.fixture
def bank():
    """Classes that overlap, so that there is something to gain."""
    rng = np.random.default_rng(1)
    x = np.abs(np.repeat(rng.gamma(1.0, 1.0, (8, 12)), 40, axis=0) + 0.7 * rng.normal(size=(320, 12)))
    return FeatureBank.from_arrays(x.astype(np.float32), np.repeat(np.arange(8), 40), meta={"split": "validation"})


@pytest.fixture
def blend():
    """A method with a weak default: share 0 guesses, share 1 is NCM."""
    seen = []

    @register("blend", transductive=False, preprocess="E", reference="nobody", imbalanced={"share": 0.5})
    def function(task, *, share=0.0, tag="", pair=(1, 2)):
        """Mix NCM with a guess."""
        seen.append((share, tag, task.query.shape[0]))
        right = ncm.ncm(task).probabilities
        xp = array_namespace(right)
        guess = xp.zeros_like(right)
        guess[..., 0] = 1
        return Scores(share * right + (1 - share) * guess)

    yield seen
    del METHODS["blend"]


# --- what is chosen -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_best_candidate_is_found_and_beats_the_default_on_fresh_episodes(bank, blend):
    found = tune(bank, RECIPE, method="blend", grid={"share": [0.0, 0.1, 0.6, 1.0], "tag": ["", "x"]})
    assert found.improved
    assert found.best.hyper["share"] == 1.0
    assert found.check.difference > found.check.ci95 > 0
    assert "--set share=1.0" in found.best.options


def test_where_nothing_is_to_be_gained_the_default_stays(bank):
    found = tune(bank, RECIPE, method="matching", grid={"temperature": [0.9, 1.1]})
    assert not found.improved
    assert found.best is found.default
    assert found.best.options == ""


def test_a_gain_on_the_episodes_of_the_search_alone_is_not_taken(bank, blend):
    """Many candidates that differ by chance: the best looks better than the default until fresh episodes are drawn."""

    @register("dice", transductive=False, preprocess="E", reference="nobody")
    def dice(task, *, seed=0):
        """Answer by a hash of the features."""
        noise = np.sin(1e4 * (seed + 1) * task.query.sum(axis=-1, keepdims=True) * np.arange(1, task.way + 1)) + 1
        return Scores(noise / noise.sum(axis=-1, keepdims=True))

    try:
        found = tune(bank, RECIPE, method="dice", grid={"seed": list(range(1, 33))})
    finally:
        del METHODS["dice"]
    assert found.candidates[0].mean > found.default.mean  # the winner's curse
    assert not found.improved


def test_all_candidates_see_the_same_episodes_and_the_check_sees_others(bank, blend):
    found = tune(bank, RECIPE, method="blend", grid={"share": [1.0]})
    whole = sinkshot.evaluate(bank, dataclasses.replace(RECIPE, episodes=120), method="blend", share=1.0)
    usual = sinkshot.evaluate(bank, dataclasses.replace(RECIPE, episodes=120), method="blend")
    np.testing.assert_array_equal(found.candidates[0].values, whole.per_episode[:60])
    np.testing.assert_array_equal(found.default.values, usual.per_episode[:60])
    apart = whole.per_episode[60:] - usual.per_episode[60:]
    assert found.check.difference == pytest.approx(apart.mean())


def test_half_of_the_field_leaves_after_each_round_while_episodes_double(bank, blend):
    shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    found = tune(bank, dataclasses.replace(RECIPE, episodes=200), method="blend", grid={"share": shares})
    assert sorted(len(one.values) for one in found.candidates) == [50] * 4 + [100] * 2 + [200] * 2
    assert sum(count for *_, count in blend) == 9 * 50 + 5 * 50 + 3 * 100 + 2 * 200  # the default and the check too


@pytest.mark.parametrize(("candidates", "episodes"), [(1, 500), (2, 30), (12, 500), (500, 40), (7, 3)])
def test_rounds_end_with_all_episodes_and_never_shrink(candidates, episodes):
    ends = _rounds(candidates, episodes)
    assert ends[-1] == episodes
    assert ends == sorted(set(ends))


def test_chains_can_be_chosen_too(bank):
    found = tune(bank, RECIPE, method="ncm", preprocess=["", "PE", "PEMbE"], base=bank)
    assert {one.preprocess for one in found.candidates} == {"", "PE"}  # PEMbE is the default


def test_published_values_are_no_candidates_and_under_dirichlet_those_for_unequal_sizes(bank, blend):
    balanced = tune(bank, RECIPE, method="blend", grid={"share": [0, 0.5]})
    unequal = tune(bank, dataclasses.replace(RECIPE, protocol="dirichlet"), method="blend", grid={"share": [0, 0.5]})
    assert [one.hyper for one in balanced.candidates] == [{"share": 0.5}]
    assert [one.hyper for one in unequal.candidates] == [{"share": 0}]


def test_random_candidates_are_drawn_once_each_and_by_the_seed(bank, blend):
    grid = {"share": [0.2, 0.4, 0.6, 0.8], "tag": list("abcdef")}

    def drawn(seed):
        found = tune(bank, dataclasses.replace(RECIPE, seed=seed, episodes=4), method="blend", grid=grid, random=6)
        return {one.options for one in found.candidates}

    assert len(drawn(0)) == 6
    assert drawn(0) == drawn(0) != drawn(1)


@pytest.mark.parametrize("metric", ["auroc", "aupr", "fpr95"])
def test_a_measure_of_the_open_set_can_be_what_is_chosen_by(bank, blend, metric):
    recipe = dataclasses.replace(RECIPE, protocol="open-set")
    found = tune(bank, recipe, method="blend", grid={"share": [0.9]}, metric=metric)
    result = sinkshot.evaluate(bank, recipe, method="blend", share=0.9)
    np.testing.assert_array_equal(found.candidates[0].values, result.values(metric))


def test_of_false_alarms_the_fewest_are_chosen(bank):
    recipe = dataclasses.replace(RECIPE, protocol="open-set", shot=5)
    found = tune(bank, recipe, method="nn-ratio", grid={"score": ["distance", "max-probability"]}, metric="fpr95")
    assert found.candidates[0].mean < found.default.mean < found.candidates[1].mean
    assert found.improved
    assert found.check.difference < 0
    assert found.best.hyper == {"score": "distance"}


def test_an_interrupted_search_hands_out_what_it_has_seen(bank, blend):
    def stop(done, total):
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(Stopped) as stopped:
        tune(bank, RECIPE, method="blend", grid={"share": [0.5, 1.0]}, progress=stop)
    assert stopped.value.tuned is None  # the first round was not over
    with pytest.raises(Stopped) as stopped:
        tune(bank, RECIPE, method="blend", grid={"share": [0.5, 1.0]}, progress=lambda done, _: stop(done - 90, _))
    assert [len(one.values) for one in stopped.value.tuned.candidates] == [60, 60]
    assert not stopped.value.tuned.improved


def test_progress_ends_at_its_total_where_a_check_is_made(bank, blend):
    told = []
    tune(bank, RECIPE, method="blend", grid={"share": [0.5, 0.9, 1.0]}, progress=lambda *state: told.append(state))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_novel_classes_are_refused_with_the_reason(bundled):
    with pytest.raises(InputError, match=r"novel classes .*make that result too good.*--classes"):
        tune(bundled, RECIPE, method="bms", grid={"lam": [4]})


@pytest.mark.parametrize(
    ("split", "name", "remark"),
    [
        ("validation", "", ""),
        ("base", "", "trained on"),
        ("", "", "split of this bank is unknown"),
        ("", "mini_wrn_validation.npz", ""),
        ("", "mini_wrn_base.npz", "trained on"),
        ("validation", "cub_wrn_novel.npz", ""),  # meta comes before the name
    ],
)
def test_other_classes_are_taken_with_a_remark_where_one_is_due(bank, split, name, remark):
    said = check_split(dataclasses.replace(bank, meta={"split": split} if split else {}), name)
    assert remark in said
    assert bool(said) == bool(remark)


@pytest.mark.parametrize(
    ("split", "name"), [("novel", ""), ("Test", ""), ("base+novel", ""), ("", "a/cub_wrn_novel.plk")]
)
def test_whatever_says_novel_is_refused(bank, split, name):
    with pytest.raises(InputError, match="novel classes"):
        check_split(dataclasses.replace(bank, meta={"split": split} if split else {}), name)


def test_a_part_of_the_classes_may_be_of_any_split(bundled):
    recipe = Recipe(episodes=4)
    found = tune(bundled, recipe, method="ncm", preprocess=["E"], classes="0-4,7")
    some = part(bundled, "0-4,7")
    assert some.class_names == (*bundled.class_names[:5], bundled.class_names[7])
    np.testing.assert_array_equal(some.features[some.labels == 5], bundled.features[bundled.labels == 7])
    again = sinkshot.evaluate(some, recipe, method="ncm", preprocess="E")
    np.testing.assert_array_equal(found.candidates[0].values, again.per_episode)
    assert others(bundled, "0-4,7") == "5-6,8-19"


@pytest.mark.parametrize("classes", ["", "a", "3-1", "0-20", "1,,2", "-1"])
def test_classes_that_do_not_exist_are_refused(bundled, classes):
    with pytest.raises(InputError, match="classes"):
        part(bundled, classes)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"grid": {"lamb": [1]}}, "did you mean 'lam'"),
        ({"grid": {"lam": []}}, "values of lam"),
        ({"grid": {"lam": "48"}}, "values of lam"),
        ({"grid": {"lam": [8.5]}}, "are the only candidate"),
        ({}, "are the only candidate"),
        ({"grid": {"lam": [-1]}}, "with --set lam=-1 cannot be evaluated: lam"),
        ({"preprocess": ["Q"]}, "Q"),
        ({"grid": {"lam": range(101), "steps": range(101)}}, "more than 10,000 combinations"),
        ({"grid": {"lam": [4]}, "random": 0}, "random"),
        ({"grid": {"lam": [4]}, "metric": "auroc"}, "open-set"),
    ],
)
def test_what_cannot_be_searched_is_said(bank, how, sentence):
    with pytest.raises(InputError, match=sentence):
        tune(bank, RECIPE, method="bms", **how)


def test_values_are_written_as_the_command_reads_them():
    from sinkshot.cli.set_option import parse_value

    for value in (None, True, False, 8.5, 1e-6, 40, "auto", [0.5, 0.25]):
        assert parse_value(written(value)) == value
