"""NumPy archives become banks, and nothing pickled in them is ever read. (Round trips: test_native.py.)"""

import hashlib

import numpy as np
import pytest

from sinkshot.bank import FeatureBank, load
from sinkshot.errors import InputError


def test_an_archive_of_others_is_read_with_names_that_follow_their_classes(tmp_path):
    file = tmp_path / "theirs.npz"
    names = np.array(["ant", "bee", "cow"])
    np.savez(
        file, features=np.eye(4, dtype=np.float16), labels=np.array([2, 0, 2, 0], np.int16), class_names=names, other=1
    )
    bank = load(file)
    assert (bank.class_names, bank.labels.tolist()) == (("cow", "ant"), [0, 1, 0, 1])
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert dict(bank.meta) == {"source": "theirs.npz", "source_sha256": digest}


@pytest.mark.parametrize("labels", [np.array(["dog", "cat", "dog"]), np.array([b"dog", b"cat", b"dog"])])
def test_labels_may_be_strings_and_the_archive_compressed(tmp_path, labels):
    np.savez_compressed(tmp_path / "s.npz", features=np.ones((3, 2)), labels=labels)
    assert load(tmp_path / "s.npz").class_names == ("dog", "cat")


def test_what_we_export_any_numpy_reads(tmp_path):
    FeatureBank.from_arrays([[1.0, 2], [3, 4]], ["a", "b"]).save(tmp_path / "out.npz", "float16")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert archive["features"].dtype == np.float16
        assert [archive["class_names"][label] for label in archive["labels"]] == ["a", "b"]


def test_eight_bits_are_for_the_native_format(tmp_path):
    with pytest.raises(InputError, match=r"for 8 bits write a \.safetensors"):
        FeatureBank.from_arrays([[1.0]], [0]).save(tmp_path / "out.npz", "uint8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, "no array 'features', only labels"),
        ({"features": np.ones((2, 2))}, "no array 'labels', only features"),
        ({"features": np.array([[1], [1, 2]], object), "labels": np.zeros(2, int)}, "'features' holds Python objects"),
        ({"features": np.ones((2, 2)), "labels": np.array([0, "a"], object)}, "'labels' holds Python objects"),
        ({"features": np.ones((2, 2)), "labels": np.zeros(3, int)}, "2 rows of features but 3 labels"),
        (
            {"features": np.ones((2, 2)), "labels": np.array([0, 5]), "class_names": np.array(["a"])},
            "row 1 has label 5",
        ),
        (
            {"features": np.ones((2, 2)), "labels": np.zeros(2, int), "class_names": np.array("a")},
            "sequence of strings",
        ),
        ({"features": np.ones(2), "labels": np.zeros(2, int)}, r"shape \(2,\)"),
    ],
)
def test_an_archive_that_is_no_bank_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", allow_pickle=True, **arrays)
    with pytest.raises(InputError, match=rf"bad\.npz: .*{message}"):
        load(tmp_path / "bad.npz")


def test_an_array_under_the_name_of_an_archive_is_refused(tmp_path):
    with (tmp_path / "bad.npz").open("wb") as file:
        np.save(file, np.ones((2, 2)))
    with pytest.raises(InputError, match="not a NumPy archive"):
        load(tmp_path / "bad.npz")
