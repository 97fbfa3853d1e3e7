"""Backbones are merged row by row, and rows that do not belong together are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkshot import FeatureBank
from sinkshot.errors import InputError
from sinkshot.studies.bank_source import find_bank
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.merge import FIRST, first_of_each_class, merge, selection, selection_seed, shuffled
from sinkshot.studies.study import BankKey

LABELS = np.repeat(np.arange(3), 4)
NAMES = ("cat", "dog", "emu")


def bank(width, meta=None, base=(), labels=LABELS, names=NAMES, start=0.0):
    features = start + np.arange(len(labels) * width, dtype=np.float32).reshape(len(labels), width)
    means = {prefix: np.arange(width, dtype=np.float32) + start for prefix in base}
    return FeatureBank(features, labels, names, meta or {}, means)


def test_columns_stand_side_by_side():
    a, b = bank(2), bank(3, start=100)
    merged = merge([a, b], ["a", "b"])
    np.testing.assert_array_equal(merged.features, np.hstack([a.features, b.features]))
    np.testing.assert_array_equal(merged.labels, LABELS)
    assert merged.class_names == NAMES


def test_what_was_merged_is_told():
    a = bank(2, {"data_set": "CUB", "backbone": "A"})
    b = bank(3, {"data_set": "CUB", "backbone": "B"})
    assert dict(merge([a, b], ["a", "b"]).meta) == {
        "data_set": "CUB",
        "backbone": "a+b",
        "merged": "a (2 columns), b (3 columns)",
    }


def test_base_means_that_hold_for_each_coordinate_are_merged_and_no_others():
    a, b = bank(2, base=("", "P", "E", "PE")), bank(3, base=("", "E", "PE"), start=10)
    merged = merge([a, b], ["a", "b"])
    assert list(merged.base) == [""]
    np.testing.assert_array_equal(merged.base[""], [0, 1, 10, 11, 12])


def test_a_bank_of_the_first_rows_of_each_class_is_merged_with_a_whole_one():
    whole, other = bank(2, {"images": json.dumps([f"{i}.png" for i in range(12)])}), bank(3, start=100)
    merged = merge([whole, first_of_each_class(other, 2)], ["a", "b"])
    rows = [0, 1, 4, 5, 8, 9]
    np.testing.assert_array_equal(merged.features, np.hstack([whole.features, other.features])[rows])
    np.testing.assert_array_equal(merged.labels, LABELS[rows])
    assert merged.meta[FIRST] == "2"
    assert json.loads(first_of_each_class(whole, 2).meta["images"])[2] == "4.png"


def test_banks_of_fewer_rows_are_merged_at_the_smallest_number():
    merged = merge([first_of_each_class(bank(2), 3), first_of_each_class(bank(3), 1)], ["a", "b"])
    np.testing.assert_array_equal(merged.labels, [0, 1, 2])


def test_first_rows_follow_the_order_of_a_bank_whose_classes_are_mixed():
    labels = np.array([2, 0, 1, 0, 2, 1, 1, 0])
    few = first_of_each_class(bank(2, labels=labels), 1)
    np.testing.assert_array_equal(few.labels, [2, 0, 1])
    np.testing.assert_array_equal(few.features, bank(2, labels=labels).features[:3])


@pytest.mark.parametrize("said", ["", "0", "-1", "x", "9" * 50])
def test_a_wrong_number_of_first_rows_is_refused(said):
    with pytest.raises(InputError, match="must be a whole number above 0"):
        merge([bank(2), bank(3, {FIRST: said})], ["a", "b"])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (bank(2, labels=LABELS[:-1]), "they have 12 and 11 rows"),
        (bank(2, labels=np.array([0, 0, 0, 1, 1, 1, 1, 0, 2, 2, 2, 2])), "row 3 has class 'cat' in one and 'dog'"),
        (bank(2, names=("cat", "cow", "emu")), "row 4 has class 'dog' in one and 'cow' in the other"),
        (bank(2, labels=np.array([2, 1, 0])[LABELS], names=NAMES[::-1]), "in a different order"),
        (bank(2, {"images": json.dumps(["x"] * 7 + ["y"] * 5)}), "row 7 is image 'x' in one and 'y' in the other"),
        (bank(2, {"images_sha256": "2"}), "the hashes of their images"),
        (bank(2, {"images": "[]"}), "must be a JSON list of 12 names"),
    ],
)
def test_rows_that_do_not_belong_together_are_refused(other, said):
    mine = bank(2, {"images": json.dumps(["x"] * 12), "images_sha256": "1"})
    with pytest.raises(InputError, match=r"a and b cannot be merged|b: 'images'") as error:
        merge([mine, other], ["a", "b"])
    assert said in str(error.value)


def test_banks_that_do_not_tell_their_images_are_merged_by_their_labels():
    merge([bank(2, {"images": json.dumps(["x"] * 12), "images_sha256": "1"}), bank(2)], ["a", "b"])


def test_a_bank_is_assembled_from_the_files_of_its_backbones(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    bank(2).save(tmp_path / "cub_a_novel.npz")
    bank(3).save(tmp_path / "cub_b_novel.safetensors")
    catalogue = Catalogue([tmp_path])
    assert find_bank(BankKey("cub", ("b",)), catalogue).open().width == 3
    np.testing.assert_array_equal(
        find_bank(BankKey("cub", ("b", "a")), catalogue).open().features,
        np.hstack([bank(3).features, bank(2).features]),
    )
    with pytest.raises(InputError, match=r"cub_c_novel\.safetensors is missing"):
        find_bank(BankKey("cub", ("a", "c")), catalogue)


@given(st.integers(1, 9), st.integers(0, 2**64 - 1))
def test_a_selection_takes_columns_once_and_in_their_order(count, seed):
    whole = bank(9, base=("", "E"))
    part = selection(whole, count, seed)
    columns = part.features[0].astype(int)
    assert (np.diff(columns) > 0).all()
    assert len(columns) == count
    np.testing.assert_array_equal(part.features, whole.features[:, columns])
    assert list(part.base) == [""]
    np.testing.assert_array_equal(part.base[""], whole.base[""][columns])


def test_all_coordinates_are_the_whole_bank():
    np.testing.assert_array_equal(selection(bank(5), 5, 3).features, bank(5).features)


@pytest.mark.parametrize("count", [0, 6])
def test_a_selection_of_more_than_there_is_is_refused(count):
    with pytest.raises(InputError, match="from 1 to 5, the width of the bank"):
        selection(bank(5), count, 0)


def test_selections_differ_by_number_and_by_seed_and_repeat():
    seeds = {selection_seed(seed, number) for seed in range(3) for number in range(100)}
    assert len(seeds) == 300
    assert selection_seed(2, 7) == selection_seed(2, 7)


def test_every_coordinate_is_as_likely_as_another():
    """Each of 40 columns is among the first 10 in a quarter of 4,000 draws: 1,000, give or take 5 s of 27."""
    taken = np.bincount(np.concatenate([shuffled(40, selection_seed(0, i))[:10] for i in range(4000)]), minlength=40)
    assert abs(taken - 1000).max() < 5 * 27.4


def test_draws_are_the_same_on_every_machine():
    assert shuffled(8, selection_seed(0, 0)).tolist() == [1, 6, 5, 2, 7, 3, 0, 4]
