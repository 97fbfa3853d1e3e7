"""Safetensors files: read as by their own library, refused if the header does not fit the file."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save

import sinkshot
from sinkshot.errors import InputError
from sinkshot.foreign.tensors import DamagedTensors, tensors

FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
KINDS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")


def written(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(shape=(2,), offsets=(0, 8), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_every_kind_of_numbers_is_read_as_it_was_written(tmp_path):
    arrays = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in KINDS} | {
        "one": np.array(3.5),
        "none": FEATURES[:0],
    }
    (tmp_path / "x.safetensors").write_bytes(save(arrays, {"a": "b"}))
    with tensors(tmp_path / "x.safetensors", "np") as file:
        assert file.metadata == {"a": "b"}
        assert set(file.names) == set(arrays)
        for name, array in arrays.items():
            found = file.get_tensor(name)
            assert found.dtype == array.dtype
            assert found.shape == array.shape
            assert (found == array).all()
        assert (file.rows("f4", slice(1, 2)) == arrays["f4"][1:]).all()


def test_tensors_of_torch_are_read_as_they_were_written(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.float8_e4m3fn)
    found = {str(kind): torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to(kind) for kind in kinds} | {"one": torch.tensor(7)}
    save_file(found, tmp_path / "x.safetensors")
    with tensors(tmp_path / "x.safetensors", "pt") as file:
        for name, value in found.items():
            read = file.get_tensor(name)
            assert read.dtype == value.dtype
            assert read.shape == value.shape
            assert (read.float() == value.float()).all()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"x": entry(offsets=(4, 12))}, "gaps"),
        ({"x": entry(), "y": entry()}, "overlap"),
        ({"x": entry(shape=(3,))}, "does not fit"),
        ({"x": entry(shape=(-2,))}, "impossible"),
        ({"x": entry(shape=(2, 1 << 62, 0), offsets=(0, 8))}, "does not fit"),
        ({"x": entry(shape=(1,) * 20)}, "impossible"),
        ({"x": {"dtype": "F32"}}, "not described"),
        ({"x": entry(), "__metadata__": {"a": 1}}, "mapping of texts"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "an object is expected"),
        ({}, "end after"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path, header, reason):
    file = written(tmp_path / "x.safetensors", header, bytes(8))
    with pytest.raises(DamagedTensors, match=reason), tensors(file, "np"):
        pass
    with pytest.raises(InputError, match="truncated, damaged"):
        sinkshot.load(file)


def test_a_kind_of_numbers_that_is_not_known_is_named(tmp_path):
    file = written(tmp_path / "x.safetensors", {"features": entry(dtype="\x1b[31m")}, bytes(8))
    with pytest.raises(InputError, match=r"has the unknown type '\\x1b\[31m'"):
        sinkshot.load(file)


def test_a_file_that_is_cut_short_while_it_is_read_gives_an_error_and_no_signal(tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(save({"features": np.ones((3_000, 100), np.float32)}))
    with tensors(file, "np") as opened:
        os.truncate(file, 100_000)
        with pytest.raises(DamagedTensors, match="cut short while it was read"):
            opened.get_tensor("features")
        with pytest.raises(DamagedTensors, match="cut short while it was read"):
            opened.rows("features", slice(2_000, 2_100))


def test_memory_that_runs_out_is_not_called_a_damaged_file(tmp_path):
    file, rows = tmp_path / "x.npy", 1 << 22
    np.lib.format.open_memmap(file, "w+", np.float32, (rows, 128)).flush()  # 2 GB that take no room
    np.save(tmp_path / "x_labels.npy", np.zeros(rows, np.int8))
    limit = (1_500_000_000, 1_500_000_000)
    ended = subprocess.run(
        [sys.executable, "-m", "sinkshot", "info", str(file)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith("failed: memory ran out")
