"""NumPy files: what a header declares is checked against the file before memory is allocated."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest
from bounds import bounded

import sinkshot
from sinkshot.backbones import datasets
from sinkshot.errors import InputError
from sinkshot.foreign import limits
from sinkshot.label import inputs


def header(shape, descr="'<f4'", version=1, room=0):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * room + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as file:
        for name, content in members.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                for part in content if isinstance(content, list) else [content]:
                    member.write(part)
    return path


def array(values):
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


ZEROS = [bytes(1 << 20)] * 300
ROWS = (300 << 20) // 256
LABELS = array(np.zeros(3, np.int64))


@pytest.mark.slow
def test_an_archive_that_unpacks_to_much_more_is_refused_before_it_does(tmp_path, monkeypatch):
    features = [header((ROWS, 64)), *ZEROS]
    file = archive(tmp_path / "x.npz", features=features, labels=LABELS)
    with bounded(), pytest.raises(InputError, match=rf"there are {ROWS} rows of features but 3 labels"):
        sinkshot.load(file)
    file = archive(tmp_path / "y.npz", features=features, labels=array(np.zeros(ROWS, np.int8)))
    with bounded(), pytest.raises(InputError, match=r"'features' would take 314\.6 MB of memory.*--max-memory"):
        sinkshot.load(file)
    monkeypatch.setenv(limits.VARIABLE, "1G")
    assert sinkshot.load(file).features.shape == (ROWS, 64)


def test_labels_that_unpack_to_much_more_are_refused_too(tmp_path):
    labels = [header((3,), f"'<U{(300 << 20) // 12}'"), *ZEROS]
    with bounded(), pytest.raises(InputError, match="'labels' would take"):
        sinkshot.load(archive(tmp_path / "x.npz", features=array(np.ones((3, 2))), labels=labels))


GOOD = {"features": array(np.ones((3, 2), np.float32)), "labels": LABELS}
DAMAGED = {
    "a long header": {"features": header((3, 2), version=2, room=1 << 22)},
    "a header that never ends": {"features": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(1 << 22)},
    "a header with deep brackets": {"features": header("(" * 3000 + ")" * 3000)},
    "more than there is": {"features": header((1 << 40, 2)) + bytes(24)},
    "less than there is": {"features": header((1, 2)) + bytes(24)},
    "a product beyond 64 bits": {"features": header((1 << 33, 1 << 33)) + bytes(24)},
    "a negative shape": {"features": header((-3, -2)) + bytes(24)},
    "entries of no bytes": {"features": header((1 << 40, 2), "'S0'")},
    "entries of no bytes, void": {"features": header((1 << 40, 2), "'V0'")},
    "fields": {"features": header((3,), "[('a', '<f4'), ('b', '<f4')]") + bytes(24)},
    "objects": {"features": array(np.array([[1, "a"]], object))},
    "many dimensions": {"features": header((1,) * 60) + bytes(4)},
    "no array": {"features": b"nothing of the kind"},
    "our header as a number": {"sinkshot": array(np.array(7))},
    "our header as deep JSON": {"sinkshot": array(np.array("[" * 100_000))},
    "our header of another type": {"sinkshot": array(np.array('{"version": "x", "class_names": 3, "meta": []}'))},
    "a base mean of texts": {"base.": array(np.array(["a", "b"]))},
    "names of another type": {"class_names": array(np.ones((3, 3)))},
}


@pytest.mark.parametrize("case", DAMAGED)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_forged_archive_is_refused_in_a_sentence(tmp_path, case, compression):
    file = archive(tmp_path / "x.npz", compression, **GOOD | DAMAGED[case])
    with bounded(), pytest.raises(InputError, match=r"x\.npz") as error:
        sinkshot.load(file)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_stored_or_deflated(tmp_path, compression):
    with pytest.raises(InputError, match="has an unknown compression"):
        sinkshot.load(archive(tmp_path / "x.npz", compression, **GOOD))


def test_control_characters_in_the_name_of_a_member_are_escaped(tmp_path):
    file = archive(tmp_path / "x.npz", **{"\x1b[31m\n": LABELS, "labels": LABELS})
    with pytest.raises(InputError, match=r"only \\x1b\[31m\\n, labels") as error:
        sinkshot.load(file)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        header((1 << 40, 2)) + bytes(24),
        header((3, 2), version=2, room=1 << 22),
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff",
        header((1 << 40,), "'S0'"),
        header((3, 2), "'O'") + bytes(48),
    ],
)
def test_a_forged_array_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    (tmp_path / "x_labels.npy").write_bytes(LABELS)
    with bounded(), pytest.raises(InputError, match=r"x\.npy could not be read as the array of features"):
        sinkshot.load(tmp_path / "x.npy")


def test_a_labels_file_of_far_more_lines_than_rows_is_not_split(tmp_path):
    (tmp_path / "x.npy").write_bytes(GOOD["features"])
    (tmp_path / "y.txt").write_bytes(b"1\n" * (4 << 20))
    with bounded(), pytest.raises(InputError, match="4,194,304 lines for 3 rows"):
        sinkshot.load(tmp_path / "x.npy", labels=tmp_path / "y.txt")


def test_a_damaged_pack_is_refused_by_name_and_never_left_out(tmp_path):
    blob = np.frombuffer(b"not an image", np.uint8)
    whole = {"blob": blob, "offsets": np.array([0, 12]), "label": np.array([0]), "class_names": np.array(["a"])}
    forged = {
        "offsets": [np.array([0, 1 << 40]), np.array([[0, 12]]), np.array(["a", "b"]), np.array([0.0, 12.0])],
        "label": [np.array([5]), np.array([-1]), np.array([[0]]), np.array([0.5])],
        "blob": [np.ones(12), blob.reshape(3, 4)],
        "class_names": [np.array([], "U1")],
    }
    for name, values in forged.items():
        for value in values:
            np.savez(tmp_path / "train.npz", **whole | {name: value})
            with pytest.raises(InputError, match="is a damaged pack"):
                datasets.load(tmp_path / "train.npz")
    np.savez(tmp_path / "train.npz", **whole)
    np.savez(tmp_path / "val.npz", **whole)
    content = (tmp_path / "val.npz").read_bytes()
    for size in (len(content) // 2, len(content) - 10, 40):
        (tmp_path / "val.npz").write_bytes(content[:size])
        with pytest.raises(InputError, match=r"val\.npz is a damaged pack"):
            datasets.load(tmp_path / "val.npz")
        with pytest.raises(InputError, match=r"val\.npz is a damaged pack"):
            datasets.load(tmp_path, split="all")


def test_a_pipe_among_packs_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.npz")
    with bounded(), pytest.raises(InputError, match="no known layout"):
        datasets.load(tmp_path)


def test_many_names_of_which_one_is_twice_are_refused_at_once(tmp_path):
    names = np.arange(100_000).astype(str)
    names[-1] = names[-2]
    np.savez(tmp_path / "x.npz", features=np.ones((3, 2)), labels=np.arange(3), class_names=names)
    with bounded(), pytest.raises(InputError, match="given twice"):
        sinkshot.load(tmp_path / "x.npz")


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_honest_archive_takes_its_size_in_memory_and_little_more(tmp_path, save):
    rng = np.random.default_rng(0)
    features = rng.random((16_000, 512), dtype=np.float32)
    save(tmp_path / "x.npz", features=features, labels=np.arange(len(features)) % 50)
    with bounded(features.nbytes + (24 << 20), 60):
        bank = sinkshot.load(tmp_path / "x.npz")
    assert (bank.features == features).all()


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1_500_000, 1), r"1,500,000 rows would take 300\.0 MB"), ((2, 1_000_001), r"have 1,000,001 features")],
)
def test_rows_and_columns_count_beside_bytes(tmp_path, shape, message):
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros(shape, np.uint8), labels=np.zeros(shape[0], np.uint8))
    for read in (sinkshot.load, inputs.read):
        with bounded(), pytest.raises(InputError, match=message):
            read(tmp_path / "x.npz")
