"""Augmentation on the device, a batch at a time: crop, flip and quarter turn in one sampling, then colour.

All randomness comes in as numbers in [0, 1), so the result is a function of its arguments.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sinkshot.backbones.recipes import Augment

GREY = (0.299, 0.587, 0.114)


def augmented(pixels: Tensor, size: int, how: Augment, numbers: Tensor, turn: Tensor) -> Tensor:
    """Return random views of images, values in [0, 1].

    Parameters
    ----------
    pixels : uint8 [v, h, w, 3]
    size : side of the views in pixels
    how : Augment
    numbers : float32 [v, 10] in [0, 1): two for the place, area, ratio, flip, three for colour, two for the cutout
    turn : int64 [v], 0 to 3 quarter turns, as `torch.rot90` makes them

    Returns
    -------
    float32 [v, 3, size, size]
    """
    images = pixels.permute(0, 3, 1, 2).float() / 255  # [v, 3, h, w]
    height, width = images.shape[2:]
    mirrored = (numbers[:, 4] < 0.5) & how.flip
    x, y = _places(_window(height, width, size, how, numbers), size, mirrored, turn)
    grid = torch.stack((2 * x / width - 1, 2 * y / height - 1), dim=-1)
    views = F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    if how.jitter:
        views = jittered(views, 1 + how.jitter * (2 * numbers[:, 5:8] - 1))
    return views


def blank(views: Tensor, side: int, numbers: Tensor) -> Tensor:
    """Return normalised views [v, 3, s, s] with a square of `side` pixels set to zero; two numbers say where."""
    place = torch.arange(views.shape[2], device=views.device) + 0.5  # [s]
    far = (place[None, None] - numbers[:, :, None] * views.shape[2]).abs() > side / 2  # [v, 2, s]
    kept = far[:, 0, :, None] | far[:, 1, None, :]  # [v, s, s]
    return views * kept[:, None]


def jittered(views: Tensor, factors: Tensor) -> Tensor:
    """Scale brightness, then contrast, then saturation of views [v, 3, s, s] by factors [v, 3], each kept to [0, 1]."""
    brightness, contrast, saturation = (factors[:, i, None, None, None] for i in range(3))
    views = (views * brightness).clamp(0, 1)
    middle = _grey(views).mean(dim=(2, 3), keepdim=True)
    views = torch.lerp(middle, views, contrast).clamp(0, 1)
    return torch.lerp(_grey(views), views, saturation).clamp(0, 1)


def _grey(views: Tensor) -> Tensor:
    red, green, blue = (views[:, i : i + 1] for i in range(3))
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue  # [v, 1, s, s]


def _window(height: int, width: int, size: int, how: Augment, numbers: Tensor) -> tuple[Tensor, ...]:
    """Return left, top, width and height of the window that becomes a view, in pixels, each [v]."""
    if how.crop == "shift":
        left = torch.floor(numbers[:, 0] * (width - size + 2 * how.pad + 1)) - how.pad
        top = torch.floor(numbers[:, 1] * (height - size + 2 * how.pad + 1)) - how.pad
        same = torch.full_like(left, size)
        return left, top, same, same
    low, high = how.area
    area = (low + (high - low) * numbers[:, 2]) * (width * height)
    narrow, wide = math.log(how.ratio[0]), math.log(how.ratio[1])
    ratio = torch.exp(narrow + (wide - narrow) * numbers[:, 3])
    across = (area * ratio).sqrt().clamp(max=width)
    down = (area / ratio).sqrt().clamp(max=height)
    return numbers[:, 0] * (width - across), numbers[:, 1] * (height - down), across, down


def _places(window: tuple[Tensor, ...], size: int, mirrored: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pixel, from the left and from the top, that each pixel of a view is taken from, each [v, size, size].

    A view is the window, mirrored where said, then turned; so its places are turned first.
    """
    left, top, across, down = (part[:, None, None] for part in window)
    middle = (torch.arange(size, device=turn.device) + 0.5) / size - 0.5
    x, y = middle[None, None, :], middle[None, :, None]
    cosine = ((turn == 0).float() - (turn == 2).float())[:, None, None]
    sine = ((turn == 1).float() - (turn == 3).float())[:, None, None]
    sign = (1 - 2 * mirrored.float())[:, None, None]
    return left + (sign * (cosine * x - sine * y) + 0.5) * across, top + (sine * x + cosine * y + 0.5) * down
