"""Preprocessing: the grammar, and each step against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkshot import DataWarning, FeatureBank, InputError, Task
from sinkshot.preprocess import (
    apply,
    base_statistics,
    centred_apart,
    centred_by_classes,
    centring,
    parse,
    run,
    spell,
    split,
)

STEPS = ("P", "Ps", "E", "Mn", "Mb", "Z", "Ma", "Mc", "B", "P0.3", "Ps2")
OF_TASK = {"Mn", "Ma", "Mc", "Z", "B"}


def possible(steps):
    """P comes before every mean, or after B, whose affinities are not negative."""
    signed = False
    for step in steps:
        if signed and step in ("P", "P0.3"):
            return False
        signed = step != "B" and (signed or step[0] in "MZ")
    return True


@given(st.lists(st.sampled_from(STEPS), max_size=6).filter(possible))
def test_a_chain_is_read_and_spelt_back(steps):
    assert spell(parse("".join(steps))) == "".join(steps)


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ("PEX", "'X'"),
        ("PEME", "Mn .*Ma .*Mb .*or Mc"),
        ("pe", "'pe'"),
        ("P0E", "is 0"),
        ("MnPE", "use Ps"),
        ("MaP", "use Ps"),
        (None, "'PEMnE'"),
    ],
)
def test_an_unknown_step_is_named(chain, words):
    with pytest.raises(InputError, match=words):
        parse(chain)


def rows(n=12, d=7, seed=0):
    return np.random.default_rng(seed).gamma(1.0, 1.0, size=(n, d))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_each_step_is_its_formula():
    x = rows()
    np.testing.assert_allclose(run(x, parse("P")).x, np.sqrt(x + 1e-6))
    np.testing.assert_allclose(run(x, parse("P0.3")).x, (x + 1e-6) ** 0.3)
    np.testing.assert_allclose(run(x - 1, parse("Ps")).x, np.sign(x - 1) * np.sqrt(np.abs(x - 1)))
    np.testing.assert_allclose(run(x, parse("E")).x, unit(x))
    np.testing.assert_allclose(run(x, parse("Mn")).x, x - x.mean(axis=0))
    np.testing.assert_allclose(run(x, parse("Z")).x, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5))
    np.testing.assert_allclose(run(x, ()).x, x)


def test_peme_is_power_unit_mean_unit(xp):
    x = rows()
    y = unit(np.sqrt(x + 1e-6))
    expected = unit(y - y.mean(axis=0))
    task = Task(xp.asarray(x[None, :2]), xp.asarray([[0, 1]]), xp.asarray(x[None, 2:]), way=2)
    done = apply(task, "PEMnE")
    np.testing.assert_allclose(np.asarray(done.support)[0], expected[:2])
    np.testing.assert_allclose(np.asarray(done.query)[0], expected[2:])


@pytest.mark.parametrize("prefix", ["", "P", "E", "PE"])
def test_mb_takes_the_base_mean_at_its_point_of_the_chain(prefix):
    x, base_rows = rows(), rows(50, seed=1).astype(np.float32)
    base = FeatureBank.from_arrays(base_rows, np.repeat(np.arange(5), 10))
    there = run(base_rows, parse(prefix)).x.mean(axis=0, dtype=np.float64)
    got = run(x, parse(prefix + "Mb"), base=base_statistics({}, base)).x
    np.testing.assert_allclose(got, run(x, parse(prefix)).x - there, atol=1e-6)
    stored = run(x, parse(prefix + "Mb"), base=base_statistics({prefix: there}, None)).x
    np.testing.assert_allclose(stored, got, atol=1e-6)


def test_mb_without_base_classes_says_what_to_do():
    with pytest.raises(InputError, match="--base FILE"):
        run(rows(), parse("PEMbE"), base=base_statistics({"": np.zeros(7)}, None))
    with pytest.raises(InputError, match="use Mn"):
        run(rows(), parse("Mb"))


def test_mb_after_the_task_mean_is_refused():
    base = FeatureBank.from_arrays(rows(10), np.arange(10) % 2)
    with pytest.raises(InputError, match="cannot follow 'Mn'"):
        run(rows(), parse("MnMb"), base=base_statistics({}, base))


@pytest.mark.parametrize("prefix", ["", "PEMb"])
def test_wb_divides_by_the_spread_within_base_classes_at_its_point_of_the_chain(prefix, xp):
    x, base_rows = rows(), rows(60, seed=1).astype(np.float32)
    base = FeatureBank.from_arrays(base_rows, np.arange(60) % 6)
    statistics = base_statistics({}, base)
    there = run(base_rows.astype(np.float64), parse(prefix), base=statistics).x
    within = there - np.stack([there[k::6].mean(axis=0) for k in range(6)])[np.arange(60) % 6]
    values, directions = np.linalg.eigh(within.T @ within / 60)
    shorter = np.sqrt(3 * values.mean() / (values + 3 * values.mean()))
    expected = run(x, parse(prefix), base=statistics).x @ (directions * shorter) @ directions.T
    got = run(xp.asarray(x), parse(prefix + "Wb3"), base=statistics).x
    np.testing.assert_allclose(np.asarray(got), expected, atol=1e-5)


def test_wb_is_row_wise_and_undoes_a_direction_in_which_classes_spread():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(8, 12))
    noise = rng.normal(size=(8, 30, 12)) * np.array([6.0] + [0.3] * 11)
    base = FeatureBank.from_arrays((means[:, None] + noise).reshape(-1, 12), np.repeat(np.arange(8), 30))
    after = run(base.features, parse("Wb0.1"), base=base_statistics({}, base)).x
    before, behind = (np.abs(x.std(axis=0)) for x in (base.features, after))
    assert before[0] > 4 * before[1:].max()
    assert behind[0] < behind[1:].max()
    half = run(base.features[:5], parse("Wb0.1"), base=base_statistics({}, base)).x
    np.testing.assert_allclose(half, after[:5], rtol=0, atol=1e-6 * np.abs(after[:5]).max())  # any order of sums


def test_wb_without_labelled_base_features_says_what_to_do():
    one = FeatureBank.from_arrays(rows(10), np.zeros(10))
    for base in (None, one):
        with pytest.raises(InputError, match=r"Wb after 'PEMbE' needs features of the base classes.*--base FILE"):
            run(rows(), parse("PEMbEWbE"), base=base_statistics({"PE": np.zeros(7)}, base))
    with pytest.raises(InputError, match="leave Wb out"):
        run(rows(), parse("Wb"))
    with pytest.raises(InputError, match="the shrinkage of Wb in 'Wb0' is 0"):
        parse("Wb0")
    assert str(parse("PEMbEWb3E")[4]) == "Wb3"


def test_negative_entries_under_p_are_named(xp):
    x = rows()
    x[4, 2] = -0.25
    with pytest.raises(InputError, match=r"row 4, column 2 is -0\.25.*Ps"):
        run(xp.asarray(x), parse("PE"))


def test_a_zero_vector_stays_zero_with_one_warning(xp):
    x = rows()
    x[[3, 5]] = 0
    task = Task(xp.asarray(x[None, :2]), xp.asarray([[0, 1]]), xp.asarray(x[None, 2:]), way=2)
    with pytest.warns(DataWarning, match="2 rows are zero") as caught:
        done = apply(task, "E")
    assert len(caught) == 1
    assert np.asarray(done.query)[0, 1].tolist() == [0.0] * 7


def test_statistics_of_one_run_serve_another():
    x, new = rows(), rows(3, seed=5)
    first = run(x, parse("PEMnE"))
    together = run(np.vstack([x, x]), parse("PEMnE"), statistics=first.statistics).x
    np.testing.assert_allclose(together[:12], first.x)
    y = unit(np.sqrt(x + 1e-6)).mean(axis=0)
    expected = unit(unit(np.sqrt(new + 1e-6)) - y)
    np.testing.assert_allclose(run(new, parse("PEMnE"), statistics=first.statistics).x, expected)


@given(st.lists(st.sampled_from(STEPS[:8]), max_size=5).filter(possible))
def test_a_chain_is_its_row_wise_part_and_the_rest(steps):
    chain = parse("".join(steps))
    row_wise, task_wise = split(chain)
    assert row_wise + task_wise == chain
    assert not {s.name for s in row_wise} & OF_TASK
    assert not task_wise or task_wise[0].name in OF_TASK


def test_supports_and_queries_are_centred_apart(xp):
    x = rows()
    task = Task(xp.asarray(x[None, :4]), xp.asarray([[0, 1, 0, 1]]), xp.asarray(x[None, 4:]), way=2)
    done = apply(task, "EMa")
    np.testing.assert_allclose(np.asarray(done.support)[0], unit(x)[:4] - unit(x)[:4].mean(axis=0))
    np.testing.assert_allclose(np.asarray(done.query)[0], unit(x)[4:] - unit(x)[4:].mean(axis=0))


def test_affinities_of_a_task_are_symmetric_in_kind_and_one_on_the_diagonal(xp):
    x = rows()
    task = Task(xp.asarray(x[None, :4]), xp.asarray([[0, 1, 0, 1]]), xp.asarray(x[None, 4:]), way=2)
    done = apply(task, "PEMnB")
    t = np.concatenate([np.asarray(done.support)[0], np.asarray(done.query)[0]])
    assert t.shape == (12, 12)
    np.testing.assert_allclose(np.diag(t), 1.0)
    off = t[~np.eye(12, dtype=bool)]
    assert off.max() == pytest.approx(1.0)
    assert off.min() > 0
    assert np.abs(t - t.T).max() < 0.1  # Sinkhorn was stopped on the way


@pytest.mark.parametrize("step", ["Ma", "B"])
def test_rows_that_are_no_task_cannot_be_centred_apart_nor_compared(step):
    with pytest.raises(InputError, match="needs a task of supports and queries"):
        run(rows(), parse(step))


def test_the_mean_of_class_means_takes_the_mean_of_the_task_as_one_more_support(xp):
    x = unit(rows())
    task = Task(xp.asarray(x[None, :4]), xp.asarray([[0, 1, 0, 0]]), xp.asarray(x[None, 4:]), way=2)
    done = apply(task, "Mc")
    mean = x.mean(axis=0)
    centre = ((x[0] + x[2] + x[3] + mean) / 4 + (x[1] + mean) / 2) / 2
    np.testing.assert_allclose(np.asarray(done.support)[0], x[:4] - centre, atol=1e-12)
    np.testing.assert_allclose(np.asarray(done.query)[0], x[4:] - centre, atol=1e-12)


def test_rows_without_classes_have_no_mean_of_class_means():
    with pytest.raises(InputError, match="Mc needs a task with the labels of its supports"):
        run(rows(), parse("EMc"))


@pytest.mark.parametrize("chain", ["", "Mn", "MnE", "Ma", "MaE", "Mc", "McE"])
def test_what_a_chain_does_to_a_task_can_be_done_to_its_inner_products(chain):
    x = unit(rows())[None]
    labels = np.array([[0, 1, 1, 2, 1]])
    found = centring(parse(chain))
    done = run(x, parse(chain), supports=5, labels=labels).x
    assert (found.centre, found.normalise) == ("Mn" in chain, "E" in chain)
    if not (found.apart or found.classes):
        return
    before = x - x.mean(axis=1, keepdims=True)
    for y in (x, before):  # a task's mean taken away beforehand changes nothing
        gram = y @ y.swapaxes(1, 2)
        if found.apart:
            got = centred_apart(gram, 5, found.normalise)
        else:
            got = centred_by_classes(gram, labels, found.normalise)
        np.testing.assert_allclose(got, done @ done.swapaxes(1, 2), atol=1e-12)


@pytest.mark.parametrize("chain", ["Z", "EMn", "MnEMn", "B", "MaEB"])
def test_other_chains_need_the_features(chain):
    assert centring(parse(chain)) is None


def test_a_row_on_the_mean_of_its_part_is_zero_among_inner_products():
    x = rows().astype(np.float32)[None]
    x[0, 5:] = x[0, 5]  # all queries alike
    centred = x - x.mean(axis=1, keepdims=True)
    got = centred_apart(centred @ centred.swapaxes(1, 2), 5, normalise=True)
    assert (got[0, 5:] == 0).all()
    np.testing.assert_allclose(np.diag(got[0])[:5], 1.0, rtol=1e-5)


def test_base_features_go_through_the_row_wise_part_of_the_chain():
    base = FeatureBank.from_arrays(rows(50, seed=1), np.repeat(np.arange(5), 10))
    task = Task(rows()[None, :2], np.array([[0, 1]]), rows()[None, 2:], 2, base)
    done = apply(task, "PEMbEMnE")
    expected = unit(np.sqrt(base.features.astype(np.float64) + 1e-6))
    np.testing.assert_allclose(done.base.features, unit(expected - expected.mean(axis=0)), atol=1e-5)
    assert done.base is apply(task, "PEMbE").base  # made once
    assert apply(task, "MnE").base is base
    assert apply(Task(task.support, task.labels, task.query, 2), "PE").base is None


def test_a_stored_mean_serves_base_features_as_it_serves_rows():
    base = FeatureBank.from_arrays(rows(50, seed=1), np.repeat(np.arange(5), 10))
    task = Task(rows()[None, :2], np.array([[0, 1]]), rows()[None, 2:], 2, base)
    done = apply(task, "Mb", {"": np.full(7, 0.5, np.float32)})
    np.testing.assert_allclose(done.base.features, base.features - 0.5, atol=1e-6)
    np.testing.assert_allclose(done.query, task.query - 0.5)


@pytest.mark.parametrize(("rows", "width"), [(12, 30), (40, 9), (20, 20)])
def test_w_divides_by_the_shrunken_spread_in_every_direction(rows, width):
    x = np.random.default_rng(0).normal(size=(2, rows, width)) * np.linspace(0.1, 3, width)
    found = run(x, parse("W2")).x
    for one, expected in zip(x, found, strict=True):
        covariance = np.cov(one.T, bias=True)
        level = 2 * np.trace(covariance) / min(rows - 1, width)
        values, vectors = np.linalg.eigh(covariance + level * np.eye(width))
        direct = one @ vectors / np.sqrt(values) @ vectors.T
        np.testing.assert_allclose(expected, direct * np.sqrt(level), rtol=1e-6, atol=1e-9)


def test_w_leaves_equal_rows_as_they_are_and_follows_the_scale():
    equal = np.ones((5, 3))
    np.testing.assert_array_equal(run(equal, parse("W")).x, equal)
    x = np.random.default_rng(0).normal(size=(30, 6))
    np.testing.assert_allclose(run(7 * x, parse("W")).x, 7 * run(x, parse("W")).x)


def test_the_shrinkage_of_w_is_written_where_it_is_not_10():
    assert [str(step) for step in parse("WW10W3.5")] == ["W", "W", "W3.5"]
    with pytest.raises(InputError, match="shrinkage of W"):
        parse("PEW0E")
