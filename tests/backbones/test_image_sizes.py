"""Images of any size and kind become squares of one size, as a person sees them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from image_files import folder, picture, write

from sinkshot.backbones.datasets import check, load
from sinkshot.errors import InputError


def test_the_short_side_is_resized_and_the_middle_cut_out(tmp_path):
    wide = np.zeros((100, 200, 3), np.uint8)
    wide[:, 50:150] = 200  # the middle square is bright
    write(tmp_path / "a" / "wide.png", wide)
    write(tmp_path / "a" / "tall.png", wide.transpose(1, 0, 2))
    whole = load(tmp_path, size=20, margin=1.0).pixels([0, 1])
    assert whole.shape == (2, 20, 20, 3)
    assert whole[:, 1:-1, 1:-1].min() == 200
    bordered = np.zeros((115, 115, 3), np.uint8)
    bordered[8:-8, 8:-8] = 200  # a border as wide as the margin
    write(tmp_path / "b" / "bordered.png", bordered)
    test_time = load(tmp_path, size=20).pixels([2])[0]
    assert test_time[1:-1, 1:-1].min() == 200
    assert load(tmp_path, size=20, margin=1.0).pixels([2])[0][0].max() < 100


def test_a_margin_that_is_given_holds_for_small_images_too(tmp_path):
    bordered = np.zeros((12, 12, 3), np.uint8)
    bordered[3:-3, 3:-3] = 200
    write(tmp_path / "a" / "small.png", bordered)
    assert load(tmp_path, size=40, margin=2.0).pixels([0])[0][4:-4, 4:-4].min() > 100
    assert load(tmp_path, size=12, margin=2.0).pixels([0])[0][1:-1, 1:-1].min() > 100
    held = load(tmp_path, size=12, margin=1.0).held()
    assert replace(held, margin=2.0).pixels([0])[0][1:-1, 1:-1].min() > 100


def test_small_images_are_enlarged_and_none_of_them_is_cut_away(tmp_path):
    small = np.zeros((10, 10, 3), np.uint8)
    small[0], small[-1] = 255, 255
    write(tmp_path / "a" / "small.png", small)
    found = load(tmp_path, size=40).pixels([0])[0]
    assert found.shape == (40, 40, 3)
    assert found[0].min() == found[-1].min() == 255


def test_images_of_their_own_size_are_not_touched(tmp_path):
    folder(tmp_path, ["a"], each=1, size=32)
    np.testing.assert_array_equal(load(tmp_path, size=32).pixels([0])[0], picture(0))


def test_grey_palette_and_turned_images_are_seen_as_a_person_sees_them(tmp_path):
    from PIL import Image

    (tmp_path / "a").mkdir()
    upright = Image.fromarray(np.concatenate([np.full((8, 16, 3), 250), np.full((8, 16, 3), 5)]).astype(np.uint8))
    upright.convert("L").save(tmp_path / "a" / "1_grey.png")
    upright.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a" / "2_palette.png")
    upright.convert("RGBA").save(tmp_path / "a" / "3_alpha.png")
    turned = Image.Exif()
    turned[0x0112] = 3  # stored upside down
    upright.rotate(180).save(tmp_path / "a" / "4_turned.jpg", exif=turned, quality=95)
    found = load(tmp_path, size=16).pixels(range(4))
    assert (found[:, :7].min(axis=(1, 2, 3)) > 240).all()
    assert (found[:, 9:].max(axis=(1, 2, 3)) < 20).all()


def test_images_of_different_sizes_need_a_size(tmp_path):
    folder(tmp_path, ["a"], each=1, size=16)
    folder(tmp_path, ["b", "b2"], each=1, size=24)
    with pytest.raises(InputError, match=r"2 different sizes, such as 16 x 16 \(a/000.png\)"):
        check(load(tmp_path))
    with pytest.raises(InputError, match="give one size for all"):
        load(tmp_path).pixels([0, 1])
    assert load(tmp_path, size=16).pixels([0, 1]).shape == (2, 16, 16, 3)
