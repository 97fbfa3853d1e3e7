"""Prepare images for an encoder: upright, RGB, resized, cropped and normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Triple = tuple[float, float, float]
IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of its channels
GUESSED = "mean and spread of its images are guessed as ImageNet's; --mean and --std set others"
_MARGIN = 1.15  # of the short side to the crop, with which the field tests its networks


@dataclass(frozen=True)
class ImageInput:
    """How images are prepared for an encoder."""

    size: int  # side in pixels
    crop: float = 0.875  # fraction of the short side that is kept, around the centre
    mean: Triple = IMAGENET[0]  # of the channels, from 0 to 1
    std: Triple = IMAGENET[1]
    small_whole: bool = False  # images are cropped only as far as they are larger than `size`

    @classmethod
    def of_network(cls, size: int, mean: Triple | None = None, std: Triple | None = None) -> ImageInput:
        """How networks that do not say otherwise take images, in `label` and `extract` alike."""
        return cls(size, 1 / _MARGIN, mean or IMAGENET[0], std or IMAGENET[1], small_whole=True)

    @property
    def margin(self) -> float | None:
        """The short side before the crop, in crops; None: the default of `extract`, small images whole."""
        return None if self.small_whole else 1 / self.crop

    def normalised(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Normalise pixels [n, size, size, 3] to float32 [n, 3, size, size]."""
        shift = np.asarray(self.mean, np.float32) * 255
        scale = 1 / (np.asarray(self.std, np.float32) * 255)
        out = np.empty((len(pixels), 3, self.size, self.size), np.float32)
        for channel in range(3):
            np.multiply(pixels[..., channel], scale[channel], out=out[:, channel])
            out[:, channel] -= shift[channel] * scale[channel]
        return out

    def prepared(self, image: Any) -> NDArray[np.uint8]:
        """Return an opened Pillow image as [size, size, 3]: upright, RGB, its centre crop resized."""
        from PIL import Image

        picture = as_seen(image)
        short = min(picture.size)
        side = max(1, round(short * self.crop), min(short, self.size) if self.small_whole else 0)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        box = (left, top, left + side, top + side)
        return np.asarray(picture.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0))


def as_seen(image: Any) -> Any:
    """Return a Pillow image as viewers show it: first frame, upright, 8 bits, RGB, on white where transparent."""
    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(image)
    if picture.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I"):
        values = np.asarray(picture, dtype=np.float64)
        top = 65535.0 if values.max(initial=0) > 255 else 255.0
        picture = Image.fromarray(np.clip(values * (255 / top), 0, 255).astype(np.uint8))
    elif picture.mode == "F":
        values = np.nan_to_num(np.asarray(picture, dtype=np.float64))
        low, high = float(values.min(initial=0)), float(values.max(initial=1))
        picture = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")
