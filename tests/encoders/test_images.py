"""Images for encoders: JPEGs decoded at a fraction of their size, and small batches on each core."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from sinkshot.encoders import load
from sinkshot.encoders.images import ImageInput
from sinkshot.label.cache import NAME, FeatureCache
from sinkshot.label.encode import encode
from sinkshot.label.inputs import images
from sinkshot.threads import cores


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


@pytest.fixture
def reds(tmp_path):
    """A folder of 30 images, the 14th unreadable."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(30):
        Image.new("RGB", (8, 8), (8 * i, 0, 0)).save(folder / f"{i:02}.png")
    (folder / "13.png").write_bytes(b"no image")
    return folder


def by_cores(encode_reds, batch):
    """An encoder that takes batches of this size on each core."""
    return replace(load(encode_reds, "image", size=8, name="reds"), core_batch=batch)


def means(pixels):
    return pixels[:, :1, 0, 0].astype(np.float32)


def test_batches_of_a_core_are_encoded_in_threads_and_keep_their_order(tmp_path, reds):
    seen: list[tuple[str, int]] = []

    def watched(pixels):
        seen.append((threading.current_thread().name, len(pixels)))
        return means(pixels)

    small, items = by_cores(watched, 4), images.read(reds)
    seen.clear()
    with FeatureCache(tmp_path / NAME, small.digest, small.width) as cache:
        rest, features = encode(items, small, cache)
    assert [row[0] for row in features] == [8 * i for i in range(30) if i != 13]
    assert [one.name for one in rest.left_out] == ["13.png"]
    assert max(size for _, size in seen) == min(4, 30 // (2 * cores()))
    assert seen[-1][1] == 1, "the last batches are small, so that no core works alone for long"
    if cores() > 1:
        assert threading.main_thread().name not in {name for name, _ in seen}


def test_other_processes_can_write_to_the_cache_while_a_batch_is_encoded(tmp_path, reds):
    def writing(pixels):
        if (tmp_path / NAME).exists():  # not the trial of one image
            with closing(sqlite3.connect(tmp_path / NAME, timeout=5)) as other:
                other.execute("begin immediate")
        return means(pixels)

    small = by_cores(writing, 4)
    with FeatureCache(tmp_path / NAME, small.digest, small.width) as cache:
        assert len(encode(images.read(reds), small, cache)[1]) == 29


def test_moved_files_and_twins_are_not_encoded_again(tmp_path, reds):
    seen: list[int] = []

    def counted(pixels):
        seen.append(len(pixels))
        return means(pixels)

    small = by_cores(counted, 4)
    with FeatureCache(tmp_path / NAME, small.digest, small.width) as cache:
        encode(images.read(reds), small, cache)
        seen.clear()
        (reds / "00.png").rename(reds / "moved.png")
        shutil.copy(reds / "05.png", reds / "copy.png")
        for twin in ("new.png", "twin.png"):
            Image.new("RGB", (8, 8), (255, 0, 0)).save(reds / twin)
        told: list[tuple[int, int]] = []
        rest, features = encode(images.read(reds), small, cache, lambda *numbers: told.append(numbers))
    values = dict(zip(rest.names, features[:, 0], strict=True))
    assert sum(seen) == 1
    assert (values["moved.png"], values["copy.png"], values["new.png"], values["twin.png"]) == (0, 40, 255, 255)
    assert told[0] == (28, 33)
