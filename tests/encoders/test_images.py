"""Images for encoders: JPEGs decoded at a fraction of their size, and small batches on each core."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from sinkshot.encoders import load
from sinkshot.encoders.images import ImageInput
from sinkshot.label.cache import NAME, FeatureCache
from sinkshot.label.encode import encode
from sinkshot.label.inputs import images


def waves(width, height):
    """A picture of smooth colours, with a gradient that tells which part of it is kept."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Image.fromarray(np.uint8(255 * np.stack([x, y, 0.5 + 0.5 * np.sin(9 * x * y)], axis=-1)))


@pytest.mark.parametrize("shape", [ImageInput(100), ImageInput.of_network(100)])
@pytest.mark.parametrize(("size", "decoded"), [((640, 480), (160, 120)), ((210, 250), (105, 125)), ((150, 150), None)])
def test_a_jpeg_is_decoded_at_the_smallest_size_that_suffices(tmp_path, shape, size, decoded):
    waves(*size).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        found = shape.prepared(image)
        assert image.size == (decoded or size)
    with Image.open(tmp_path / "a.jpg") as image:
        whole = shape.prepared(image.convert("RGB"))  # no JPEG any more
    assert np.abs(found.astype(int) - whole).mean() < 2, "the same part of the image; a seventh more of it would be 4"


def test_the_size_of_decoding_is_part_of_an_encoders_digest():
    encoder = load(lambda pixels: pixels.mean(axis=(1, 2)), "image", size=8, name="means")
    assert encoder.images is not None
    assert str(encoder.images) != str(replace(encoder.images, least_jpeg=2.0))
    assert "least_jpeg" in str(encoder.images)


def test_batches_of_a_core_are_encoded_in_threads_and_keep_their_order(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(30):
        Image.new("RGB", (8, 8), (8 * i, 0, 0)).save(folder / f"{i:02}.png")
    (folder / "13.png").write_bytes(b"no image")
    seen: list[tuple[str, int]] = []

    def reds(pixels):
        seen.append((threading.current_thread().name, len(pixels)))
        return pixels[:, :1, 0, 0].astype(np.float32)

    one = load(reds, "image", size=8, name="reds")
    small, items = replace(one, core_batch=4), images.read(folder)
    seen.clear()
    with FeatureCache(tmp_path / NAME, small.digest, small.width) as cache:
        rest, features = encode(items, small, cache)
    assert [row[0] for row in features] == [8 * i for i in range(30) if i != 13]
    assert [one.name for one in rest.left_out] == ["13.png"]
    assert max(size for _, size in seen) == 4
    assert threading.main_thread().name not in {name for name, _ in seen}
