"""Resizing gives Pillow's pixels, bit for bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sinkshot.encoders.images import ImageInput, pillow_order
from sinkshot.kernels.resize_numba import _means, fits, resized


def by_pillow(picture, left, top, side, size):
    box = (left, top, left + side, top + side)
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))


def noise(width, height, seed=0):
    """Noise of few and of all colours: edges of 0 and 255, where a rounding error would show."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels[rng.random((height, width)) < 0.3] = rng.choice([0, 255])
    return Image.fromarray(pixels)


def same(picture, left, top, side, size):
    pixels = np.frombuffer(picture.tobytes("raw", "RGBX"), np.uint8).reshape(picture.height, picture.width, 4)
    found = resized(pixels, left, top, side, size, pillow_order(*picture.size, size))
    np.testing.assert_array_equal(found, by_pillow(picture, left, top, side, size), strict=True)


@pytest.mark.parametrize(
    ("width", "height", "side"),
    [(96, 96, 84), (320, 240, 210), (240, 320, 210), (427, 320, 280), (500, 375, 328), (224, 224, 224), (448, 448, 448),
     (1000, 900, 895), (4, 4, 4), (900, 20, 18)],
)  # fmt: skip
def test_squares_of_photos_are_those_of_pillow(width, height, side):
    same(noise(width, height), (width - side) // 2, (height - side) // 2, side, 224)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_square_of_any_image_is_that_of_pillow(data):
    width, height, size = (data.draw(st.integers(1, most)) for most in (90, 90, 40))
    side = data.draw(st.integers(1, min(width, height)))
    left, top = data.draw(st.integers(0, width - side)), data.draw(st.integers(0, height - side))
    if fits(width, height, side, size):
        same(noise(width, height, seed=side), left, top, side, size)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (96, 96), (320, 240), (240, 320), (1500, 1200), (40, 200_000)])
def test_images_are_prepared_the_same_with_and_without_the_compiler(monkeypatch, size):
    picture = noise(*size)
    compiled = ImageInput(64).prepared(picture)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    np.testing.assert_array_equal(compiled, ImageInput(64).prepared(picture), strict=True)


GUARDED = """
import ctypes, mmap
import numpy as np
from sinkshot.kernels.resize_numba import _columns_first, _rows_first, fits

def before_a_guard(*shape, spare=0):
    count = int(np.prod(shape)) + spare
    room = -(-count // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
    guard = ctypes.c_void_p(whole.ctypes.data + room)
    assert ctypes.CDLL(None).mprotect(guard, mmap.PAGESIZE, 0) == 0
    return whole[room - count : room - spare].reshape(shape)

for width, height, side, size in [(96, 96, 96, 224), (96, 96, 7, 224), (4, 4, 4, 224), (9, 30, 9, 8), (80, 80, 80, 3),
                                  (300, 40, 40, 16), (40, 300, 40, 16), (250, 250, 250, 224), (7, 7, 1, 1)]:
    assert fits(width, height, side, size)
    pixels, out = before_a_guard(height, 4 * width), before_a_guard(size, 3 * size, spare=1)
    for resize in (_rows_first, _columns_first):
        resize(pixels, width - side, height - side, side, out)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
def test_no_byte_behind_an_image_or_a_result_is_touched():
    """Pages that may not be touched follow both, in a process of its own, which would be ended."""
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@given(st.integers(1, 3000), st.integers(1, 300), st.data())
def test_means_are_of_pixels_of_the_image(length, size, data):
    side = data.draw(st.integers(1, length))
    first = data.draw(st.integers(0, length - side))
    if fits(length, length, side, size):
        starts, weights = _means.py_func(length, first, side, size)
        assert starts.min() >= 0
        assert (starts + weights.shape[1] // 4).max() <= length
        assert (np.diff(starts) >= 0).all()
