"""Networks as encoders: timm's models, ONNX files and checkpoints; each says how its images are prepared."""

from __future__ import annotations

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from sinkshot.backbones import checkpoints  # noqa: E402
from sinkshot.backbones.backbone import normalised  # noqa: E402
from sinkshot.backbones.networks import build  # noqa: E402
from sinkshot.encoders import as_backbone, load  # noqa: E402
from sinkshot.errors import InputError  # noqa: E402


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = build("conv4", channels=4)
    with torch.no_grad():
        network(torch.randn(8, 3, 32, 32))
    return network.eval()


def test_weights_of_ours_say_how_images_are_prepared_and_those_of_others_are_guessed(tmp_path, network):
    checkpoints.save(network, tmp_path / "ours.safetensors", (0.5,) * 3, (0.25,) * 3)
    torch.save(network.state_dict(), tmp_path / "theirs.pt")
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, tmp_path / "theirs.safetensors")
    ours = load(str(tmp_path / "ours.safetensors"), "image")
    assert (ours.note, ours.images.mean, ours.images.std) == ("", (0.5,) * 3, (0.25,) * 3)
    for name in ("theirs.pt", "theirs.safetensors"):
        given = {"backbone": "conv4", "channels": 4}
        assert "guessed as ImageNet's" in load(tmp_path / name, "image", **given).note
        told = load(tmp_path / name, "image", mean=(0.5,) * 3, std=(0.25,) * 3, **given)
        assert told.note == ""
        pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
        np.testing.assert_array_equal(told.encode(pixels), ours.encode(pixels))


def test_small_images_stay_whole_for_networks_that_were_trained_on_their_size(tmp_path, network):
    checkpoints.save(network, tmp_path / "ours.safetensors", (0.5,) * 3, (0.25,) * 3)
    shape = load(str(tmp_path / "ours.safetensors"), "image").images
    edge = np.zeros((32, 32, 3), np.uint8)
    edge[0] = edge[-1] = 255
    assert (shape.prepared(Image.fromarray(edge))[[0, -1]] == 255).all()
    large = np.kron(edge, np.ones((4, 4, 1), np.uint8))  # 128 pixels: the field's margin is cut away
    assert shape.prepared(Image.fromarray(large)).max() == 0


TIMM = """
import types
import torch

class Tiny(torch.nn.Module):
    num_features = 5
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = torch.nn.Conv2d(3, 5, 3)
    def forward(self, x):
        return self.conv(x).mean((2, 3))

def create_model(name, pretrained, num_classes):
    if name != "tiny" or num_classes != 0:
        raise RuntimeError(f"Unknown model ({name})")
    return Tiny(int(pretrained))

data = types.SimpleNamespace(
    resolve_model_data_config=lambda model: {"input_size": (3, 24, 24), "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
)
"""


@pytest.fixture
def timm(tmp_path, monkeypatch):
    """A package called timm with one model, in place of the real one."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield
    sys.modules.pop("timm", None)


@pytest.mark.usefixtures("timm")
def test_models_of_timm_come_with_their_own_normalisation(tmp_path):
    found = load("timm:tiny", "image")
    assert (found.name, found.width, found.images.size) == ("timm:tiny", 5, 24)
    assert (found.images.mean, found.images.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert found.note == ""
    network = as_backbone(found).network
    pixels = np.random.default_rng(0).integers(0, 256, (2, 24, 24, 3), np.uint8)
    direct = network(normalised(torch.from_numpy(pixels), found.images.mean, found.images.std)).detach()
    np.testing.assert_allclose(found.encode(pixels), direct, atol=1e-6)
    torch.save({"state_dict": {**network.state_dict(), "fc.weight": torch.ones(2, 5)}}, tmp_path / "w.pt")
    assert load(tmp_path / "w.pt", "image", backbone="timm:tiny").digest == found.digest
    torch.save({"other": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"not those of timm's tiny: conv.weight, conv.bias missing"):
        load(tmp_path / "w.pt", "image", backbone="timm:tiny")
    with pytest.raises(InputError, match=r"timm cannot build 'huge': Unknown model \(huge\)"):
        load("timm:huge", "image")


def test_without_timm_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text("raise ImportError('no torchvision here')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(InputError, match=r"no torchvision here.*pip install 'sinkshot\[timm\]'"):
        load("timm:resnet50", "image")


def onnx_model(path, batch, side, maps=False):
    """Write a model whose features are the means of the channels, times a matrix [3, 4]."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    kernel = onnx.numpy_helper.from_array(matrix.T[:, :, None, None].copy(), "kernel")
    nodes = [helper.make_node("Conv", ["images", "kernel"], ["maps"])]
    if not maps:
        nodes.append(helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]))
        nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", kind, [batch, 3, side, side])],
        [helper.make_tensor_value_info("maps" if maps else "features", kind, None)],
        [kernel],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return matrix


@pytest.mark.parametrize(("batch", "side", "maps"), [("n", "s", False), ("n", 16, True), (4, 16, False)])
def test_onnx_models_of_fixed_and_free_shapes_give_features(tmp_path, batch, side, maps):
    matrix = onnx_model(tmp_path / "net.onnx", batch, side, maps)
    found = load(tmp_path / "net.onnx", "image", size=16)
    assert (found.name, found.width, found.images.size) == ("net", 4, 16)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)
    means = found.images.normalised(pixels).mean(axis=(2, 3))
    np.testing.assert_allclose(found.encode(pixels), means @ matrix, atol=1e-4)


def test_onnx_models_that_cannot_be_used_are_refused_in_a_sentence(tmp_path):
    onnx_model(tmp_path / "free.onnx", "n", "s")
    with pytest.raises(InputError, match="takes images of any size; choose one"):
        load(tmp_path / "free.onnx", "image")
    onnx_model(tmp_path / "fixed.onnx", "n", 16)
    with pytest.raises(InputError, match="takes images of 16 pixels, not 32"):
        load(tmp_path / "fixed.onnx", "image", size=32)
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    with pytest.raises(InputError, match="truncated, damaged or not an ONNX model"):
        load(tmp_path / "junk.onnx", "image")
