"""Preprocessing: the grammar, and each step against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkshot import DataWarning, FeatureBank, InputError, Task
from sinkshot.preprocess import apply, base_mean_of, parse, run, spell, split

STEPS = ("P", "Ps", "E", "Mn", "Mb", "Z", "P0.3", "Ps2")


def possible(steps):
    """P comes before every mean."""
    means = [i for i, step in enumerate(steps) if step[0] in "MZ"]
    powers = [i for i, step in enumerate(steps) if step in ("P", "P0.3")]
    return not means or not powers or max(powers) < min(means)


@given(st.lists(st.sampled_from(STEPS), max_size=6).filter(possible))
def test_a_chain_is_read_and_spelt_back(steps):
    assert spell(parse("".join(steps))) == "".join(steps)


@pytest.mark.parametrize(
    ("chain", "words"),
    [("PEX", "'X'"), ("PEME", "Mn .*or Mb"), ("pe", "'pe'"), ("P0E", "is 0"), ("MnPE", "use Ps"), (None, "'PEMnE'")],
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
    got = run(x, parse(prefix + "Mb"), base_mean=base_mean_of({}, base)).x
    np.testing.assert_allclose(got, run(x, parse(prefix)).x - there, atol=1e-6)
    stored = run(x, parse(prefix + "Mb"), base_mean=base_mean_of({prefix: there}, None)).x
    np.testing.assert_allclose(stored, got, atol=1e-6)


def test_mb_without_base_classes_says_what_to_do():
    with pytest.raises(InputError, match="--base FILE"):
        run(rows(), parse("PEMbE"), base_mean=base_mean_of({"": np.zeros(7)}, None))
    with pytest.raises(InputError, match="use Mn"):
        run(rows(), parse("Mb"))


def test_mb_after_the_task_mean_is_refused():
    base = FeatureBank.from_arrays(rows(10), np.arange(10) % 2)
    with pytest.raises(InputError, match="cannot follow 'Mn'"):
        run(rows(), parse("MnMb"), base_mean=base_mean_of({}, base))


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


@given(st.lists(st.sampled_from(STEPS[:6]), max_size=5).filter(possible))
def test_a_chain_is_its_row_wise_part_and_the_rest(steps):
    chain = parse("".join(steps))
    row_wise, task_wise = split(chain)
    assert row_wise + task_wise == chain
    assert not {s.name for s in row_wise} & {"Mn", "Z"}
    assert not task_wise or task_wise[0].name in ("Mn", "Z")
