"""Checkpoints from others: valid ones are read as torch reads them, others are refused with a sentence."""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from bounds import bounded

torch = pytest.importorskip("torch")

from sinkshot.backbones import checkpoints, torch_files  # noqa: E402  after torch is known to be there
from sinkshot.errors import InputError  # noqa: E402

KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_are_read_as_torch_reads_them(tmp_path, zipped):
    base = torch.arange(24.0).reshape(2, 3, 4)
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    network(torch.ones(2, 3)).sum().backward()
    optimiser.step()
    content = {
        "state_dict": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "kinds": [torch.ones(3).to(getattr(torch, name)) for name in KINDS],
        "views": [base, base.permute(2, 0, 1), base[:, 1:], base[0, 0, 0], torch.empty(0, 3)],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "size": torch.Size([1, 2]),
        "epoch": 3,
        "best": 0.5,
        "names": ("a", None, True, b"x"),
    }
    torch.save(content, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    theirs, ours = torch.load(tmp_path / "w.pt", weights_only=True), torch_files.read(tmp_path / "w.pt")
    assert ours["state_dict"].keys() == theirs["state_dict"].keys()
    for key, value in theirs["state_dict"].items():
        assert torch.equal(value, ours["state_dict"][key])
    for name in ("kinds", "views"):
        for a, b in zip(theirs[name], ours[name], strict=True):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            assert torch.equal(a, b)
    momentum = [state["momentum_buffer"] for state in theirs["optimiser"]["state"].values()]
    assert all(torch.equal(a, ours["optimiser"]["state"][i]["momentum_buffer"]) for i, a in enumerate(momentum))
    assert torch.equal(ours["parameter"], torch.ones(2))
    assert (ours["size"], ours["epoch"], ours["best"], ours["names"]) == ([1, 2], 3, 0.5, ["a", None, True, b"x"])


def made(path, data, members=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        for name, content in members:
            archive.writestr(f"archive/{name}", content)
    return path


def tensor(count=3, offset=0, size=(3,), stride=(1,), kind=b"FloatStorage", name="0"):
    """The pickle of {"w": a tensor}."""
    storage = b"(X\x07\0\0\0storage" + b"ctorch\n" + kind + b"\n" + pickle.dumps(name, 2)[2:-1]
    storage += b"X\x03\0\0\0cpu" + pickle.dumps(count, 2)[2:-1] + b"tQ"
    rest = b"".join(pickle.dumps(value, 2)[2:-1] for value in (offset, size, stride))
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"\x89}tR"
    return b"\x80\x02}X\x01\0\0\0w" + call + b"s."


STORAGE = [("data/0", bytes(12))]
HOSTILE = {
    "deep tuples as a key": (b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.", STORAGE),
    "deep tuples": (b"\x80\x02})" + b"\x85" * 200_000 + b"\x94X\x01\0\0\0ah\0s.", STORAGE),
    "a view beyond its storage": (tensor(size=(4,)), STORAGE),
    "a view beyond its storage, by offset": (tensor(offset=2), STORAGE),
    "a view of 2^62 numbers": (tensor(size=(1 << 31, 1 << 31), stride=(0, 0)), STORAGE),
    "a negative stride": (tensor(stride=(-1,)), STORAGE),
    "many dimensions": (tensor(size=(1,) * 60, stride=(1,) * 60), STORAGE),
    "a storage longer than its member": (tensor(count=1 << 40), STORAGE),
    "a storage that is not there": (tensor(name="1"), STORAGE),
    "a storage with another path": (tensor(name="../../x"), STORAGE),
    "no data": (b"", STORAGE),
    "a set": (b"\x8f.", STORAGE),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_forged_checkpoint_is_refused_in_a_sentence(tmp_path, case):
    data, members = HOSTILE[case]
    assert checkpoints._torch_file(made(tmp_path / "good.pt", tensor(), STORAGE))["w"].tolist() == [0, 0, 0]
    with bounded(), pytest.raises(InputError, match=r"w\.pt") as error:
        checkpoints._torch_file(made(tmp_path / "w.pt", data, members))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1_000


@pytest.mark.slow
def test_a_storage_that_unpacks_to_much_more_is_refused_before_it_does(tmp_path):
    count = 100 << 20
    file = made(tmp_path / "w.pt", tensor(count=count), [("data/0", bytes(4 * count))], zipfile.ZIP_DEFLATED)
    with bounded(), pytest.raises(InputError, match="would take"):
        checkpoints._torch_file(file)


def test_control_characters_in_names_of_weights_are_escaped(tmp_path):
    torch.save(OrderedDict({"conv\x1b[31m.weight\n": torch.ones(3)}), tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"conv\\x1b\[31m\.weight\\n") as error:
        checkpoints.load(tmp_path / "w.pt", "conv4")
    assert str(error.value).isprintable()


def test_damaged_files_of_the_older_layout_are_refused(tmp_path):
    whole = io.BytesIO()
    torch.save({"w": torch.ones(3)}, whole, _use_new_zipfile_serialization=False)
    content = whole.getvalue()
    rng = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(content[: rng.integers(1, len(content) + 1)])
        for at in rng.integers(0, len(broken), 3):
            broken[at] = rng.integers(256)
        (tmp_path / "w.tar").write_bytes(broken)
        try:
            checkpoints._torch_file(tmp_path / "w.tar")
        except InputError as error:
            assert str(error).isprintable()  # noqa: PT017  either way is right
    (tmp_path / "w.tar").write_bytes(content[:-4] + struct.pack("<f", 2.0))
    assert checkpoints._torch_file(tmp_path / "w.tar")["w"].tolist() == [1, 1, 2]
