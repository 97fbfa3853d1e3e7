"""FeatureBank: it validates itself, keeps classes in order, and is immutable."""

import copy
import json
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkshot import bank as banks
from sinkshot.bank import FeatureBank, describe
from sinkshot.errors import InputError


def small(**changes):
    parts = {"features": np.arange(6.0).reshape(3, 2), "labels": np.array([0, 1, 0]), "class_names": ("cat", "dog")}
    return FeatureBank(**{**parts, **changes})


def test_a_bank_tells_its_sizes():
    bank = small(meta={"data_set": "pets", "split": "novel"})
    assert (bank.classes, bank.width, bank.counts.tolist()) == (2, 2, [2, 1])
    assert repr(bank) == "FeatureBank(3 rows, 2 classes, width 2, data_set='pets', split='novel')"


def test_arrays_are_float32_and_int64_and_contiguous():
    bank = small(features=np.asfortranarray(np.ones((3, 2))), labels=np.array([0, 1, 0], np.uint8), base={"E": [1, 2]})
    assert (bank.features.dtype, bank.labels.dtype, bank.base["E"].dtype) == (np.float32, np.int64, np.float32)
    assert bank.features.flags.c_contiguous


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8, np.uint64, bool, np.dtype(">f4")])
def test_numbers_of_any_kind_become_float32(kind):
    bank = small(features=np.array([[0, 1], [1, 0], [1, 1]], kind))
    np.testing.assert_array_equal(bank.features, np.array([[0, 1], [1, 0], [1, 1]], np.float32))


def test_nothing_of_a_bank_can_be_changed():
    features = np.ones((3, 2), np.float32)
    bank = small(features=features, meta={"a": "b"}, base={"": np.ones(2)})
    features[0, 0] = 7  # the array it was made from may still change
    assert bank.features[0, 0] == 1
    for array in (bank.features, bank.labels, bank.base[""]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        bank.labels = np.zeros(3)
    for mapping in (bank.meta, bank.base):
        with pytest.raises(TypeError):
            mapping["new"] = "value"


def test_a_read_only_view_of_a_changing_array_is_copied():
    features = np.ones((3, 2), np.float32)
    view = features.view()
    view.flags.writeable = False
    bank = small(features=view)
    features[:] = 7
    assert bank.features.max() == 1


@pytest.mark.parametrize("again", [copy.deepcopy, lambda bank: pickle.loads(pickle.dumps(bank))])
def test_a_copied_or_pickled_bank_is_the_same_and_still_read_only(again):
    bank = small(meta={"a": "b"}, base={"PE": np.ones(2)})
    other = again(bank)
    assert other.content_hash() == bank.content_hash()
    assert (dict(other.meta), list(other.base)) == ({"a": "b"}, ["PE"])
    assert not other.features.flags.writeable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros(3)}, r"features: float64 of shape \(3,\)"),
        ({"features": np.zeros((3, 2, 1))}, r"shape \(3, 2, 1\)"),
        ({"features": np.zeros((0, 2))}, r"shape \(0, 2\).*at least one"),
        ({"features": np.zeros((3, 0))}, r"shape \(3, 0\).*at least one"),
        ({"features": np.array([["a", "b"]] * 3)}, "<U1"),
        ({"features": np.zeros((3, 2), complex)}, "complex128"),
        ({"features": [[1, 2], [3], [4, 5]]}, "could not be read as an array"),
        ({"features": np.zeros((4, 2))}, "4 rows of features but 3 labels"),
        ({"labels": np.array([0.0, 1.0, 0.0])}, "float64.*from_arrays"),
        ({"labels": np.array([[0], [1], [0]])}, r"\(3, 1\)"),
        ({"labels": np.array([0, 2, 0])}, "row 1 has label 2"),
        ({"labels": np.array([0, 1, -1])}, "row 2 has label -1"),
        ({"labels": np.array([0, 0, 0])}, "class 'dog' has no rows"),
        ({"class_names": ("cat", "cat")}, "'cat' is given twice"),
        ({"class_names": ()}, "sequence of strings"),
        ({"class_names": "ab"}, "sequence of strings"),
        ({"class_names": (1, 2)}, "sequence of strings"),
        ({"class_names": None}, "sequence of strings"),
        ({"meta": {"epochs": 3}}, "meta maps strings to strings"),
        ({"meta": "novel"}, "meta maps strings to strings"),
        ({"base": np.zeros(2)}, "base strings to vectors"),
        ({"base": {0: np.zeros(2)}}, "base strings to vectors"),
        ({"base": {"E": np.zeros(3)}}, "base mean 'E' has 3 entries, but features have 2"),
        ({"base": {"E": np.array([0, np.nan])}}, "base mean 'E': nan at column 1"),
    ],
)
def test_what_cannot_be_a_bank_is_refused_with_a_sentence(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_the_first_number_that_is_not_finite_is_named_by_row_and_column(bad):
    features = np.zeros((3000, 700))  # more than one block of the check
    features[2100, 650] = features[2100, 699] = features[2999, 0] = bad
    with pytest.raises(InputError, match=r"features: \S+ at row 2100, column 650 \(from 0\) is not a finite float32"):
        FeatureBank.from_arrays(features, np.zeros(3000, int))


def test_the_largest_float32_is_accepted():
    assert small(features=np.full((3, 2), np.finfo(np.float32).max, np.float64)).features.max() > 3e38


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)
    | st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=1)
)
def test_classes_keep_the_order_in_which_they_first_appear(labels):
    bank = FeatureBank.from_arrays(np.ones((len(labels), 1)), labels)
    assert bank.class_names == tuple(str(label) for label in dict.fromkeys(labels))
    assert [bank.class_names[label] for label in bank.labels] == [str(label) for label in labels]


@given(st.data())
def test_a_name_follows_its_class_and_a_name_without_rows_is_dropped(data):
    names = data.draw(st.lists(st.text("abcdef", min_size=1), min_size=1, unique=True))
    labels = data.draw(st.lists(st.integers(0, len(names) - 1), min_size=1))
    by_index = FeatureBank.from_arrays(np.ones((len(labels), 1)), labels, names)
    by_name = FeatureBank.from_arrays(np.ones((len(labels), 1)), [names[label] for label in labels], names)
    assert [by_index.class_names[label] for label in by_index.labels] == [names[label] for label in labels]
    assert by_index.class_names == by_name.class_names == tuple(dict.fromkeys(names[label] for label in labels))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.array([b"dog", b"cat", b"dog"]), ("dog", "cat")),
        (np.array(["dog", "cat", "dog"], object), ("dog", "cat")),
        (np.array([7, 3, 7], object), ("7", "3")),
        (np.array([7.0, 3.0, 7.0]), ("7", "3")),
        (np.array([7.0, 3.0, 7.0], np.float16), ("7", "3")),
        ([True, False, True], ("True", "False")),
    ],
)
def test_labels_of_other_kinds_are_understood(labels, names):
    bank = FeatureBank.from_arrays(np.ones((3, 1)), labels)
    assert (bank.class_names, bank.labels.tolist()) == (names, [0, 1, 0])


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 2, 0], ["cat", "dog"], "row 1 has label 2"),
        ([0, -1, 0], ["cat", "dog"], "row 1 has label -1"),
        (["cat", "cow", "cat"], ["cat", "dog"], "row 1 has label 'cow'"),
        ([0.5, 1, 2], None, "float64"),
        ([0, np.nan, 2], None, "float64"),
        ([0, None, 2], None, "object"),
        (np.array([0, "a", 2], object), None, "object"),
        ([], None, r"\(0,\)"),
        (np.zeros((3, 1), int), None, r"\(3, 1\)"),
        ([0, 1], None, "3 rows of features but 2 labels"),
    ],
)
def test_labels_that_name_no_class_are_refused(labels, names, message):
    with pytest.raises(InputError, match=message):
        FeatureBank.from_arrays(np.ones((3, 1)), labels, names)


def test_the_content_hash_sees_features_labels_and_names_and_nothing_else():
    one = small()
    assert one.content_hash() == small(meta={"a": "b"}, base={"": np.ones(2)}).content_hash()
    others = [small(features=np.ones((3, 2))), small(labels=np.array([0, 1, 1])), small(class_names=("cat", "cow"))]
    flat = FeatureBank(np.zeros((2, 1)), np.array([0, 0]), ("a",)), FeatureBank(np.zeros((1, 2)), np.array([0]), ("a",))
    assert len({bank.content_hash() for bank in [one, *others, *flat]}) == 6


def test_a_description_is_exact_on_rows_we_know():
    spread, single = np.ones(4), np.array([4.0, 0, 0, 0])  # Hoyer sparsity 0 and 1
    bank = FeatureBank.from_arrays([spread, single, single, np.zeros(4)], ["a", "b", "b", "b"], meta={"m": "n"})
    told = describe(bank)
    assert told["counts"] == {"min": 1, "median": 2.0, "max": 3}
    assert (told["rows"], told["classes"], told["width"], told["dtype"]) == (4, 2, 4, "float32")
    assert told["share_of_zeros"] == 10 / 16
    assert told["sparsity"] == pytest.approx(2 / 3)  # the zero row has none
    assert (told["negative"], told["base"], told["meta"]) == (0, [], {"m": "n"})
    assert json.loads(json.dumps(told)) == told


def test_skew_is_the_mean_over_columns_that_vary_before_and_after_the_root():
    columns = np.array([[0.0, 1, 5], [0, 0, 5], [9, 4, 5]])  # the last column is constant
    told = describe(FeatureBank.from_arrays(columns, [0, 0, 0]))["skew"]
    for values, skew in ((columns, told["raw"]), (np.sqrt(columns), told["sqrt"])):
        centred = values[:, :2] - values[:, :2].mean(axis=0)
        assert skew == pytest.approx(((centred**3).mean(axis=0) / (centred**2).mean(axis=0) ** 1.5).mean())


def test_negative_entries_are_counted_and_have_no_root():
    told = describe(FeatureBank.from_arrays([[-1.0, 2], [-3, 1]], [0, 0]))
    assert told["negative"] == 2
    assert told["skew"]["sqrt"] is None


def test_what_is_undefined_is_none():
    told = describe(FeatureBank.from_arrays([[1.0], [1.0]], [0, 0]))
    assert (told["sparsity"], told["skew"]) == (None, {"raw": None, "sqrt": None})


def test_a_description_does_not_depend_on_the_blocks(monkeypatch):
    bank = FeatureBank.from_arrays(np.random.RandomState(0).gamma(1, size=(50, 7)), np.arange(50) % 3)
    whole = describe(bank)
    monkeypatch.setattr("sinkshot.arrays.BLOCK", 20)
    pieces = describe(bank)
    assert math.isclose(whole.pop("sparsity"), pieces.pop("sparsity"))
    assert whole.pop("skew") == pytest.approx(pieces.pop("skew"))
    assert whole == pieces


ALONE = """
import sys, types
package = types.ModuleType("sinkshot")
package.__path__ = [sys.argv[1]]
sys.modules["sinkshot"] = package
import sinkshot.bank
sys.exit(any(name in sys.modules for name in ("scipy", "safetensors", "torch", "sinkshot.formats")))
"""


def test_the_bank_alone_brings_in_neither_scipy_nor_safetensors():
    folder = Path(banks.__file__).parent
    assert subprocess.run([sys.executable, "-c", ALONE, folder], check=False).returncode == 0
