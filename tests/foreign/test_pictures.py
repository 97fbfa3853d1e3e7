"""Images: a fixed list of formats, regular files only, and a limit on pixels."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from bounds import bounded
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sinkshot.backbones import datasets
from sinkshot.encoders import images
from sinkshot.errors import InputError
from sinkshot.foreign import pictures

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(it-ran) (w) file closefile\nshowpage\n"


def folder(tmp_path, **files):
    """A folder with one class of valid images, and one of the given files."""
    for name in ("good", "other"):
        (tmp_path / name).mkdir(exist_ok=True)
    Image.fromarray(np.full((40, 60, 3), 9, np.uint8)).save(tmp_path / "good" / "a.png")
    for name, content in files.items():
        (tmp_path / "other" / name.replace("_", ".")).write_bytes(content)
    return tmp_path


def png(width, height, data=b"", depth=8, colour=0):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def refused(path, message, **options):
    found = datasets.load(path, size=16, **options)
    for decode in (False, True):
        with bounded(), pytest.raises(InputError, match=message) as error:
            datasets.check(found, decode=decode)
    with bounded(), pytest.raises(InputError, match=message):
        found.pixels(range(len(found)))
    assert str(error.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp"])
def test_a_file_that_would_start_ghostscript_is_no_image(tmp_path, suffix, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(folder(tmp_path, **{f"x_{suffix}": EPS}), rf"other/x\.{suffix}: it is damaged or not an image")
    assert not (tmp_path / "it-ran").exists()


def test_other_formats_are_opened_when_they_are_named(tmp_path, monkeypatch):
    path = folder(tmp_path, x_ppm=b"P6\n2 2\n255\n" + bytes(12))
    assert len(datasets.load(path)) == 1
    monkeypatch.setenv(pictures.VARIABLE, "ppm")
    images = datasets.load(path, size=16)
    assert len(images) == 2
    datasets.check(images, decode=True)
    monkeypatch.setenv(pictures.VARIABLE, "PPN")
    with pytest.raises(InputError, match="unknown image format 'PPN'; did you mean"):
        datasets.load(path)


def test_pipes_and_devices_among_images_are_not_waited_for(tmp_path):
    path = folder(tmp_path)
    os.mkfifo(path / "other" / "x.png")
    refused(path, r"other/x\.png.*not a regular file")
    (path / "other" / "x.png").unlink()
    (path / "other" / "x.png").symlink_to("/dev/zero")
    refused(path, r"other/x\.png.*not a regular file")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pixels_are_counted_before_they_are_decoded(tmp_path):
    refused(folder(tmp_path, x_png=png(1, 89_000_000)), "more than 105,000,000")
    refused(folder(tmp_path, x_png=png(30_000, 30_000)), "more pixels than allowed")
    refused(folder(tmp_path, x_png=png(10_000, 10_600)), "10,000 x 10,600 pixels, more than 105,000,000")


def test_a_thin_image_is_read_where_it_is_not_endless(tmp_path):
    path = folder(tmp_path, x_png=png(200, 1, bytes(201)))
    assert datasets.load(path, size=16).pixels([0, 1]).shape == (2, 16, 16, 3)


def test_names_of_images_are_shown_with_control_characters_escaped(tmp_path):
    path = folder(tmp_path, **{"x\x1b[31m\n_png": b"nothing"})
    refused(path, r"other/x\\x1b\[31m\\n\.png: it is damaged or not an image")


def test_lists_name_no_images_outside_of_their_folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("../../x.png", "/x.png"):
        for split in ("train", "val", "test"):
            (tmp_path / f"{split}.csv").write_text(f"filename,label\n{name},n01532829\n")
        with pytest.raises(InputError, match="outside the folder"):
            datasets.load(tmp_path)


def test_pixels_are_the_same_however_an_image_is_stored(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (30, 50, 3), dtype=np.uint8)
    stored = Image.fromarray(rows)
    exif = stored.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    for name, image, options in (
        ("a.png", stored, {}),
        ("b.png", stored.convert("RGBA"), {}),
        ("c.png", Image.fromarray(np.rot90(rows)), {"exif": exif}),
    ):
        image.save(folder(tmp_path) / "other" / name, **options)
    found = datasets.load(tmp_path, size=16).pixels([1, 2, 3])
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_a_jpeg_of_many_scans_is_refused(tmp_path):
    file = io.BytesIO()
    Image.new("L", (2_000, 2_000)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    refused(folder(tmp_path, x_jpg=data[:-2] + 200 * last + data[-2:]), r"x\.jpg: it has more than 100 scans")


@pytest.mark.parametrize(("kind", "mode"), [("u2", "I;16"), ("f4", "F"), ("u1", "RGBA"), ("u1", "P"), ("u1", "CMYK")])
def test_large_images_are_seen_strip_by_strip_as_they_are_at_once(monkeypatch, kind, mode):
    rng = np.random.default_rng(0)
    shape = (50, 40, 4) if mode in ("RGBA", "CMYK") else (50, 40)
    image = Image.fromarray((rng.random(shape) * 60_000).astype(kind))
    if mode == "P":
        image = image.convert("P")
        image.info["transparency"] = bytes(range(256))
    if mode == "CMYK":
        image = image.convert("RGB").convert("CMYK")
    assert image.mode == mode
    at_once = np.asarray(images.as_seen(image.copy()))
    monkeypatch.setattr(images, "_STRIP", 300)
    np.testing.assert_array_equal(np.asarray(images.as_seen(image.copy())), at_once)


def test_a_large_image_takes_little_more_memory_than_its_pixels(monkeypatch):
    monkeypatch.setattr(images, "_STRIP", 1 << 16)
    with bounded(16 << 20):
        assert images.as_seen(Image.new("I;16", (2_000, 2_000), 40_000)).getpixel((9, 9)) == (155, 155, 155)


@given(st.lists(st.sampled_from([b"\xff", b"\xda", b"\x00", b"\xff\xda"]), max_size=40).map(b"".join))
def test_scans_are_counted_as_bytes_are(content):
    assert pictures._scans(content) == content.count(b"\xff\xda")
