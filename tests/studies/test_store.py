"""The store keeps every episode of every cell with several writers, and reports when it cannot."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from toy_studies import KEY, cell, measured, numbers, resolve_cells, save

from sinkshot.calibration import CONFIDENCE, judge
from sinkshot.errors import InputError
from sinkshot.studies.chunks import ChunkResult
from sinkshot.studies.environment import this_machine
from sinkshot.studies.store import Store


@pytest.fixture
def resolved(catalogue):
    return resolve_cells(catalogue, cell())[0]


def part(count, opened=False, start=0.0):
    values = (start + np.arange(count)) / 10_000
    seconds = {"sample": 0.125, "prepare": 0.25, "classify": 0.5, "total": 1.0}
    rejection = {"auroc": 1 - values, "aupr": values / 2, "fpr95": 1 - values / 2} if opened else {}
    return ChunkResult(values, rejection, seconds, this_machine())


def judged_part(count, seed):
    """A part with a histogram of confidences."""
    rng = np.random.default_rng(seed)
    one = judge(rng.dirichlet(np.ones(3), (count, 4)).astype(np.float32), rng.integers(0, 3, (count, 4)))
    metrics = {name: one.per_episode[name] for name in ("macro_accuracy", "brier", "nll")}
    return ChunkResult(one.accuracy, metrics, part(1).seconds, this_machine(), one.confidence)


def rows(place, query):
    with sqlite3.connect(place) as database:
        return database.execute(query).fetchall()


def test_what_is_written_is_read_again_bit_for_bit(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, part(1000, opened=True))
        store.add(resolved, 1000, part(500, opened=True, start=1000))
    with Store(place) as store:
        stored = store.get(resolved, 1500)
    np.testing.assert_array_equal(stored.per_episode, np.arange(1500) / 10_000)
    np.testing.assert_array_equal(stored.auroc_per_episode, 1 - np.arange(1500) / 10_000)
    np.testing.assert_array_equal(stored.aupr_per_episode, np.arange(1500) / 20_000)
    np.testing.assert_array_equal(stored.fpr95_per_episode, 1 - np.arange(1500) / 20_000)
    assert stored.seconds == {"sample": 0.25, "prepare": 0.5, "classify": 1.0, "total": 2.0}
    assert (stored.method, stored.preprocess, stored.bank, stored.engine) == ("ncm", "PE", KEY, "numba")
    assert (stored.recipe.episodes, stored.recipe.seed, stored.recipe.way) == (1500, 0, 3)
    assert stored.bank_hash == resolved.bank.content
    assert stored.version == resolved.version
    assert stored.hardware == this_machine().hardware
    assert stored.versions["numpy"] == np.__version__


def test_alpha_and_ratio_decide_a_cell_where_they_are_used_and_an_older_dirichlet_keeps_its_key(catalogue):
    def recipe_of(**recipe):
        (resolved,) = resolve_cells(catalogue, cell(**recipe))
        return json.loads(resolved.settings)["recipe"]

    usual = {"way": 3, "shot": 1, "query": 5}
    assert recipe_of(alpha=7, ratio=3) == {"protocol": "balanced", **usual}
    assert recipe_of(protocol="dirichlet") == {"protocol": "dirichlet", **usual}
    assert recipe_of(protocol="dirichlet", alpha=2, ratio=3) == {"protocol": "dirichlet", **usual}
    assert recipe_of(protocol="dirichlet", alpha=1) == {"protocol": "dirichlet", **usual, "alpha": 1.0}
    assert recipe_of(protocol="long-tail", alpha=1) == {"protocol": "long-tail", **usual, "ratio": 10.0}


def test_a_stored_cell_tells_its_alpha(place, catalogue):
    few, many = (cell(protocol="dirichlet", alpha=alpha, episodes=40) for alpha in (0.5, 5))
    results = measured(place, catalogue, few, many).results
    assert (results[few].recipe.alpha, results[many].recipe.alpha) == (0.5, 5)


def test_fewer_episodes_are_the_first_of_more(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, part(1000))
        assert store.get(resolved, 1001) is None
        np.testing.assert_array_equal(store.get(resolved, 300).per_episode, np.arange(300) / 10_000)
        assert store.get(resolved, 300).seconds["total"] == pytest.approx(0.3)


def test_a_gap_ends_what_can_be_used(place, resolved):
    with Store(place) as store:
        store.add(resolved, 1000, part(1000))
        assert store.get(resolved, 1000) is None
        store.add(resolved, 0, part(700))
        assert [stored.episodes for stored in store.everything()] == [700]


def test_a_longer_chunk_takes_the_place_of_a_shorter_and_never_the_other_way_round(place, resolved):
    with Store(place) as store:
        for count, kept in ((500, 500), (900, 900), (200, 900)):
            store.add(resolved, 0, part(count))
            assert store.present(resolved) == {0: kept}


def test_nothing_but_equal_settings_is_the_same_cell(tmp_path, place, blobs, catalogue):
    others = [
        cell(seed=1),
        cell(way=4),
        cell(preprocess="E"),
        cell("kmeans"),
        cell("kmeans", hyper={"steps": 3}),
        cell("bms"),
        cell("bms", hyper={"lam": 3.0}),
    ]
    keys = {resolved.key for resolved in resolve_cells(catalogue, cell(), *others)}
    assert len(keys) == 1 + len(others)
    same = resolve_cells(catalogue, cell("bms"), cell("bms", preprocess="PEMnE"), cell("bms", hyper={"lam": 8.5}))
    assert len(same) == 1


def test_a_bank_whose_content_changed_is_another_bank(tmp_path, place, blobs):
    first = measured(place, save(blobs, tmp_path), cell())
    other = type(blobs)(np.array(blobs.features) * 2 + 0.1, blobs.labels, blobs.class_names)
    second = measured(place, save(other, tmp_path), cell())
    assert numbers(first).keys().isdisjoint(numbers(second))
    assert len(rows(place, "SELECT * FROM cells")) == 2
    assert numbers(measured(place, save(blobs, tmp_path), cell())) == numbers(first)
    assert len(rows(place, "SELECT * FROM cells")) == 2


def test_two_may_make_a_store_at_the_same_moment(tmp_path):
    def make(place):
        with Store(place):
            return True

    with ThreadPoolExecutor(4) as threads:
        for number in range(15):
            assert all(threads.map(make, [tmp_path / f"{number}.sqlite"] * 4))


@pytest.mark.slow
def test_two_processes_write_at_once_and_nothing_is_lost(tmp_path, place, resolved):
    code = (
        "import pickle, sys; from pathlib import Path\n"
        "from sinkshot.studies.store import Store\n"
        "resolved, part = pickle.load(sys.stdin.buffer)\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    for number in range(100): store.add(resolved, 2 * number + int(sys.argv[2]), part)\n"
    )
    import pickle

    words = [sys.executable, "-c", code, str(place)]
    runs = [subprocess.Popen([*words, str(offset)], stdin=subprocess.PIPE) for offset in (0, 1)]
    for run in runs:
        run.stdin.write(pickle.dumps((resolved, part(1))))
        run.stdin.close()
    assert [run.wait(60) for run in runs] == [0, 0]
    with Store(place) as store:
        assert store.present(resolved) == dict.fromkeys(range(200), 1)


def test_a_reader_sees_a_store_that_is_being_written(place, resolved):
    with Store(place) as writer:
        writer.add(resolved, 0, part(10))
        with Store(place, reading=True) as reader:
            assert reader.get(resolved, 10) is not None


def damaged(kind, place, resolved):
    with Store(place) as store:
        for first in range(0, 20_000, 1000):
            store.add(resolved, first, part(1000))
    content = bytearray(place.read_bytes())
    match kind:
        case "truncated":
            place.write_bytes(content[: len(content) // 2])
        case "overwritten":
            content[4096 : 3 * 4096] = b"\xff" * 2 * 4096
            place.write_bytes(content)
        case "text":
            place.write_text("accuracy,ci95\n" * 100)
        case "accuracies":
            with sqlite3.connect(place) as database:
                database.execute("UPDATE chunks SET accuracy = zeroblob(16)")
        case "foreign":
            place.unlink()
            with sqlite3.connect(place) as database:
                database.execute("CREATE TABLE letters (text)")
        case "newer":
            with sqlite3.connect(place) as database:
                database.execute("PRAGMA user_version = 99")
        case "folder":
            place.unlink()
            place.mkdir()


@pytest.mark.parametrize("kind", ["truncated", "overwritten", "text", "accuracies", "foreign", "newer", "folder"])
@pytest.mark.parametrize("reading", [True, False])
def test_a_damaged_or_foreign_file_gets_a_sentence(place, resolved, kind, reading):
    damaged(kind, place, resolved)

    def use():
        with Store(place, reading=reading) as store:
            store.get(resolved, 20_000)

    with pytest.raises(InputError) as caught:
        use()
    assert str(place) in str(caught.value)


def test_a_full_disk_gets_a_sentence_and_keeps_what_was_there(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, part(1000))
        (pages,) = store._database.execute("PRAGMA page_count").fetchone()
        store._database.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(InputError, match="full"):
            store.add(resolved, 1000, part(1000))
        assert store.get(resolved, 1000) is not None


def test_there_is_nothing_to_read_where_there_is_no_file(tmp_path):
    with pytest.raises(InputError, match="no file"):
        Store(tmp_path / "nowhere.sqlite", reading=True)
    with pytest.raises(InputError, match="in an existing folder"):
        Store(Path(tmp_path / "no" / "where.sqlite"))


NEW = {2: ("aupr", "fpr95"), 3: ("macro_accuracy", "brier", "nll", "confidence")}


def made_older(place, version=1):
    """Turn a store into one of an older version."""
    with sqlite3.connect(place) as database:
        for column in (name for newer, names in NEW.items() if newer > version for name in names):
            database.execute(f"ALTER TABLE chunks DROP COLUMN {column}")
        database.execute(f"PRAGMA user_version = {version}")


def test_a_store_of_format_1_is_read_as_it_is_and_takes_new_numbers_once_opened_for_writing(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, part(1000, opened=True))
    made_older(place)
    for reading in (True, False):
        with Store(place, reading=reading) as store:
            stored = store.get(resolved, 1000)
        np.testing.assert_array_equal(stored.auroc_per_episode, 1 - np.arange(1000) / 10_000)
        assert stored.aupr is stored.fpr95 is None
    with Store(place) as store:
        store.add(resolved, 0, part(1000, opened=True))
        assert store.get(resolved, 1000).aupr == pytest.approx(np.arange(1000).mean() / 20_000)


def test_a_measure_that_some_chunks_lack_is_not_told_of_the_cell(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, part(1000, opened=True))
    made_older(place)
    with Store(place) as store:
        store.add(resolved, 1000, part(500, opened=True, start=1000))
        stored = store.get(resolved, 1500)
    assert len(stored.auroc_per_episode) == 1500
    assert stored.fpr95 is None


def test_histograms_of_chunks_add_up_and_a_cut_inside_one_leaves_only_what_each_episode_has(place, resolved):
    parts = [judged_part(1000, 0), judged_part(1000, 1), judged_part(500, 2)]
    with Store(place) as store:
        for first, one in zip((0, 1000, 2000), parts, strict=True):
            store.add(resolved, first, one)
        whole, two, inside = (store.get(resolved, count) for count in (2500, 2000, 1700))
    assert whole.confidence == sum((one.confidence for one in parts[1:]), parts[0].confidence)
    assert two.confidence == parts[0].confidence + parts[1].confidence
    assert two.brier == np.concatenate([one.metrics["brier"] for one in parts[:2]]).mean()
    assert inside.confidence is inside.ece is None
    assert len(inside.nll_per_episode) == 1700
    assert "ece" not in inside.to_dict()


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_is_readable_and_says_nothing_of_confidence(place, resolved, version):
    with Store(place) as store:
        store.add(resolved, 0, judged_part(1000, 0))
    made_older(place, version)
    for reading in (True, False):
        with Store(place, reading=reading) as store:
            stored = store.get(resolved, 1000)
        assert stored.accuracy > 0
        assert not set(CONFIDENCE) & set(stored.to_dict())
    with Store(place) as store:
        store.add(resolved, 0, judged_part(1000, 0))
        assert store.get(resolved, 1000).ece == judged_part(1000, 0).confidence.ece


def test_a_damaged_histogram_gets_a_sentence(place, resolved):
    with Store(place) as store:
        store.add(resolved, 0, judged_part(1000, 0))
    with sqlite3.connect(place) as database:
        database.execute("UPDATE chunks SET confidence = x'00'")
    with Store(place) as store, pytest.raises(InputError, match="damaged"):
        store.get(resolved, 1000)
