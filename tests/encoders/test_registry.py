"""Encoders are found by name, prefix, suffix or function; what does not fit is refused with a message."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sinkshot.encoders import load
from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError


def test_a_function_of_images_is_an_encoder():
    encoder = load(lambda images: images.mean(axis=(1, 2)), "image", size=8, name="mean colour")
    assert encoder.width == 3
    assert encoder.encode(np.full((2, 8, 8, 3), 7, np.uint8)).tolist() == [[7.0] * 3] * 2


def test_functions_of_other_names_have_other_digests():
    one, other = (load(lambda texts: np.zeros((len(texts), 2)), "text", name=name) for name in "ab")
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("spec", "modality", "message"),
    [
        ("efficientnet-lite", "image", "did you mean 'efficientnet-lite"),
        ("minilm", "image", r"takes texts, but images are given"),
        ("efficientnet-lite0", "text", r"takes images, but texts are given; choose one of .*minilm"),
        (lambda batch: np.zeros(3), "text", r"shape \(3,\) for one item"),
    ],
)
def test_what_does_not_fit_is_refused(spec, modality, message):
    with pytest.raises(InputError, match=message):
        load(spec, modality, **({"name": "f"} if callable(spec) else {}))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "I;16", "I", "F", "1", "LA"])
def test_pictures_of_every_mode_become_rgb(mode):
    picture = Image.new("RGB", (40, 30), (200, 100, 50))
    if mode in ("I;16", "I", "F"):
        values = np.full((30, 40), 40_000, {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode])
        picture = Image.fromarray(values)
    else:
        picture = picture.convert(mode)
    prepared = ImageInput(16).prepared(picture)
    assert prepared.shape == (16, 16, 3)
    assert prepared.dtype == np.uint8


def test_photos_are_turned_as_viewers_turn_them(tmp_path):
    picture = Image.new("RGB", (40, 40), "white")
    picture.paste("black", (0, 0, 40, 20))  # black above
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    picture.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    prepared = ImageInput(8, crop=1.0).prepared(Image.open(tmp_path / "turned.jpg"))
    assert prepared[:3].mean() > 200 > 50 > prepared[-3:].mean()


def test_what_is_transparent_is_white():
    prepared = ImageInput(4).prepared(Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    assert (prepared == 255).all()


def test_an_onnx_file_is_an_encoder_that_tells_what_it_guessed(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    pool = onnx.helper.make_node("GlobalAveragePool", ["images"], ["maps"])
    shapes = {"images": ["n", 3, 16, 16], "maps": ["n", 3, 1, 1]}
    values = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s) for name, s in shapes.items()}
    graph = onnx.helper.make_graph([pool], "mean", [values["images"]], [values["maps"]])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "mean.onnx")
    guessed = load(str(tmp_path / "mean.onnx"), "image")
    given = load(str(tmp_path / "mean.onnx"), "image", mean=(0.0,) * 3, std=(1.0,) * 3)
    white = np.full((2, 16, 16, 3), 255, np.uint8)
    assert "guessed as ImageNet's" in guessed.note
    assert given.note == ""
    np.testing.assert_allclose(given.encode(white), np.ones((2, 3)), atol=1e-5)
    assert guessed.digest != given.digest
    assert guessed.encode(white).max() > 2
