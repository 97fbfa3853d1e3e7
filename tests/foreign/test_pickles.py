"""Pickles: nothing deep is hashed, no length is believed, and references to the same thing do not multiply."""

import contextlib
import gzip
import io
import pickle
import pickletools
import struct
import tarfile

import numpy as np
import pytest
from bounds import bounded
from hypothesis import given
from hypothesis import strategies as st

import sinkshot
from sinkshot.backbones import datasets
from sinkshot.errors import InputError
from sinkshot.foreign import limits
from sinkshot.foreign.pickles import checked, loads
from sinkshot.formats.plk import FUNCTIONS, unpickle


def doubled(times, opening=b")", wrap=b"\x86"):
    """Nested tuples (or lists), each holding the previous one twice."""
    return opening + b"\x94" + b"".join(b"h%c" % (i % 256) + wrap + b"\x94" for i in range(times))


HOSTILE = {
    "deep tuples as a key": (b"})" + b"\x85" * 200_000 + b"K\x01s.", "a tuple as a key"),
    "deep tuples as a key, protocol 0": (b"(" * 100_000 + b"t" * 100_000 + b"p0\n0(dg0\nI1\ns.", "a tuple as a key"),
    "deep lists": (b"(" * 100_000 + b"l" * 100_000 + b".", "more than 64 levels"),
    "deep tuples in a list": (b"])" + b"\x85" * 100_000 + b"a.", "more than 64 levels"),
    "deep dicts": (b"}K\x01" * 1_000 + b"K\x01" + b"s" * 1_000 + b".", "more than 64 levels"),
    "a key that doubles": (b"}" + doubled(60) + b"K\x01s.", "a tuple as a key"),
    "a name that doubles": (doubled(60) + b"Q.", r"outside of itself \(a tuple\)"),
    "a place in the memo": (b"K\x01r\xff\xff\xff\xff.", "holds a int"),
    "a place in the memo, as text": (b"K\x01p99999999999999999999\n.", "holds a int"),
    "a place in the memo of thousands of digits": (b"K\x01p" + b"9" * 50_000 + b"\n.", "holds a int"),
    "a byte array of 2^34 bytes": (b"\x96" + struct.pack("<Q", 1 << 34) + b".", "declares 17,179,869,184 bytes"),
    "bytes of 2^63": (b"\x8e" + struct.pack("<Q", (1 << 64) - 1) + b".", "declares"),
    "a text of 2^32": (b"X\xff\xff\xff\xff.", "declares"),
    "a frame of 2^63": (b"\x80\x04\x95" + b"\xff" * 8 + b"K\x01.", "holds a int"),
    "an integer of 2^31 bytes": (b"\x8b\xff\xff\xff\x7f.", "an integer of"),
    "an integer of 5,000 digits": (b"I" + b"9" * 5_000 + b"\n.", "an integer of"),
    "names with control characters": (b"c\x1b[31mos\nsystem\x07\n.", r"\\x1b\[31mos\.system\\x07, which is refused"),
    "a set": (b"\x8f.", "not expected"),
    "an extension": (b"\x83\x01\x00.", "not expected"),
    "a call of a number": (b"K\x01)R.", "calls 1, which is refused"),
    "a state for a number": (b"K\x01}b.", "gives a state to 1"),
    "nothing": (b".", "truncated"),
    "marks only": (b"(" * 1_000, "truncated"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_pickle_made_to_break_the_reader_is_refused_in_a_sentence(tmp_path, case):
    content, message = HOSTILE[case]
    (tmp_path / "x.plk").write_bytes(content)
    with bounded(), pytest.raises(InputError, match=rf"x\.plk.*({message})") as error:
        sinkshot.load(tmp_path / "x.plk")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1_000


def test_many_small_containers_are_counted_before_they_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, "16M")
    (tmp_path / "x.plk").write_bytes(b"(" + b"}" * (1 << 20) + b"l.")
    with bounded(), pytest.raises(InputError, match="what it holds would take"):
        sinkshot.load(tmp_path / "x.plk")


def test_rows_that_are_referred_to_again_and_again_are_not_copied_as_often(tmp_path):
    row = [1.0] * 10_000
    for name, content in {
        "classes": dict.fromkeys(range(3_000), [row] * 3_000),
        "rows": {0: [row] * 20_000},
        "array": {0: [np.ones(100_000)] * 10_000},
    }.items():
        (tmp_path / f"{name}.plk").write_bytes(pickle.dumps(content, 4))
        with bounded(128 << 20), pytest.raises(InputError, match=r"again and again|would take"):
            sinkshot.load(tmp_path / f"{name}.plk")


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-9, 9), inner),
    max_leaves=30,
)


@pytest.mark.slow
@given(plain, st.integers(0, 5))
def test_plain_values_are_read_as_pickle_reads_them(value, protocol):
    data = pickle.dumps(value, protocol)
    assert loads(data, FUNCTIONS) == (pickle.loads(data), len(data))
    assert loads(b"xx" + pickletools.optimize(data), FUNCTIONS, start=2)[0] == value
    assert checked(value) == value


@given(st.binary(max_size=60) | plain.map(pickle.dumps), st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(data, more):
    for content in (data, data[: len(data) // 2] + more, more + data):
        with contextlib.suppress(ValueError, pickle.UnpicklingError, OverflowError, LookupError, TypeError):
            unpickle(content + b".")


def cifar(path, train, compressed=True):
    labels = {"fine_labels": [0], "data": np.zeros((1, 3072), np.uint8)}
    with tarfile.open(path, "w:gz" if compressed else "w") as archive:
        for name, content in {"meta": {"fine_label_names": ["apple"]}, "test": labels, "train": train}.items():
            data = content if isinstance(content, bytes) else pickle.dumps(content, 2)
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.slow
def test_a_gzip_of_the_layout_of_cifar_unpacks_to_no_more_than_it_may(tmp_path):
    file = tmp_path / "cifar-100-python.tar.gz"
    whole = {"fine_labels": [0], "data": np.zeros((1, 3072), np.uint8)}
    assert len(datasets.load(cifar(file, whole), split="all")) == 2
    assert len(datasets.load(cifar(tmp_path / "cifar-100-python.tar", whole, False), split="all")) == 2
    block = io.BytesIO()
    with tarfile.open(fileobj=block, mode="w") as archive:
        entry = tarfile.TarInfo("cifar-100-python/other")
        entry.size = 400 << 20
        archive.addfile(entry, io.BytesIO(bytes(400 << 20)))
    file.write_bytes(gzip.compress(block.getvalue(), 1))
    del block
    with bounded(), pytest.raises(InputError, match=r"cifar-100-python\.tar\.gz.*unpacks to more than"):
        datasets.load(file, split="all")
    entry = tarfile.TarInfo("cifar-100-python/train")
    entry.size = 400 << 20
    file.write_bytes(gzip.compress(entry.tobuf() + bytes(1 << 20)))
    with bounded(), pytest.raises(InputError, match="its member 'train' would take"):
        datasets.load(file, split="all")


def test_a_sparse_member_and_a_damaged_archive_are_refused(tmp_path):
    file = tmp_path / "cifar-100-python.tar.gz"
    entry = tarfile.TarInfo("cifar-100-python/train")
    entry.size, entry.type = 400 << 20, tarfile.GNUTYPE_SPARSE
    whole = gzip.compress(entry.tobuf() + bytes(1 << 16))
    for content in (whole, whole[:60], gzip.compress(b"nothing"), b"\x1f\x8b" + bytes(600)):
        file.write_bytes(content)
        with bounded(), pytest.raises(InputError, match=r"cifar-100-python\.tar\.gz"):
            datasets.load(file, split="all")
