"""Augmentation: the plan of a step's views, and the views themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sinkshot.backbones.augment import augmented, blank, jittered
from sinkshot.backbones.plan import NUMBERS, plan, rows_at
from sinkshot.backbones.recipes import Augment, Stage, Views

STILL = Augment(pad=0, flip=False, jitter=0.0)
PLACE = {"seed": 5, "number": 0, "images": 300, "blocks": 3}


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (24, 18, 18, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def numbers():
    return torch.rand(24, NUMBERS, generator=torch.Generator().manual_seed(1))


UPRIGHT = torch.zeros(24, dtype=torch.int64)


def plain(pixels):
    return pixels.permute(0, 3, 1, 2).float() / 255


def test_without_randomness_a_view_is_the_image(pixels, numbers):
    assert torch.allclose(augmented(pixels, 18, STILL, numbers, UPRIGHT), plain(pixels), atol=1e-5)


def test_a_shifted_view_is_a_window_of_the_reflected_image(pixels, numbers):
    views = augmented(pixels, 14, Augment(pad=3, flip=False, jitter=0.0), numbers, UPRIGHT)
    for image, view, (across, down, *_) in zip(plain(pixels).numpy(), views.numpy(), numbers.tolist(), strict=True):
        around = np.pad(image, ((0, 0), (3, 3), (3, 3)), mode="symmetric")
        left, top = int(across * 11), int(down * 11)  # 18 - 14 + 2 * 3 + 1 places
        assert np.allclose(view, around[:, top : top + 14, left : left + 14], atol=1e-5)


def test_turns_are_those_of_rot90_after_the_flip(pixels, numbers):
    turn = torch.arange(24) % 4
    views = augmented(pixels, 18, Augment(pad=0, flip=True, jitter=0.0), numbers, turn)
    assert 0 < (numbers[:, 4] < 0.5).sum() < 24
    for image, view, k, flip in zip(plain(pixels), views, turn.tolist(), numbers[:, 4] < 0.5, strict=True):
        expected = torch.rot90(image.flip(2) if flip else image, k, (1, 2))
        assert torch.allclose(view, expected, atol=1e-5)


def test_a_resized_view_is_the_window_enlarged(pixels):
    how = Augment(crop="resized", area=(0.25, 0.25), ratio=(1.0, 1.0), flip=False, jitter=0.0)
    numbers = torch.zeros(24, NUMBERS)  # the window in the upper left corner, half as wide
    views = augmented(pixels, 18, how, numbers, UPRIGHT)
    expected = F.interpolate(plain(pixels)[:, :, :9, :9], size=18, mode="bilinear", align_corners=False)
    assert torch.allclose(views[:, :, 1:-1, 1:-1], expected[:, :, 1:-1, 1:-1], atol=1e-5)


def test_colour_factors_of_one_change_nothing_and_others_do_what_they_say(pixels):
    images = plain(pixels)
    assert torch.allclose(jittered(images, torch.ones(24, 3)), images, atol=1e-6)
    dark = jittered(images, torch.tensor([[0.5, 1.0, 1.0]]).repeat(24, 1))
    assert torch.allclose(dark, images / 2, atol=1e-6)
    flat = jittered(images, torch.tensor([[1.0, 0.0, 1.0]]).repeat(24, 1))
    assert flat.std(dim=(2, 3)).max() < 1e-6
    grey = jittered(images, torch.tensor([[1.0, 1.0, 0.0]]).repeat(24, 1))
    assert torch.allclose(grey[:, 0], grey[:, 2], atol=1e-6)


def test_a_cutout_blanks_a_square():
    views = blank(torch.ones(2, 3, 20, 20), 6, torch.tensor([[0.5, 0.5], [0.0, 0.5]]))
    assert (views[0] == 0).sum() == 3 * 36
    assert (views[1] == 0).sum() == 3 * 18  # half of it lies outside


def test_every_epoch_shows_every_image_once_in_another_order():
    rows = rows_at(seed=1, stage=0, images=50, start=0, count=150).reshape(3, 50)
    assert all(sorted(epoch) == list(range(50)) for epoch in rows.tolist())
    assert len({tuple(epoch) for epoch in rows.tolist()}) == 3
    assert (rows_at(seed=1, stage=0, images=50, start=37, count=60) == rows.ravel()[37:97]).all()


def test_a_plan_is_a_function_of_its_place():
    stage = Stage(batch=64)
    first, again, other = (plan(stage, step=step, rank=0, world=1, **PLACE) for step in (7, 7, 8))
    for name in vars(first):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.numbers, other.numbers)
    assert not np.array_equal(first.rows, other.rows)


def test_partners_are_mutual_and_others_are_left_alone():
    sheet = plan(Stage(batch=64, views=Views(mixed=1, plain=0.5, rotated=1)), step=2, rank=0, world=1, **PLACE)
    everyone = np.arange(len(sheet.partner))
    assert (sheet.partner[sheet.partner] == everyone).all()
    assert (sheet.partner[:64] != everyone[:64]).all()
    assert (sheet.partner[64:] == everyone[64:]).all()
    assert (sheet.lam[64:] == 1).all()
    assert 0 < sheet.lam[:64].min() < sheet.lam[:64].max() < 1
    assert (sheet.turn[: 64 + 32] == 0).all()
    assert set(sheet.turn[96:].tolist()) == {0, 1, 2, 3}


def test_a_quarter_of_the_batch_comes_in_all_four_rotations_of_the_same_view():
    stage = Stage(batch=64, lam="batch", views=Views(mixed=1, rotated=0, four=0.25))
    sheet = plan(stage, step=2, rank=0, world=1, **PLACE)
    source, turn = sheet.source[64:].reshape(16, 4), sheet.turn[64:].reshape(16, 4)
    assert (source == source[:, :1]).all()
    assert len(set(source[:, 0].tolist())) == 16
    assert (turn == np.arange(4)).all()
    numbers = sheet.numbers[64:].reshape(16, 4, NUMBERS)
    assert (numbers == numbers[:, :1]).all()
    assert len(set(sheet.lam[:64].tolist())) == 1


@pytest.mark.parametrize("world", [2, 4, 8])
def test_processes_together_see_what_one_sees(world):
    stage = Stage(batch=64, views=Views(mixed=1, plain=1, rotated=1, four=0.25))
    whole = plan(stage, step=3, rank=0, world=1, **PLACE)
    parts = [plan(stage, step=3, rank=rank, world=world, **PLACE) for rank in range(world)]
    views = sorted(_views(whole))
    assert sorted(view for part in parts for view in _views(part)) == views
    assert {part.depth for part in parts} == {whole.depth}
    assert len({part.seed for part in parts}) == world


def _views(sheet):
    """Each view by its image, its partner's image, and all that is random about it."""
    image = sheet.rows[sheet.source]
    return [
        (*ints, float(lam), *numbers.tolist())
        for *ints, lam, numbers in zip(
            image.tolist(), image[sheet.partner].tolist(), sheet.turn.tolist(), sheet.lam, sheet.numbers, strict=True
        )
    ]


def test_lam_follows_its_beta_distribution():
    stage = Stage(batch=512, alpha=2.0)
    lam = np.concatenate([plan(stage, step=s, rank=0, world=1, **PLACE).lam[:512] for s in range(40)])
    assert lam.mean() == pytest.approx(0.5, abs=0.01)
    assert lam.var() == pytest.approx(1 / 20, abs=0.003)  # of Beta(2, 2)
    depths = [plan(stage, step=s, rank=0, world=1, **PLACE).depth for s in range(40)]
    assert set(depths) == {0, 1, 2, 3}
