"""Episodes: the properties of each protocol, and the published draws."""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from golden_files import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from sinkshot import InputError, Recipe, draw, query_sizes
from sinkshot import episodes as episodes_module

LABELS = np.repeat(np.arange(20), 60)
PROTOCOLS = ("balanced", "official", "dirichlet", "long-tail", "open-set")


def arrays(episodes):
    return episodes.support, episodes.support_labels, episodes.query, episodes.query_labels


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25, deadline=None)
@given(
    way=st.integers(2, 10), shot=st.integers(1, 6), query=st.integers(1, 8), seed=st.integers(0, 2**40), data=st.data()
)
def test_an_episode_keeps_its_promises(protocol, way, shot, query, seed, data):
    seed = seed % 2**32 if protocol == "official" else seed  # the legacy generator takes 32 bits
    labels = np.array(data.draw(st.permutations(LABELS.tolist())))
    episodes = draw(labels, protocol=protocol, way=way, shot=shot, query=query, episodes=3, seed=seed)
    total = way * query * (2 if protocol == "open-set" else 1)
    assert episodes.support.shape == (3, way * shot)
    assert episodes.query.shape == episodes.query_labels.shape == (3, total)
    for support, support_labels, queries, query_labels in zip(*arrays(episodes), strict=True):
        rows = np.concatenate([support, queries])
        assert len(set(rows)) == len(rows), "a row appears twice"
        classes = [set(labels[support[support_labels == k]]) for k in range(way)]
        assert all(len(c) == 1 for c in classes), "a class is mixed"
        assert len(set.union(*classes)) == way, "two labels share a class"
        for k in range(way):
            assert set(labels[queries[query_labels == k]]) <= classes[k]
        assert not set(labels[queries[query_labels == -1]]) & set.union(*classes)
        assert (support_labels == np.arange(way * shot) % way).all()
        if protocol not in ("dirichlet", "long-tail"):
            assert (query_labels[: way * query] == np.arange(way * query) % way).all()
        if protocol == "open-set":
            assert (query_labels == -1).sum() == way * query


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_episode_does_not_depend_on_how_many_are_asked_for(protocol):
    size = {"protocol": protocol, "way": 5, "shot": 2, "query": 4, "seed": 7}
    whole = draw(LABELS, episodes=40, **size)
    for first, count in ((25, 10), (0, 25), (39, 1)):
        part = draw(LABELS, episodes=count, first=first, **size)
        for a, b in zip(arrays(part), arrays(whole[first : first + count]), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("protocol", ["balanced", "dirichlet", "long-tail", "open-set"])
def test_seeds_give_other_episodes(protocol):
    a, b = (draw(LABELS, protocol=protocol, way=5, query=5, episodes=50, seed=s) for s in (0, 1))
    assert (a.query != b.query).mean() > 0.9


def test_classes_and_rows_come_in_the_same_order_whatever_the_sizes():
    small = draw(LABELS, way=5, shot=1, query=15, episodes=20)
    large = draw(LABELS, way=5, shot=5, query=15, episodes=20)
    wide = draw(LABELS, way=8, shot=1, query=15, episodes=20)
    np.testing.assert_array_equal(small.support, large.support[:, :5])
    np.testing.assert_array_equal(small.support, wide.support[:, :5])


@pytest.mark.parametrize("case", json.loads((GOLDEN / "cases.json").read_text()), ids=lambda case: case["case"])
def test_official_draws_are_the_published_ones(case):
    rows = np.load(GOLDEN / f"{case['case']}.npz")["episode_rows"]  # [16, way, shot + query]
    size = {key: case[key] for key in ("way", "shot", "query")}
    ours = draw(np.repeat(np.arange(20), 600), protocol="official", episodes=16, **size)
    published = rows.transpose(0, 2, 1).reshape(16, -1)
    np.testing.assert_array_equal(np.hstack([ours.support, ours.query]), published)


def test_official_draws_do_not_depend_on_threads_or_interrupts(monkeypatch):
    size = {"protocol": "official", "way": 5, "query": 5, "episodes": 60}
    expected = draw(LABELS, **size).query
    with ThreadPoolExecutor(4) as pool:
        for drawn in pool.map(lambda _: draw(LABELS, **size).query, range(4)):
            np.testing.assert_array_equal(drawn, expected)

    def interrupted(self, count):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(episodes_module._OfficialStream, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            draw(LABELS, **size)
    np.testing.assert_array_equal(draw(LABELS, **size).query, expected)


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.5], [-1, 0], [[0, 1]], []], ids=str)
def test_labels_of_another_kind_are_refused(labels):
    with pytest.raises(InputError, match="labels must be whole numbers"):
        draw(np.array(labels))


def test_official_cuts_larger_classes_to_the_smallest():
    labels = np.concatenate([np.repeat(np.arange(6), 20), np.zeros(500, dtype=int)])
    episodes = draw(labels, protocol="official", way=6, shot=2, query=8, episodes=30)
    assert max(episodes.support.max(), episodes.query.max()) < 120


@pytest.mark.timing
def test_ten_thousand_balanced_episodes_take_well_under_a_second():
    labels = np.repeat(np.arange(20), 600)
    best = min(_seconds(lambda: draw(labels, shot=5, episodes=10_000)) for _ in range(3))
    assert best < 0.8


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_every_class_and_row_is_as_likely_as_any_other():
    episodes = draw(LABELS, way=5, shot=1, query=4, episodes=12_000)
    counts = np.bincount(np.hstack([episodes.support, episodes.query]).ravel(), minlength=len(LABELS))
    expected = 12_000 * 25 / len(LABELS)
    chi_square = ((counts - expected) ** 2 / expected).sum() / (len(LABELS) - 1)
    assert 0.8 < chi_square < 1.2
    pairs = np.zeros((60, 60))  # first and second row drawn of a class are independent of each other
    np.add.at(pairs, (episodes.support.ravel() % 60, episodes.query[:, :5].ravel() % 60), 1)
    off_diagonal = pairs[~np.eye(60, dtype=bool)]
    assert pairs.trace() == 0
    assert 0.8 < off_diagonal.var() / off_diagonal.mean() < 1.2


def test_dirichlet_sizes_have_the_mean_and_spread_of_a_dirichlet_of_two():
    episodes = draw(np.repeat(np.arange(5), 400), protocol="dirichlet", way=5, shot=1, query=15, episodes=4000)
    share = np.stack([(episodes.query_labels == k).mean(axis=1) for k in range(5)])
    np.testing.assert_allclose(share.mean(axis=1), 0.2, atol=0.01)
    np.testing.assert_allclose(share.var(axis=1), 0.2 * 0.8 / 11, rtol=0.1)  # a0 = 10
    assert (share == 0).any(), "a class may get no query"


def digest(episodes):
    whole = b"".join(np.ascontiguousarray(a, "<i4").tobytes() for a in arrays(episodes))
    return hashlib.sha256(whole).hexdigest()[:16]


@pytest.mark.parametrize(
    ("classes", "rows", "size", "expected"),
    [
        (20, 60, {"way": 5, "shot": 2, "query": 7, "episodes": 50, "seed": 7}, "1c6c711249a1b077"),
        (6, 12, {"way": 5, "shot": 2, "query": 8, "episodes": 200}, "ef647f2aab4e5bfa"),
        (20, 600, {"way": 20, "shot": 5, "query": 15, "episodes": 30, "first": 1000}, "62b63e42ef0f68bc"),
    ],
)
def test_a_dirichlet_of_two_is_what_it_was_before_there_were_others(classes, rows, size, expected):
    labels = np.repeat(np.arange(classes), rows)
    for alpha in ({}, {"alpha": 2}, {"alpha": 2.0}):
        assert digest(draw(labels, protocol="dirichlet", **size, **alpha)) == expected


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.7, 1, 3, 5.5, 40])
def test_dirichlet_sizes_have_the_mean_and_spread_of_any_alpha(alpha):
    sizes = query_sizes.dirichlet(np.full((6000, 4), 10**6), 10_000, seed=3, first=0, alpha=alpha)
    share = sizes / 40_000
    np.testing.assert_allclose(share.sum(axis=1), 1)
    np.testing.assert_allclose(share.mean(axis=0), 0.25, atol=0.02)
    np.testing.assert_allclose(share.var(axis=0), 0.25 * 0.75 / (4 * alpha + 1), rtol=0.1)
    for below in (0.01, 0.1, 0.25, 0.5, 0.9, 0.99):  # each share follows a beta distribution
        assert (share < below).mean() == pytest.approx(beta(alpha, 3 * alpha).cdf(below), abs=0.015)


@pytest.mark.parametrize("alpha", [1e-320, 1e-9, 1e300])
def test_a_dirichlet_of_an_extreme_alpha_is_one_class_or_equal_sizes(alpha):
    sizes = query_sizes.dirichlet(np.full((200, 5), 75), 15, seed=0, first=0, alpha=alpha)
    assert (sizes.sum(axis=1) == 75).all()
    assert (np.sort(sizes, axis=1) == ([15] * 5 if alpha > 1 else [0, 0, 0, 0, 75])).all()


@given(way=st.integers(2, 30), query=st.integers(1, 60), ratio=st.floats(1, 1e6))
def test_a_long_tail_falls_geometrically_sums_up_and_leaves_no_class_out(way, query, ratio):
    sizes = query_sizes.long_tail(way, query, ratio)
    weight = ratio ** (-np.arange(way) / (way - 1))
    share = way * query * weight / weight.sum()
    assert sizes.sum() == way * query
    assert (sizes >= 1).all()
    assert (np.diff(sizes) <= 0).all()
    if share.min() >= 1:
        assert np.abs(sizes - share).max() < 1


def test_the_order_of_a_long_tail_is_drawn_for_each_episode():
    episodes = draw(LABELS, protocol="long-tail", way=5, query=15, episodes=6000)
    sizes = np.stack([(episodes.query_labels == k).sum(axis=1) for k in range(5)], axis=1)  # [R, way]
    assert (np.sort(sizes, axis=1)[:, ::-1] == query_sizes.long_tail(5, 15)).all()
    orders, counts = np.unique(sizes, axis=0, return_counts=True)
    assert len(orders) == 120
    assert 0.7 < counts.var() / counts.mean() < 1.4
    even = draw(LABELS, protocol="long-tail", way=5, query=15, episodes=20, ratio=1)
    assert (np.sort(even.query_labels, axis=1) == np.repeat(np.arange(5), 15)).all()


def test_a_recipe_hands_its_alpha_and_ratio_on():
    for recipe in (Recipe("dirichlet", episodes=20, alpha=0.3), Recipe("long-tail", episodes=20, ratio=3)):
        usual = Recipe(recipe.protocol, episodes=20)
        assert (recipe.draw(LABELS).query_labels != usual.draw(LABELS).query_labels).any()
        assert recipe.draw(LABELS, 3, 4).recipe.alpha == recipe.alpha
        np.testing.assert_array_equal(recipe.draw(LABELS, 10, 5).query, recipe.draw(LABELS)[10:15].query)


def test_dirichlet_draws_anew_what_a_class_cannot_give():
    episodes = draw(np.repeat(np.arange(6), 12), protocol="dirichlet", way=5, shot=2, query=8, episodes=200)
    assert all(len(set(rows)) == 50 for rows in np.hstack([episodes.support, episodes.query]))


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"way": 21}, "21 classes; the bank has 20"),
        ({"protocol": "open-set", "way": 11}, "11 closed and 11 open"),
        ({"shot": 50}, "class 0 has 60 rows; 50 shots and 15 queries need 65"),
        ({"way": 1}, "way must be at least 2"),
        ({"shot": 0}, "shot must be at least 1"),
        ({"query": 0}, "query must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**32, "protocol": "official"}, "below 2\\^32"),
        ({"episodes": 0}, "at least one episode"),
        ({"protocol": "balnced"}, "did you mean 'balanced'"),
        ({"protocol": "dirichlet", "alpha": 0}, "alpha must be a number above 0; 0 was given"),
        ({"protocol": "dirichlet", "alpha": -0.5}, "alpha must be a number above 0; -0.5"),
        ({"protocol": "dirichlet", "alpha": float("nan")}, "alpha must be a number above 0"),
        ({"protocol": "long-tail", "ratio": 0.5}, r"ratio \(largest to smallest class\) must be at least 1; 0.5"),
        ({"protocol": "long-tail", "ratio": "ten"}, "ratio must be a number"),
        (
            {"protocol": "long-tail", "query": 30},
            "class 0 has 60 rows; 1 shots and the largest class of a long tail, 70 queries, need 71. Lower ratio",
        ),
    ],
)
def test_impossible_sizes_are_refused_with_a_sentence(size, words):
    with pytest.raises(InputError, match=words):
        draw(LABELS, **size)


def test_a_small_class_is_named():
    labels = np.concatenate([LABELS, [20] * 3])
    names = [f"c{i}" for i in range(20)] + ["rare bird"]
    with pytest.raises(InputError, match="class 'rare bird' has 3 rows; 1 shots and 15 queries need 16"):
        draw(labels, class_names=names)


def test_a_recipe_draws_part_by_part():
    recipe = Recipe(way=4, shot=2, query=3, episodes=30, seed=3)
    np.testing.assert_array_equal(recipe.draw(LABELS, 10, 5).query, recipe.draw(LABELS)[10:15].query)
