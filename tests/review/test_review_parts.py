"""The parts of a review: the audit, likeness, background work, pictures."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from review_server import made_photos
from scipy.stats import binom

from sinkshot.label.decisions import DecisionLog
from sinkshot.review import audit
from sinkshot.review.likeness import MOST_LINKED, Likeness
from sinkshot.review.refit import Worker
from sinkshot.review.thumbnails import Thumbnails


def test_an_audit_counts_only_its_own_answers(tmp_path):
    log = DecisionLog(tmp_path / "decisions.jsonl")
    assert audit.of_decisions(log.decisions).accuracy is None
    log.append("identity-1", "label", items=("a",), label="cat", audit=True)  # before the draw
    log.append("identity-2", "draw", items=tuple("abcde"), predicted=("cat", "dog", "", "cat", "dog"))
    log.append("identity-3", "label", items=("a",), label="cat", audit=True)  # right
    log.append("identity-4", "label", items=("b",), label="cat", audit=True)  # wrong
    log.append("identity-5", "label", items=("c",), label="_none", audit=True)  # right: it was unknown
    log.append("identity-6", "reject", items=("d",), label="cat", audit=True)  # wrong
    log.append("identity-7", "label", items=("e",), label="dog")  # accepted in a grid, nobody looked closely
    log.append("identity-8", "label", items=("z",), label="dog", audit=True)  # not drawn
    found = audit.of_decisions(log.decisions)
    assert (len(found.answered), found.right, found.accuracy) == (4, 2, 0.5)
    log.append("identity-9", "undo", of=4)
    assert audit.of_decisions(log.decisions).accuracy == 2 / 3
    log.append("identity-10", "draw", items=("b",), predicted=("cat",))
    assert audit.of_decisions(log.decisions).answered == frozenset()
    log.close()


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 0.99])
def test_the_interval_holds_the_truth_at_least_as_often_as_it_says(share):
    count = audit.DRAWN
    covered = sum(
        binom.pmf(right, count, share)
        for right in range(count + 1)
        if audit.exact_interval(right, count)[0] <= share <= audit.exact_interval(right, count)[1]
    )
    assert covered >= 0.95


def test_a_draw_is_of_different_items_and_not_the_first_ones():
    drawn = audit.draw(list(range(1_000)))
    assert len(set(drawn)) == audit.DRAWN
    assert max(drawn) > 200
    assert sorted(audit.draw([3, 5])) == [3, 5]


def clusters(sizes, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=(len(sizes), 24))[codes] + 0.2 * rng.normal(size=(len(codes), 24)), codes


@pytest.mark.parametrize("sizes", [(40, 25, 10), (MOST_LINKED, 900, 300)])
def test_groups_are_of_alike_items_the_largest_first(sizes):
    features, codes = clusters((*sizes, *[max(sizes)] * 6))  # the other classes of the pool
    rows = np.flatnonzero(codes < len(sizes))
    groups = Likeness(features).groups(rows)
    assert sorted(row for group in groups for row in group) == rows.tolist()
    assert [len(group) for group in groups] == sorted(sizes, reverse=True)
    assert all(len(set(codes[group])) == 1 for group in groups)


@pytest.mark.parametrize("sizes", [(40, 25, 10), (40, 30, 20, 10, 10)])
@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_apart_where_they_are_the_whole_pool(sizes, seed):
    features, codes = clusters(sizes, seed)
    groups = Likeness(features).groups(np.arange(len(codes)))
    assert [len(group) for group in groups] == sorted(sizes, reverse=True)
    assert all(len(set(codes[group])) == 1 for group in groups)


def test_few_items_are_one_group():
    features, _ = clusters((2, 2))
    assert Likeness(features).groups(np.array([], dtype=np.int64)) == []
    assert Likeness(features).groups(np.array([1, 3])) == [[1, 3]]


def test_the_nearest_labelled_items_are_of_the_same_kind_and_never_the_item_itself():
    features, codes = clusters((20, 20, 20))
    labelled = np.arange(60) % 2 == 0
    near = Likeness(features).nearest(4, labelled, 5)
    assert 4 not in [row for row, _ in near]
    assert all(codes[row] == codes[4] and labelled[row] for row, _ in near)
    assert [cosine for _, cosine in near] == sorted((cosine for _, cosine in near), reverse=True)


def test_work_that_is_asked_for_often_is_done_together():
    done, busy = [], threading.Event()

    def work():
        done.append(time.monotonic())
        busy.wait(0.2)

    worker = Worker(work, quiet=0.02, latest=0.2)
    worker.start()
    for _ in range(50):
        worker.ask()
        time.sleep(0.002)
    time.sleep(0.5)
    assert 1 <= len(done) <= 3
    worker.stop(5)
    assert not worker.is_alive()


def test_pictures_are_kept_up_to_a_bound_and_missing_ones_are_none(tmp_path):
    photos = sorted(made_photos(tmp_path / "photos", each=4, labelled=1, strangers=0).rglob("*.png"))
    photos[3].write_bytes(b"not an image")
    pictures = Thumbnails(photos, kept=3_000)
    found = [pictures.get(row, "small") for row in range(len(photos))]
    assert found[3] is None
    assert all(one.startswith(b"\xff\xd8") for row, one in enumerate(found) if row != 3)
    assert sum(map(len, pictures._found.values())) <= 3_000
    assert pictures.get(-1, "small") is pictures.get(len(photos), "small") is None
