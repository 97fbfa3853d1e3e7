"""`y` may mark unlabelled rows in every usual way; an invalid label is refused with a sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sinkshot.errors import InputError
from sinkshot.estimators.label_input import read_labels


def codes(y, none=None):
    return read_labels(np.zeros((len(y), 2)), y, none).codes.tolist()


@pytest.mark.parametrize("mark", [None, float("nan"), pd.NA, pd.NaT, "", "  ", "-1", -1])
def test_every_usual_mark_means_unlabelled_among_strings(mark):
    labels = read_labels(np.zeros((3, 2)), ["cat", mark, "dog"])
    assert labels.classes.tolist() == ["cat", "dog"]
    assert labels.codes.tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    "y",
    [
        [3, None, 7],
        np.array([3, -1, 7]),
        np.array([3, np.nan, 7]),
        pd.Series([3, None, 7]),
        pd.Series([3, None, 7], dtype="Int64"),
        pd.Series([3, None, 7], dtype="category"),
        np.array([[3], [-1], [7]]),
    ],
    ids=["list", "minus one", "NaN", "series", "nullable", "category", "column"],
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_every_usual_mark_means_unlabelled_among_numbers(y):
    labels = read_labels(np.zeros((3, 2)), y)
    assert labels.classes.tolist() == [3, 7]
    assert labels.classes.dtype.kind == "i"
    assert labels.codes.tolist() == [0, -1, 1]


def test_strings_of_pandas_keep_their_names():
    assert read_labels(np.zeros((3, 2)), pd.Series(["b", pd.NA, "a"], dtype="string")).classes.tolist() == ["a", "b"]


@pytest.mark.parametrize("word", ["unknown", "Unknown", " unknown "])
def test_unknown_is_no_name_for_a_class(word):
    with pytest.raises(InputError, match=r"None, NaN, '' or -1.*_none.*rename the class"):
        codes(["cat", word])


def test_outsiders_are_given_by_a_mask_or_by_their_label():
    by_label = read_labels(np.zeros((4, 2)), ["cat", "_none", None, "dog"])
    by_mask = read_labels(np.zeros((4, 2)), ["cat", None, None, "dog"], np.array([False, True, False, False]))
    for labels in (by_label, by_mask):
        assert labels.outsiders.tolist() == [False, True, False, False]
        assert labels.pool.tolist() == [False, False, True, False]
        assert labels.codes.tolist() == [0, -1, -1, 1]


@pytest.mark.parametrize(
    ("y", "none", "message"),
    [
        ([None, ""], None, r"every row of y is unlabelled"),
        (["cat", 3], None, r"mixed types.*'cat' and 3"),
        ([0, 1, 1], [True, False, False], r"row 0 .* has a label and is marked in none"),
        ([0, 1, -1], [0, 0, 1], r"3 booleans"),
        ([0, 1, -1], [True], r"3 booleans"),
        ([0.0, np.inf], None, r"infinity"),
        ([0.5, 1.25], None, r"Unknown label type"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(y, none, message):
    with pytest.raises(ValueError, match=message):
        codes(y, None if none is None else np.array(none))


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        read_labels(np.zeros((3, 2)), [0, 1])
