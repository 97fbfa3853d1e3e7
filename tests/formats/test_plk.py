"""Pickled features are read, whatever wrote them. (Harmful ones: test_plk_hostile.py.)"""

import base64
import collections
import contextlib
import hashlib
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sinkshot.bank import load
from sinkshot.errors import InputError

# defaultdict(list) with 2 vectors [k, i, 200.5] for each class k of 7 and 3, as these really wrote it
REAL = {
    "Python 2.7, NumPy 1.16, protocol 2": (
        "gAJjY29sbGVjdGlvbnMKZGVmYXVsdGRpY3QKcQBjX19idWlsdGluX18KbGlzdApxAYVxAlJxAyhLA11xBChjbnVtcHkuY29yZS5tdWx0aWFy"
        "cmF5Cl9yZWNvbnN0cnVjdApxBWNudW1weQpuZGFycmF5CnEGSwCFcQdVAWJxCIdxCVJxCihLAUsDhXELY251bXB5CmR0eXBlCnEMVQJmNHEN"
        "SwBLAYdxDlJxDyhLA1UBPHEQTk5OSv////9K/////0sAdHERYolVDAAAQEAAAAAAAIBIQ3ESdHETYmgFaAZLAIVxFGgIh3EVUnEWKEsBSwOF"
        "cRdoD4lVDAAAQEAAAIA/AIBIQ3EYdHEZYmVLB11xGihoBWgGSwCFcRtoCIdxHFJxHShLAUsDhXEeaA+JVQwAAOBAAAAAAACASENxH3RxIGJo"
        "BWgGSwCFcSFoCIdxIlJxIyhLAUsDhXEkaA+JVQwAAOBAAACAPwCASENxJXRxJmJldS4="
    ),
    "Python 2.7, NumPy 1.16, protocol 0": (
        "Y2NvbGxlY3Rpb25zCmRlZmF1bHRkaWN0CnAwCihjX19idWlsdGluX18KbGlzdApwMQp0cDIKUnAzCkkzCihscDQKY251bXB5LmNvcmUubXVs"
        "dGlhcnJheQpfcmVjb25zdHJ1Y3QKcDUKKGNudW1weQpuZGFycmF5CnA2CihJMAp0cDcKUydiJwpwOAp0cDkKUnAxMAooSTEKKEkzCnRwMTEK"
        "Y251bXB5CmR0eXBlCnAxMgooUydmNCcKcDEzCkkwCkkxCnRwMTQKUnAxNQooSTMKUyc8JwpwMTYKTk5OSS0xCkktMQpJMAp0cDE3CmJJMDAK"
        "UydceDAwXHgwMEBAXHgwMFx4MDBceDAwXHgwMFx4MDBceDgwSEMnCnAxOAp0cDE5CmJhZzUKKGc2CihJMAp0cDIwCmc4CnRwMjEKUnAyMgoo"
        "STEKKEkzCnRwMjMKZzE1CkkwMApTJ1x4MDBceDAwQEBceDAwXHgwMFx4ODA/XHgwMFx4ODBIQycKcDI0CnRwMjUKYmFzSTcKKGxwMjYKZzUK"
        "KGc2CihJMAp0cDI3Cmc4CnRwMjgKUnAyOQooSTEKKEkzCnRwMzAKZzE1CkkwMApTJ1x4MDBceDAwXHhlMEBceDAwXHgwMFx4MDBceDAwXHgw"
        "MFx4ODBIQycKcDMxCnRwMzIKYmFnNQooZzYKKEkwCnRwMzMKZzgKdHAzNApScDM1CihJMQooSTMKdHAzNgpnMTUKSTAwClMnXHgwMFx4MDBc"
        "eGUwQFx4MDBceDAwXHg4MD9ceDAwXHg4MEhDJwpwMzcKdHAzOApiYXMu"
    ),
    "NumPy 1.26, protocol 2": (
        "gAJjY29sbGVjdGlvbnMKZGVmYXVsdGRpY3QKcQBjX19idWlsdGluX18KbGlzdApxAYVxAlJxAyhLB11xBChjbnVtcHkuY29yZS5tdWx0aWFy"
        "cmF5Cl9yZWNvbnN0cnVjdApxBWNudW1weQpuZGFycmF5CnEGSwCFcQdjX2NvZGVjcwplbmNvZGUKcQhYAQAAAGJxCVgGAAAAbGF0aW4xcQqG"
        "cQtScQyHcQ1ScQ4oSwFLA4VxD2NudW1weQpkdHlwZQpxEFgCAAAAZjRxEYmIh3ESUnETKEsDWAEAAAA8cRROTk5K/////0r/////SwB0cRVi"
        "iWgIWA4AAAAAAMOgQAAAAAAAwoBIQ3EWaAqGcRdScRh0cRliaAVoBksAhXEaaAyHcRtScRwoSwFLA4VxHWgTiWgIWA8AAAAAAMOgQAAAwoA/"
        "AMKASENxHmgKhnEfUnEgdHEhYmVLA11xIihoBWgGSwCFcSNoDIdxJFJxJShLAUsDhXEmaBOJaAhYDQAAAAAAQEAAAAAAAMKASENxJ2gKhnEo"
        "UnEpdHEqYmgFaAZLAIVxK2gMh3EsUnEtKEsBSwOFcS5oE4loCFgOAAAAAABAQAAAwoA/AMKASENxL2gKhnEwUnExdHEyYmV1Lg=="
    ),
    "NumPy 1.26, protocol 4": (
        "gASVVgEAAAAAAACMC2NvbGxlY3Rpb25zlIwLZGVmYXVsdGRpY3SUk5SMCGJ1aWx0aW5zlIwEbGlzdJSTlIWUUpQoSwddlCiMFW51bXB5LmNv"
        "cmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOUSwCFlEMBYpSHlFKUKEsBSwOFlGgMjAVkdHlwZZST"
        "lIwCZjSUiYiHlFKUKEsDjAE8lE5OTkr/////Sv////9LAHSUYolDDAAA4EAAAAAAAIBIQ5R0lGJoC2gOSwCFlGgQh5RSlChLAUsDhZRoGIlD"
        "DAAA4EAAAIA/AIBIQ5R0lGJlSwNdlChoC2gOSwCFlGgQh5RSlChLAUsDhZRoGIlDDAAAQEAAAAAAAIBIQ5R0lGJoC2gOSwCFlGgQh5RSlChL"
        "AUsDhZRoGIlDDAAAQEAAAIA/AIBIQ5R0lGJldS4="
    ),
    "NumPy 1.26, protocol 5": (
        "gAWVMgEAAAAAAACMC2NvbGxlY3Rpb25zlIwLZGVmYXVsdGRpY3SUk5SMCGJ1aWx0aW5zlIwEbGlzdJSTlIWUUpQoSwddlCiMEm51bXB5LmNv"
        "cmUubnVtZXJpY5SMC19mcm9tYnVmZmVylJOUKJYMAAAAAAAAAAAA4EAAAAAAAIBIQ5SMBW51bXB5lIwFZHR5cGWUk5SMAmY0lImIh5RSlChL"
        "A4wBPJROTk5K/////0r/////SwB0lGJLA4WUjAFDlHSUUpRoCyiWDAAAAAAAAAAAAOBAAACAPwCASEOUaBJLA4WUaBZ0lFKUZUsDXZQoaAso"
        "lgwAAAAAAAAAAABAQAAAAAAAgEhDlGgSSwOFlGgWdJRSlGgLKJYMAAAAAAAAAAAAQEAAAIA/AIBIQ5RoEksDhZRoFnSUUpRldS4="
    ),
}


def write(folder, content, protocol=pickle.HIGHEST_PROTOCOL, name="output.plk"):
    (folder / name).write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol))
    return folder / name


@pytest.mark.parametrize("writer", REAL)
def test_files_of_older_python_and_numpy_are_read(tmp_path, writer):
    bank = load(write(tmp_path, base64.b64decode(REAL[writer])))
    rows = {name: bank.features[bank.labels == label].tolist() for label, name in enumerate(bank.class_names)}
    assert rows == {str(k): [[k, 0, 200.5], [k, 1, 200.5]] for k in (7, 3)}


vector = arrays(np.float32, 3, elements=st.floats(-9, 9, width=32))
keys = st.integers(-5, 99) | st.text("abc", min_size=1)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(keys, st.lists(vector, min_size=1, max_size=3), min_size=1, max_size=4), st.integers(0, 5))
def test_every_protocol_gives_the_rows_in_the_order_of_the_dict(tmp_path_factory, content, protocol):
    file = write(tmp_path_factory.mktemp("plk"), collections.defaultdict(list, content), protocol)
    bank = load(file)
    assert bank.class_names == tuple(str(key) for key in content)
    np.testing.assert_array_equal(bank.features, np.concatenate(list(content.values())))
    assert bank.labels.tolist() == [label for label, rows in enumerate(content.values()) for _ in rows]


def objects(*items):
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1, 2], [3, 4]], np.float16),
        np.array([[1, 2], [3, 4]], ">f8", order="F"),
        np.array([[1, 3], [2, 4]], np.int64).T,
        [np.array([1, 2], np.float32), np.array([3, 4], np.float64)],
        [[1, 2.0], (3, 4)],
        objects(np.array([1, 2], np.float32), np.array([3, 4], np.float32)),
        np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2).transpose(1, 2, 0)[:, :, 0],
    ],
)
def test_a_class_may_be_an_array_or_a_list_of_vectors_of_any_numbers(tmp_path, rows, protocol):
    bank = load(write(tmp_path, {np.int64(5): rows, np.str_("b"): [[5, 6]]}, protocol))
    assert bank.features.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert bank.class_names == ("5", "b")


@pytest.mark.parametrize("suffix", [".plk", ".pkl", ".pickle"])
def test_the_source_and_its_hash_are_kept(tmp_path, suffix):
    file = write(tmp_path, {0: [[1.0]]}, name=f"output{suffix}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert dict(load(file).meta) == {"source": f"output{suffix}", "source_sha256": digest}


@pytest.mark.parametrize("head_mean", [-1, np.zeros(9, np.float32)])
def test_the_layout_with_base_means_before_the_dict_gives_the_base_mean_too(tmp_path, head_mean):
    features = collections.defaultdict(list, {3: [np.ones(2, np.float32)]})
    bank = load(write(tmp_path, [np.array([0.5, 0.25], np.float32), head_mean, features, {3: [None]}], 4))
    assert bank.features.tolist() == [[1, 1]]
    assert {prefix: mean.tolist() for prefix, mean in bank.base.items()} == {"": [0.5, 0.25]}


def test_a_class_without_rows_is_left_out(tmp_path):
    assert load(write(tmp_path, {0: [], 1: [[1.0]], 2: np.empty((0, 1)), 3: np.array([])})).class_names == ("1",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no vectors"),
        ({0: []}, "no vectors"),
        ([], "it holds a list"),
        ("text", "it holds a str"),
        (np.ones((2, 2)), "it holds a ndarray"),
        ({0: [[1.0, 2], [3]]}, "class 0, row 1 has 1 entries, its row 0 2"),
        ({0: [[1.0, 2]], 1: [[3.0]]}, "class '0' has vectors of 2 entries and class '1' of 1|'1' has vectors of 1"),
        ({0: np.ones(3)}, r"class 0 is an array of shape \(3,\)"),
        ({0: np.ones((2, 2, 2))}, r"class 0 is an array of shape \(2, 2, 2\)"),
        ({0: [np.ones((1, 2))]}, r"class 0, row 0 is a ndarray of shape \(1, 2\)"),
        ({0: [1.0, 2.0]}, "class 0, row 0 is a float"),
        ({0: [["a", "b"]]}, "class 0, row 0 is a list"),
        ({0: [np.array(["a", "b"])]}, "class 0, row 0 is a ndarray"),
        ({0: np.array([["a", "b"]])}, "<U1"),
        ({0: 3}, "class 0 is a int"),
        ({0: None}, "class 0 is a NoneType"),
        ({(1, 2): [[1.0]]}, "a dict with a tuple as a key"),
        ({None: [[1.0]]}, "the class None"),
        ({1: [[1.0]], "1": [[2.0]]}, "same name"),
        ({0: [[1.0, np.nan]]}, "nan at row 0, column 1"),
        ({0: [[1.0, 1e300]]}, r"1e\+300 at row 0, column 1"),
        ({0: [[1.0, 10**400]]}, "an integer of 167 bytes"),
        ({0: np.zeros(1, [("a", "f4")])}, "an array of 'V4'"),
        ({0: np.array([["2020-01-01"]], "M8[D]")}, "an array of 'M8'"),
        ({0: np.array([[1j]])}, "an array of 'c16'"),
    ],
)
def test_content_that_is_no_bank_is_refused_with_its_place(tmp_path, content, message):
    with pytest.raises(InputError, match=rf"output\.plk.*({message})"):
        load(write(tmp_path, content))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_cut_anywhere_is_an_input_error(tmp_path, protocol):
    whole = pickle.dumps({7: [np.ones(2, np.float32)], "b": np.zeros((2, 2))}, protocol)
    for length in range(1, len(whole), 1 + len(whole) // 80):
        with pytest.raises(InputError, match=r"output\.plk"):
            load(write(tmp_path, whole[:length]))


def test_a_damaged_pickle_is_read_or_refused_but_never_crashes(tmp_path):
    chance = random.Random(0)
    for protocol in (0, 2, 5):
        whole = pickle.dumps({7: [np.ones(2, np.float32)], "b": np.zeros((2, 2))}, protocol)
        for _ in range(80):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] = chance.choice(whole)
            with contextlib.suppress(InputError):
                load(write(tmp_path, bytes(damaged)))
