"""How many rows of a pool belong to none of the classes: clues, network, share and scale."""

import numpy as np
import pytest

from sinkshot import FewShotClassifier, load
from sinkshot.estimators.stranger_network import BELIEF, LINKS, SHARES, Belief, links_of, stranger_network
from sinkshot.estimators.stranger_share import (
    LEAST_ROWS,
    MOST_LABELS,
    MOST_ROWS,
    SAMPLES,
    Scale,
    log_odds,
    opinion,
    samples,
    scale_of,
)
from sinkshot.estimators.unknown_head import shift_by_labels
from sinkshot.methods.stranger_clues import stranger_clues

BIRDS = "data/banks/cub_wrn-28-10_validation.safetensors"


def rows_of_unit_length(seed=0, way=4, shot=2, strangers=60, each=30, width=40):
    """Labelled rows of some classes, their other rows, and strangers of three more classes."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(way + 3, width))
    strange = np.repeat(np.arange(way, way + 3), strangers // 3)
    truth = np.concatenate([np.repeat(np.arange(way), shot), np.repeat(np.arange(way), each), strange])
    x = means[truth] + 0.8 * rng.normal(size=(len(truth), width))
    x -= x.mean(axis=0)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), truth[: way * shot]


def pool_of_birds(rng, way, shot, rows, share, alpha=None):
    """Features and labels (-1: none yet) of classes of birds, with rows of five other classes."""
    bank = load(BIRDS)
    order = rng.permutation(len(bank.class_names))
    by_class = [rng.permutation(np.flatnonzero(bank.labels == code)) for code in order]
    outside = round(share * rows)
    weight = np.ones(way) if alpha is None else rng.dirichlet([alpha] * way)
    counts = np.minimum((weight / weight.sum() * (rows - outside)).astype(int), [len(c) - shot for c in by_class[:way]])
    labelled = np.concatenate([numbers[:shot] for numbers in by_class[:way]])
    known = [numbers[shot : shot + count] for numbers, count in zip(by_class[:way], counts, strict=True)]
    strange = [numbers[: outside // 5] for numbers in by_class[way : way + 5]]
    numbers = np.concatenate([labelled, *known, *strange])
    y = np.full(len(numbers), -1)
    y[: len(labelled)] = np.repeat(np.arange(way), shot)
    return bank.features[numbers], y, sum(map(len, strange)) / (len(numbers) - len(labelled))


# clues and network


def test_clues_are_the_same_on_every_array_library():
    torch = pytest.importorskip("torch")
    x, labels = rows_of_unit_length()
    ours = stranger_clues(x[None], labels[None], 4)
    theirs = stranger_clues(torch.tensor(x[None]), torch.tensor(labels[None]), 4)
    assert np.allclose(ours.rows, theirs.rows.numpy(), atol=1e-3)
    assert np.allclose(ours.pool, theirs.pool.numpy(), atol=1e-3)
    assert np.isfinite(ours.rows).all()


def test_an_opinion_does_not_depend_on_the_order_of_rows_and_classes_or_on_the_axes():
    x, labels = rows_of_unit_length()
    rng = np.random.default_rng(1)
    first = opinion(x[: len(labels)], labels, x[len(labels) :])
    order, classes = rng.permutation(len(x) - len(labels)), rng.permutation(4)
    turned = x @ np.linalg.qr(rng.normal(size=(40, 40)))[0].astype(np.float32)
    second = opinion(turned[: len(labels)], classes[labels], turned[len(labels) :][order])
    assert second.odds == pytest.approx(first.odds, abs=1e-2)
    assert second.share == pytest.approx(first.share, abs=1e-3)
    assert np.allclose(second.rows, first.rows[order], atol=5e-2)
    assert first.share == pytest.approx(60 / 180, abs=0.1)


def test_strangers_are_ranked_above_members():
    x, labels = rows_of_unit_length()
    odds = opinion(x[: len(labels)], labels, x[len(labels) :]).rows
    members, strangers = odds[:120], odds[120:]
    assert (strangers[:, None] > members).mean() > 0.9


def test_classes_in_few_dimensions_need_clearer_odds():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 2)
    means, planes = rng.normal(size=(4, 40)), 3 * rng.normal(size=(4, 2, 40))
    truth = np.concatenate([labels, np.repeat(np.arange(4), 30)])
    flat = means[truth] + np.einsum("nk,nkd->nd", rng.normal(size=(len(truth), 2)), planes[truth])
    flat = (flat / np.linalg.norm(flat, axis=1, keepdims=True)).astype(np.float32)
    round_, _ = rows_of_unit_length(strangers=0)
    usual, in_pieces = (opinion(x[: len(labels)], labels, x[len(labels) :]) for x in (round_, flat))
    assert (usual.labels, usual.pieces) == pytest.approx((2, 0))
    assert (in_pieces.labels, in_pieces.pieces) == pytest.approx((2, 1))
    clear = BELIEF.limit + BELIEF.few_labels / 2 + 0.5
    assert BELIEF.share(clear, 0.2, 2, usual.pieces) > 0.18
    assert BELIEF.share(clear, 0.2, 2, in_pieces.pieces) < 0.01


@pytest.mark.parametrize("steps", ["", "Mn"])
def test_the_length_of_rows_has_no_say(steps):
    x, labels = rows_of_unit_length()
    y = np.full(len(x), -1)
    y[: len(labels)] = labels
    found = [
        FewShotClassifier(preprocess=steps, unknown=0.5).fit((size * x).astype(np.float32), y).report_.rejected
        for size in (1, 1e-3, 1e8)
    ]
    assert found == pytest.approx([60 / 180] * 3, abs=0.1)


def test_rows_that_are_all_equal_or_zero_get_an_answer():
    x, labels = rows_of_unit_length()
    for fixed in (x[:1], np.zeros_like(x[:1])):
        same = np.repeat(fixed, 100, axis=0)
        found = opinion(x[: len(labels)], labels, same)
        assert np.isfinite([found.odds, found.share]).all()
        assert np.isfinite(found.rows).all()


# samples


def test_a_small_pool_is_looked_at_as_a_whole_and_a_large_one_by_samples():
    codes = np.arange(5)
    (whole,) = samples(codes, MOST_ROWS)
    assert np.array_equal(whole.others, np.arange(MOST_ROWS))
    several = list(samples(codes, 100_000))
    assert len(several) == SAMPLES
    numbers = np.concatenate([each.others for each in several])
    assert len(set(numbers.tolist())) == len(numbers) == SAMPLES * MOST_ROWS
    again = list(samples(codes, 100_000))
    assert all(np.array_equal(a.others, b.others) for a, b in zip(several, again, strict=True))


def test_a_sample_has_labels_of_every_class_however_many_there_are():
    codes = np.repeat(np.arange(30), 50)
    codes = np.concatenate([codes, [30]])  # a class of one label beside those of fifty
    (sample,) = samples(codes, 300)
    assert len(sample.labelled) == MOST_LABELS
    counts = np.bincount(codes[sample.labelled], minlength=31)
    assert counts[30] == 1
    assert counts[:30].min() >= 6
    (sample,) = samples(np.arange(200), 600)
    assert len(sample.labelled) == 200


def test_a_pool_that_tells_too_little_is_not_looked_at():
    assert not list(samples(np.arange(5), LEAST_ROWS - 1))
    assert not list(samples(np.zeros(5, np.int64), 500))
    assert not list(samples(np.arange(201), 5_000))


# the scale


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.65])
def test_as_many_rows_are_above_one_half_as_there_are_strangers(share):
    odds = np.random.default_rng(0).normal(-5, 3, size=400)
    unknown = scale_of(odds, share)(odds)
    assert (unknown > 0.5).mean() == pytest.approx(share, abs=0.003)
    assert (np.argsort(unknown, kind="stable") == np.argsort(odds, kind="stable")).all()


def test_a_clear_gap_decides_where_the_share_is_nearly_right():
    rng = np.random.default_rng(0)
    odds = np.concatenate([rng.normal(8, 0.5, 40), rng.normal(-3, 0.5, 160)])
    for share in (0.17, 0.2, 0.25):
        assert (scale_of(odds, share)(odds) > 0.5).sum() == 40


def test_without_strangers_no_row_is_near_one_half_and_none_is_raised():
    odds = np.random.default_rng(0).normal(2, 3, size=200)
    unknown = scale_of(odds, 0.0)(odds)
    assert unknown.max() < 0.01
    low = odds - 50
    assert np.allclose(scale_of(low, 0.0)(low), 1 / (1 + np.exp(-low)))


def test_equal_rows_are_not_rejected():
    odds = np.full(100, 3.0)
    assert not (scale_of(odds, 0.3)(odds) > 0.5).any()


@pytest.mark.parametrize(("share", "rejected"), [(0.1, 30), (0.16, 30), (0.22, 30), (0.7, 70)])
def test_rows_that_tie_at_the_top_are_rejected_together(share, rejected):
    odds = np.concatenate([np.full(30, 16.6), np.linspace(-3, -9, 70)])
    assert (scale_of(odds, share)(odds) > 0.5).sum() == rejected


def test_a_steep_scale_keeps_the_order_of_unlikely_rows():
    odds = np.concatenate([np.full(20, 9.0), np.linspace(-1, -5, 80)])
    unknown = scale_of(odds, 0.2)(odds).astype(np.float32)
    assert np.all(np.diff(unknown[20:60]) < 0)


def test_the_shift_by_labelled_rows_lowers_even_large_odds():
    unknown = Scale(0.0, 10.0)(np.full(20, 5.0))
    lowered = Scale(0.0, 10.0, shift_by_labels(unknown))(np.full(20, 5.0))
    assert lowered.mean() < 0.04


def test_the_network_in_torch_is_the_same(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend("tools")
    from train_strangers import network_of

    x, labels = rows_of_unit_length()
    clues = stranger_clues(x[None], labels[None], 4)
    weights = stranger_network()._weights
    net = network_of({name: torch.tensor(value) for name, value in weights.items()}).eval()
    ours = stranger_network()(clues)
    gap = 100 - len(labels)  # torch's labelled rows are the first hundred, -1 where there is none
    rows = np.concatenate([clues.rows[0, :8], np.zeros((gap, 35)), clues.rows[0, 8:]]).astype(np.float32)
    classes = np.concatenate([clues.nearest[0, :8], np.full(gap, -1), clues.nearest[0, 8:]])
    links, shares_of_walks = (np.concatenate([a[:8], np.zeros((gap, LINKS)), a[8:]]) for a in links_of(clues.walk[0]))
    links = np.where(links >= 8, links + gap, links).astype(np.int64)
    with torch.no_grad():
        given = (torch.tensor(each[None]) for each in (rows, classes, clues.pool[0], links, 255 * shares_of_walks))
        shares, odds = net(*given)
    some = torch.logsumexp(shares[0, 1:], 0) - shares[0, 0]
    share = float(torch.softmax(shares[0, 1:], 0) @ torch.tensor(SHARES[1:]))
    assert (ours.odds, ours.share) == pytest.approx((float(some), share), abs=1e-3)
    assert np.allclose(ours.rows, odds[0, 100:].numpy(), atol=1e-3)


def test_a_network_that_grows_says_nearly_the_same(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend("tools")
    from train_strangers import Network, grown, network_of

    torch.manual_seed(0)
    small = Network(35, 18, 24, 1).eval()
    large = network_of(grown(dict(small.state_dict()), 32, 2)).eval()
    rows, classes = torch.randn(3, 320, 35), torch.randint(0, 4, (3, 320))
    links, weights = torch.randint(0, 320, (3, 320, LINKS)), torch.full((3, 320, LINKS), 255 / LINKS)
    with torch.no_grad():
        before, after = (net(rows, classes, torch.randn(3, 18).fill_(0.3), links, weights) for net in (small, large))
    assert large.row2.out_features == 32
    assert len(large.seen) == 2
    for old, new in zip(before, after, strict=True):
        assert (new - old).abs().max() < 0.15 * old.std()


def test_links_go_where_most_walks_end():
    walk = np.random.default_rng(0).dirichlet(np.full(40, 0.2), size=40)
    links, weights = links_of(walk)
    assert weights.sum(axis=1) == pytest.approx(1, abs=1e-6)
    for row, found, share in zip(walk, links, weights, strict=True):
        assert set(found) == set(np.argsort(-row)[:LINKS])
        assert share * row[found].sum() == pytest.approx(row[found], abs=1e-6)


def test_a_share_is_believed_above_the_limit_and_large_ones_are_stretched():
    belief = Belief(limit=1.0, few_labels=0.5, in_pieces=2.0, stretch=0.5)
    assert belief.share(np.array([0.5, 1.5, 2.5]), 0.2, 1, 0) == pytest.approx([0.0, 0.1, 0.2], abs=1e-3)
    assert belief.share(9.0, np.array([0.3, 0.5]), 1, 1) == pytest.approx([0.3, 0.6])
    assert belief.share(9.0, 0.5, np.array([1, 5]), 0) == pytest.approx([0.6, 0.52])


def test_log_odds_tell_small_probabilities_apart():
    assert np.all(np.diff(log_odds(np.array([0.0, 1e-25, 1e-9, 0.5, 1 - 1e-6]))) > 0)


# pools of birds; docs/strangers.md has features that it did not learn from


@pytest.mark.parametrize("shot", [1, 5])
def test_hardly_a_row_is_rejected_without_strangers(shot):
    rng = np.random.default_rng(3)
    rejected = []
    for draw in range(16):
        x, y, _ = pool_of_birds(rng, 10, shot, 250, 0.0, alpha=2.0 if draw % 2 else None)
        rejected.append(FewShotClassifier(unknown=0.5).fit(x, y).report_.rejected)
    assert np.mean(rejected) < 0.03


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
@pytest.mark.parametrize("shot", [1, 5])
def test_as_many_rows_are_rejected_as_there_are_strangers(shot, share):
    rng = np.random.default_rng(4)
    found, true = [], []
    for _ in range(10):
        x, y, strange = pool_of_birds(rng, 10, shot, 250, share)
        found.append(FewShotClassifier(unknown=0.5).fit(x, y).report_.rejected)
        true.append(strange)
    assert np.mean(found) == pytest.approx(np.mean(true), abs=0.1)
