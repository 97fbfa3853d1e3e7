"""sinkshot: class sizes, strangers, confidence, and odd pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sinkshot import METHODS, Recipe, Task, evaluate, load, open_set
from sinkshot.calibration import Confidence
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.priors import shrunken_shares
from sinkshot.methods.sinkshot import rejected, share_of_strangers, shortfall, solve
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import LEAST_STRANGERS, SETTINGS

BANKS = Path(__file__).parents[2] / "data" / "banks"
WIDTH = 32


@pytest.fixture(scope="module")
def bank():
    return load(BANKS / "cifar-fs_wrn-28-10_validation.safetensors")


def pool(sizes, shots, *, strangers=0, seed=0, spread=0.25, dtype="float64", episodes=4):
    """Supports and queries around random directions, `sizes` queries of each class, and strangers of other classes."""
    rng = np.random.default_rng(seed)
    way = len(sizes)
    shots = [shots] * way if isinstance(shots, int) else shots
    centres = rng.normal(size=(episodes, way + 5, WIDTH)) / np.sqrt(WIDTH)
    labels = np.repeat(np.arange(way), shots)
    truth = np.concatenate([np.repeat(np.arange(way), sizes), np.full(strangers, -1)])
    of_query = np.where(truth < 0, way + np.arange(len(truth)) % 5, truth)
    noise = spread * rng.normal(size=(episodes, len(labels) + len(truth), WIDTH))
    x = (centres[:, np.concatenate([labels, of_query])] + noise).astype(dtype)
    every = np.tile(labels, (episodes, 1)).astype(np.int32)
    return Task(x[:, : len(labels)], every, x[:, len(labels) :], way), truth


def answer(task):
    return METHODS["sinkshot"](apply(task, "EMcE"))


def right(scores, truth):
    known = truth >= 0
    return float((np.asarray(scores.probabilities).argmax(-1) == truth)[:, known].mean())


@pytest.mark.parametrize(
    "sizes", [(15,) * 5, (60, 20, 10, 5, 2), (40, 40, 0, 0, 0), (75, 0, 0, 0, 0), (1, 1, 1, 1, 1)], ids=str
)
@pytest.mark.parametrize("shots", [1, 5, [1, 1, 2, 5, 20]], ids=str)
def test_classes_are_found_whatever_their_sizes(sizes, shots):
    task, truth = pool(sizes, shots, spread=0.1)
    assert right(answer(task), truth) > 0.95


def test_single_precision_gives_the_same_labels(bank):
    recipe = Recipe(protocol="dirichlet", shot=1, episodes=40)
    drawn = recipe.draw(bank.labels)
    x = bank.features[np.hstack([drawn.support, drawn.query])]
    labels = []
    for kind in ("float32", "float64"):
        parts = x[:, :5].astype(kind), drawn.support_labels, x[:, 5:].astype(kind)
        scores = METHODS["sinkshot"](apply(Task(*parts, 5), "PEMbE", bank.base))
        labels.append(np.asarray(scores.probabilities).argmax(-1))
    assert (labels[0] == labels[1]).mean() >= 0.999


def test_close_neighbours_help_on_digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(n_class=5, return_X_y=True)
    gains = []
    for draw in range(3):
        order = np.random.default_rng(draw).permutation(len(y))[:500]
        labelled = np.concatenate([order[y[order] == j][:5] for j in range(5)])
        rest = np.setdiff1d(order, labelled)
        task = apply(Task(x[None, labelled], y[None, labelled], x[None, rest], 5), "PEMcE")
        found = [solve(task, s).probabilities[0].argmax(-1) for s in (SETTINGS, replace(SETTINGS, distance_doubt=1e9))]
        gains.append((found[0] == y[rest]).mean() - (found[1] == y[rest]).mean())
    assert np.mean(gains) > 0.01


@pytest.mark.parametrize(
    ("closeness", "spread", "averages"), [(0.0, 0.7, 2), (0.68, 0.7, 2), (0.8, 0.88, 6), (1, 0.95, 14)]
)
def test_close_neighbours_give_more_and_reach_further(closeness, spread, averages):
    assert SETTINGS.reach(closeness) == (pytest.approx(spread), averages)


def test_counts_within_the_noise_are_taken_as_equal_and_others_are_believed():
    known = np.ones((1, 1, 60))
    sure = np.eye(3)[:, np.repeat([0, 1, 2], [50, 8, 2])][None]
    near = np.eye(3)[:, np.repeat([0, 1, 2], [22, 20, 18])][None] * 0.7 + 0.1
    believed = shrunken_shares(sure, known, noise=6.0, bias=0.005)[0, :, 0]
    np.testing.assert_allclose(believed, np.array([50, 8, 2]) / 60, atol=0.01)
    np.testing.assert_allclose(shrunken_shares(near, known, noise=6.0, bias=0.005), 1 / 3, atol=0.005)
    np.testing.assert_allclose(shrunken_shares(sure * 0 + 1 / 3, known, noise=0.0, bias=0.0), 1 / 3)


def test_counts_are_believed_in_less_where_probabilities_are_unsure():
    known, sure = np.ones((1, 1, 60)), np.eye(3)[:, np.repeat([0, 1, 2], [40, 15, 5])][None]
    torn = 0.3 * sure + 0.7 / 3
    for belongs, less in ((sure, False), (torn, True)):
        plain = shrunken_shares(belongs, known, noise=1.0, bias=0.005)[0, 0, 0]
        doubted = shrunken_shares(belongs, known, noise=1.0, bias=0.005, unsure_noise=3.0)[0, 0, 0]
        assert (1 / 3 < doubted < plain - 0.02) if less else doubted == plain


def test_no_noise_is_added_at_one_label():
    assert SETTINGS.unsure_at(20, 0.5) == SETTINGS.unsure_at(20, 1.0) == 0
    assert 0 < SETTINGS.unsure_at(20, 2.0) < SETTINGS.unsure_at(20, 10.0)


def test_shares_do_not_count_strangers():
    belongs = np.eye(2)[:, np.repeat([0, 1], [30, 30])][None]
    known = np.concatenate([np.ones(30), np.full(30, 1e-6)])[None, None]
    assert shrunken_shares(belongs, known, noise=1.0, bias=0.0)[0, 0, 0] > 0.95


@pytest.mark.parametrize(("shots", "least"), [(1, 0.0), (5, 0.8)])  # one label each: strangers have only their rank
def test_strangers_are_rejected_and_members_are_not(shots, least):
    task, truth = pool((15,) * 5, shots, strangers=50, spread=0.1, episodes=20)
    unknown = np.asarray(answer(task).unknown)
    assert (unknown[:, truth < 0] > 0.5).mean() >= least
    assert (unknown[:, truth >= 0] > 0.5).mean() < 0.01
    assert open_set.auroc(unknown, np.tile(truth < 0, (20, 1))).mean() > 0.97


POOL_SIZES, SHOTS, SPREADS = ((15,) * 5, (60, 20, 10, 5, 2), (200,) * 5), (1, 5, 10), (0.02, 0.1, 0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "shots", "spread"),
    [  # in a third of the grid any two values of two settings meet; the rest is long
        pytest.param(POOL_SIZES[i], SHOTS[j], SPREADS[k], marks=[pytest.mark.long] if (i + j + k) % 3 else [])
        for i in range(3)
        for j in range(3)
        for k in range(3)
    ],
    ids=str,
)
def test_without_strangers_hardly_anything_is_rejected(sizes, shots, spread):
    task, _ = pool(sizes, shots, spread=spread)
    assert (np.asarray(answer(task).unknown) > 0.5).mean() <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [None, 2.0, 0.7], ids=str)
@pytest.mark.parametrize("shot", [1, 5])
def test_large_and_skewed_pools_without_strangers_are_kept(bank, alpha, shot):
    sizes = {"protocol": "dirichlet", "alpha": alpha} if alpha else {}
    drawn = Recipe(**sizes, shot=shot, query=100, episodes=10).draw(bank.labels)
    x = bank.features[np.hstack([drawn.support, drawn.query])]
    task = apply(Task(x[:, : 5 * shot], drawn.support_labels, x[:, 5 * shot :], 5), "PEMbE", bank.base)
    assert (np.asarray(METHODS["sinkshot"](task).unknown) > 0.5).mean() <= 0.03


@pytest.mark.parametrize("shot", [1, 5, 10])
@pytest.mark.parametrize("sizes", [(60,) * 5, (150, 70, 40, 20, 10)], ids=str)
def test_digits_without_strangers_are_kept(shot, sizes):
    from sklearn.datasets import load_digits

    x, labels = load_digits(return_X_y=True)
    shares = []
    for draw in range(8):
        rng = np.random.default_rng(draw)
        rows = [rng.permutation(np.flatnonzero(labels == digit)) for digit in rng.permutation(10)[: len(sizes)]]
        support = np.concatenate([each[:shot] for each in rows])
        query = np.concatenate([each[shot : shot + size] for each, size in zip(rows, sizes, strict=True)])
        task = Task(x[None, support], np.repeat(np.arange(5), shot)[None], x[None, query], 5)
        shares.append((np.asarray(METHODS["sinkshot"](apply(task, "PEMcE")).unknown) > 0.5).mean())
    assert np.mean(shares) <= 0.03


@pytest.mark.parametrize("shots", [5, 10])
def test_many_classes_that_overlap_are_kept(shots):
    rng = np.random.default_rng(5)
    labels = np.concatenate([np.repeat(np.arange(20), shots), np.repeat(np.arange(20), 30)])
    width, centre = rng.uniform(0.6, 1.4, 20), 0.4 * rng.normal(size=(20, 64))
    x = centre[labels] + width[labels][:, None] * rng.normal(size=(len(labels), 64))
    first = 20 * shots
    task = apply(Task(x[None, :first], labels[None, :first], x[None, first:], 20), "EMcE")
    assert (np.asarray(METHODS["sinkshot"](task).unknown) > 0.5).mean() <= 0.03


def test_the_share_of_strangers_follows_how_near_queries_and_supports_are():
    near = np.array([0.8, 0.7, *[0.75] * 40, *[0.3] * 40])[None, None]  # two supports of two classes, then queries
    rows = rows_of(Task(np.eye(2)[None], np.array([[0, 1]]), np.ones((1, 80, 2)), 2))
    sure = np.eye(2)[:, np.arange(80) % 2][None]
    settings = replace(SETTINGS, offset_few=0.0)
    open_, closed = (
        share_of_strangers(sure, values, *shortfall(sure, values, np.zeros((1, 1, 1)), rows), rows, settings)[0, 0, 0]
        for values in (near, np.where(near < 0.5, 0.75, near))
    )
    assert open_ > 0.4
    assert closed == LEAST_STRANGERS


@pytest.mark.parametrize(("part", "apart", "lump"), [(1e-3, 0.0, 0.02), (0.3, 0.4, 0.35), (0.5, 0.4, 0.55)])
def test_two_lumps_are_cut_in_the_valley_and_one_lump_by_the_share(part, apart, lump):
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(0, 0.1, 40), rng.normal(1, 0.1, 60)])[None, None]
    one = rng.normal(0, 1, (1, 1, 100))
    of_two, of_one = ((rejected(e, np.full((1, 1, 1), part), SETTINGS) > 0.5).mean() for e in (two, one))
    assert of_two == apart
    assert of_one <= lump


def test_looking_for_strangers_costs_nothing_where_there_are_none(bank):
    recipe = Recipe(shot=5, episodes=60)
    drawn = recipe.draw(bank.labels)
    x = bank.features[np.hstack([drawn.support, drawn.query])]
    task = apply(Task(x[:, :25], drawn.support_labels, x[:, 25:], 5), "PEMbE", bank.base)
    blind = replace(SETTINGS, few_strangers=1e9)
    with_, without = (
        (np.asarray(solve(task, s).probabilities).argmax(-1) == drawn.query_labels).mean() for s in (SETTINGS, blind)
    )
    assert with_ >= without - 0.003


@pytest.mark.slow
@pytest.mark.parametrize(("shot", "most"), [(1, 0.05), (5, 0.03)])
@pytest.mark.parametrize("protocol", ["balanced", "dirichlet"])
def test_it_is_right_as_often_as_it_says(bank, shot, most, protocol):
    result = evaluate(bank, Recipe(protocol=protocol, shot=shot, episodes=300), method="sinkshot")
    assert result.ece <= most


def test_the_temperature_changes_no_label():
    task, _ = pool((30, 10, 10), 1, spread=0.3)
    task = apply(task, "EMcE")
    cold = np.asarray(solve(task, replace(SETTINGS, temperature=-99.0)).probabilities)
    warm = np.asarray(solve(task, SETTINGS).probabilities)
    assert (cold.argmax(-1) == warm.argmax(-1)).all()
    assert Confidence.of(warm, warm.argmax(-1)).accuracy == 1
    assert warm.max(-1).mean() < cold.max(-1).mean()


@pytest.mark.filterwarnings("ignore::sinkshot.errors.DataWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_pools_get_an_answer(dtype):
    one, _ = pool((5,), 2, dtype=dtype)
    lone, _ = pool((1, 0), 1, dtype=dtype)
    many, _ = pool((1,) * 120, 1, dtype=dtype, episodes=1)
    zero, _ = pool((5, 5), 2, dtype=dtype)
    zero.query[:, :4] = 0
    nothing, _ = pool((5, 5), 2, dtype=dtype)
    nothing.query[:], nothing.support[:] = 0, 0
    equal, _ = pool((5, 5), 2, dtype=dtype)
    equal.query[:], equal.support[:] = 1, 1
    for task in (one, lone, many, zero, nothing, equal):
        for chain in ("", "E", "EMcE", "EMnE"):
            with np.errstate(divide="raise", invalid="raise", over="raise"):
                scores = METHODS["sinkshot"](apply(task, chain))
            p, u = np.asarray(scores.probabilities), np.asarray(scores.unknown)
            assert np.isfinite(p).all()
            assert np.isfinite(u).all()
            np.testing.assert_allclose(p.sum(-1), 1.0, atol=1e-5)
            assert ((u >= 0) & (u <= 1)).all()


@pytest.mark.filterwarnings("ignore::sinkshot.errors.DataWarning")
def test_equal_rows_are_torn_between_all_classes():
    task, _ = pool((5, 5), 2)
    task.query[:], task.support[:] = 1, 1
    np.testing.assert_allclose(np.asarray(answer(task).probabilities), 0.5)
