"""The native format keeps a bank exactly; 8 bits keep it nearly."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors import safe_open
from safetensors.numpy import save_file

from sinkshot.bank import FeatureBank, load
from sinkshot.errors import InputError

EXACT = Path(__file__).parents[1] / "golden" / "cifar-fs_wrn-28-10_novel_f16.safetensors"


@st.composite
def any_bank(draw, low=None, high=None):
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    numbers = st.floats(low, high, width=32, allow_nan=False, allow_infinity=False)
    labels = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    order = draw(st.permutations(sorted(set(labels))))  # not only the order of appearance
    names = draw(st.lists(st.text(), min_size=len(order), max_size=len(order), unique=True))
    return FeatureBank(
        draw(arrays(np.float32, (rows, width), elements=numbers)),
        np.array([order.index(label) for label in labels]),
        tuple(names),
        draw(st.dictionaries(st.text(), st.text(), max_size=3)),
        draw(st.dictionaries(st.sampled_from(["", "E", "P", "PE"]), arrays(np.float32, width, elements=numbers))),
    )


def through(suffix, bank, store):
    with tempfile.TemporaryDirectory() as folder:
        bank.save(Path(folder) / f"bank{suffix}", store)
        return load(Path(folder) / f"bank{suffix}")


def same_but_features(a, b):
    same_base = a.base.keys() == b.base.keys() and all(np.array_equal(a.base[key], b.base[key]) for key in a.base)
    return same_base and (a.class_names, a.meta) == (b.class_names, b.meta) and np.array_equal(a.labels, b.labels)


@settings(max_examples=30, deadline=None)
@given(any_bank(), st.sampled_from([".safetensors", ".npz"]))
def test_a_bank_comes_back_as_it_was(bank, suffix):
    back = through(suffix, bank, "float32")
    assert back.content_hash() == bank.content_hash()
    assert same_but_features(back, bank)


@settings(max_examples=20, deadline=None)
@given(any_bank(-65504, 65504), st.sampled_from([".safetensors", ".npz"]))
def test_float16_rounds_features_and_nothing_else(bank, suffix):
    back = through(suffix, bank, "float16")
    np.testing.assert_array_equal(back.features, bank.features.astype(np.float16).astype(np.float32))
    assert same_but_features(back, bank)


@settings(max_examples=30, deadline=None)
@given(any_bank(0, None))
def test_eight_bits_keep_every_square_root_within_half_a_step(bank):
    back = through(".safetensors", bank, "uint8")
    step = np.sqrt(bank.features.max(axis=0).astype(np.float64)) / 255
    error = np.abs(np.sqrt(back.features.astype(np.float64)) - np.sqrt(bank.features.astype(np.float64)))
    assert (error <= 0.5001 * step + 1e-6 * np.sqrt(bank.features.max(axis=0)) + 1e-22).all()
    assert (back.features[bank.features == 0] == 0).all()
    assert same_but_features(back, bank)


def test_eight_bits_refuse_negative_entries_and_suggest_float16(tmp_path):
    bank = FeatureBank.from_arrays([[1.0, 2], [0, -3]], [0, 0])
    with pytest.raises(InputError, match=r"row 1 has the negative entry -3\.0.*store float16"):
        bank.save(tmp_path / "bank.safetensors", "uint8")
    assert not list(tmp_path.iterdir())


def test_float16_refuses_what_it_cannot_hold(tmp_path):
    bank = FeatureBank.from_arrays([[1.0, 2], [0, 70000]], [0, 0])
    with pytest.raises(InputError, match=r"70000\.0 at row 1, column 1 is beyond float16; store float32"):
        bank.save(tmp_path / "bank.safetensors", "float16")


def test_the_same_bank_gives_the_same_bytes(tmp_path):
    bank = FeatureBank.from_arrays(
        [[1.0, 2], [0, 3]], ["a", "b"], meta={"x": "1", "y": "2"}, base={"": [0, 0], "E": [1, 1]}
    )
    files = [tmp_path / "one.safetensors", tmp_path / "two.safetensors"]
    for file in files:
        bank.save(file, "uint8")
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_layout_is_the_documented_one(tmp_path):
    bank = FeatureBank.from_arrays([[4.0, 0], [0.64, 0]], ["a", "b"], meta={"x": "1"}, base={"PE": [1, 1]})
    bank.save(tmp_path / "bank.safetensors", "uint8")
    with safe_open(tmp_path / "bank.safetensors", framework="np") as file:
        assert set(file.keys()) == {"features", "features.scale", "labels", "base.PE"}
        assert file.get_tensor("features").tolist() == [[255, 0], [102, 0]]
        np.testing.assert_allclose(file.get_tensor("features.scale"), [2 / 255, 0], rtol=1e-6)
        header = json.loads(file.metadata()["sinkshot"])
    assert header == {"version": 1, "class_names": ["a", "b"], "meta": {"x": "1"}}


def test_features_are_decoded_the_same_in_blocks(monkeypatch):
    bank = FeatureBank.from_arrays(np.random.RandomState(0).gamma(1, size=(40, 6)), np.arange(40) % 3)
    whole = through(".safetensors", bank, "uint8")
    monkeypatch.setattr("sinkshot.arrays.BLOCK", 50)
    assert through(".safetensors", bank, "uint8").content_hash() == whole.content_hash()


def test_a_safetensors_file_of_others_is_read(tmp_path):
    file = tmp_path / "theirs.safetensors"
    save_file({"features": np.ones((3, 2), np.float64), "labels": np.array([9, 4, 9], np.int32)}, file)
    bank = load(file)
    assert (bank.class_names, bank.labels.tolist(), bank.meta["source"]) == (
        ("9", "4"),
        [0, 1, 0],
        "theirs.safetensors",
    )


@pytest.mark.parametrize(
    ("tensors", "header", "message"),
    [
        ({"labels": np.zeros(2, int)}, None, "no tensor 'features', only labels"),
        ({"features": np.ones((2, 2))}, None, "no tensor 'labels'"),
        ({"features": np.ones(2), "labels": np.zeros(2, int)}, None, r"shape \[2\]"),
        ({"features": np.ones((0, 2)), "labels": np.zeros(0, int)}, None, r"shape \[0, 2\]"),
        (
            {"features": np.ones((2, 2), np.uint8), "features.scale": np.ones(1), "labels": np.zeros(2, int)},
            None,
            "scale",
        ),
        ({"features": np.ones((2, 2)), "labels": np.zeros(3, int)}, None, "2 rows of features but 3 labels"),
        ({"features": np.full((2, 2), np.nan), "labels": np.zeros(2, int)}, None, "row 0, column 0"),
        ({"features": np.ones((2, 2)), "labels": np.zeros(2, int)}, '{"version": 2}', "format version 2.*upgrade"),
        ({"features": np.ones((2, 2)), "labels": np.zeros(2, int)}, "{", "damaged"),
        ({"features": np.ones((2, 2)), "labels": np.zeros(2, int)}, "[]", "damaged"),
    ],
)
def test_a_safetensors_file_that_is_no_bank_is_refused(tmp_path, tensors, header, message):
    file = tmp_path / "bad.safetensors"
    save_file(tensors, file, metadata={"sinkshot": header} if header else None)
    with pytest.raises(InputError, match=rf"bad\.safetensors.*{message}"):
        load(file)


def test_the_bundled_bank_is_loaded_by_its_plain_name_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bank = load("cifar-fs_wrn-28-10_novel")
    assert (bank.classes, bank.width, set(bank.counts.tolist())) == (20, 640, {600})
    assert set(bank.base) == {"", "E", "P", "PE"}
    assert {"data_set", "split", "backbone", "made", "weights_sha256", "recipe"} <= bank.meta.keys()


def test_a_file_of_that_name_comes_before_the_bundled_bank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cifar-fs_wrn-28-10_novel").write_text("mine")
    with pytest.raises(InputError, match="no suffix"):
        load("cifar-fs_wrn-28-10_novel")


def test_a_bank_in_8_bits_is_the_exact_one_within_a_quantisation_step(tmp_path):
    exact = load(EXACT)
    exact.save(tmp_path / "compact.safetensors", store="uint8")
    kept = load(tmp_path / "compact.safetensors")
    error = np.abs(kept.features - exact.features)
    assert error.max() < 0.011
    assert error.sum() / exact.features.sum() < 0.006
    assert same_but_features(FeatureBank(exact.features, exact.labels, exact.class_names, kept.meta, exact.base), kept)
