"""An array of features finds its labels and class names beside it, or in a named file."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkshot.bank import load
from sinkshot.errors import InputError


@pytest.fixture
def features(tmp_path):
    np.save(tmp_path / "novel_f16.npy", np.arange(6, dtype=np.float16).reshape(3, 2))
    return tmp_path / "novel_f16.npy"


@pytest.mark.parametrize("stem", ["novel_f16", "novel"])
def test_labels_and_names_are_found_beside_the_features(features, stem):
    np.save(features.with_name(f"{stem}_labels.npy"), np.array([1, 0, 1]))
    np.save(features.with_name(f"{stem}_class_names.npy"), np.array(["cat", "dog"]))
    bank = load(features)
    assert (bank.class_names, bank.labels.tolist()) == (("dog", "cat"), [0, 1, 0])
    np.testing.assert_array_equal(bank.features, [[0, 1], [2, 3], [4, 5]])
    assert bank.meta["source"] == "novel_f16.npy"


def test_a_named_labels_file_comes_before_the_one_beside(features):
    np.save(features.with_name("novel_labels.npy"), np.array([0, 0, 0]))
    np.save(features.with_name("other.npy"), np.array(["a", "b", "a"]))
    assert load(features, labels=features.with_name("other.npy")).class_names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("y.txt", "dog\ncat\ndog\n", ("dog", "cat")),
        ("y.txt", "dog, big\r\ncat\r\ndog, big", ("dog, big", "cat")),
        ("y.csv", '\ufeff"dog, big"\ncat\n"dog, big"\n\n', ("dog, big", "cat")),
        ("y.csv", "7\n3\n7\n", ("7", "3")),
        ("y.txt", "07\n7\n07\n", ("07", "7")),
        ("Y.TXT", "2\n-1\n2\n", ("2", "-1")),
    ],
)
def test_labels_may_be_text_one_a_line(features, name, text, names):
    features.with_name(name).write_bytes(text.encode())
    bank = load(features, labels=features.with_name(name))
    assert (bank.class_names, bank.labels.tolist()) == (names, [0, 1, 0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("abcxyz0123456789-,' ", min_size=1).map(str.strip).filter(bool), min_size=1, max_size=8))
def test_any_labels_come_back_from_text(tmp_path_factory, labels):
    folder = tmp_path_factory.mktemp("text")
    np.save(folder / "x.npy", np.ones((len(labels), 1)))
    (folder / "y.txt").write_text("\n".join(labels))
    bank = load(folder / "x.npy", folder / "y.txt")
    assert [bank.class_names[label] for label in bank.labels] == labels


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("y.txt", b"a\n\nb\n", r"line 2 of the labels file .*y\.txt"),
        ("y.csv", b"a\nb,1\nc\n", r"line 2 of the labels file .*y\.csv holds 2 values"),
        ("y.txt", b"a\nb\n", "3 rows of features but 2 labels"),
        ("y.txt", b"\xff\xfe\n", r"y\.txt is not UTF-8 text"),
        ("y.txt", b"", r"y\.txt is empty"),
        ("y.json", b"[1, 2, 3]", r"not from .*y\.json"),
        ("y.npy", b"\x93NUMPY\x01\x00v", r"y\.npy could not be read as the array of labels"),
    ],
)
def test_a_labels_file_that_cannot_be_used_is_named(features, name, content, message):
    features.with_name(name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load(features, labels=features.with_name(name))


def test_missing_labels_are_said_to_be_missing(features):
    with pytest.raises(InputError, match=r"no novel_f16_labels\.npy beside it; give a labels file"):
        load(features)
    with pytest.raises(InputError, match=r"nowhere\.npy does not exist"):
        load(features, labels=features.with_name("nowhere.npy"))


@pytest.mark.parametrize(
    "array", [np.ones(3), np.ones((3, 2, 1)), np.array([["a"]] * 3), np.array([[None]] * 3), np.ones((0, 2))]
)
def test_an_array_that_is_no_matrix_of_numbers_is_refused(tmp_path, array):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    np.save(tmp_path / "x_labels.npy", np.zeros(3, int))
    with pytest.raises(InputError, match=r"x\.npy"):
        load(tmp_path / "x.npy")


def test_a_labels_file_goes_with_an_array_only(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.ones((3, 2)), labels=np.zeros(3, int))
    with pytest.raises(InputError, match="holds its own labels"):
        load(tmp_path / "x.npz", labels=tmp_path / "y.npy")
