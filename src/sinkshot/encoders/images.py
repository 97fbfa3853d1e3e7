"""Prepare images for an encoder: upright, RGB, resized, cropped and normalised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels import jit_disabled

Triple = tuple[float, float, float]
_STRIP = 1 << 22  # pixels that are changed at a time
IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of its channels
GUESSED = "mean and spread of its images are guessed as ImageNet's; --mean and --std set others"
_GAP = 2.0  # what is left of a reduction by whole steps is at least this
_LONGEST = 100  # times the short side; longer images are strips
_MARGIN = 1.15  # of the short side to the crop, with which the field tests its networks


@dataclass(frozen=True)
class ImageInput:
    """How images are prepared for an encoder."""

    size: int  # side in pixels
    crop: float = 0.875  # fraction of the short side that is kept, around the centre
    mean: Triple = IMAGENET[0]  # of the channels, from 0 to 1
    std: Triple = IMAGENET[1]
    small_whole: bool = False  # images are cropped only as far as they are larger than `size`
    least_jpeg: float = 1.0  # JPEGs are decoded at 1/2, 1/4 or 1/8 if their short side stays at least this times `size`

    @classmethod
    def of_network(cls, size: int, mean: Triple | None = None, std: Triple | None = None) -> ImageInput:
        """The preparation for networks that do not specify their own, in `label` and `extract` alike."""
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
        """Return an opened Pillow image as [size, size, 3]: upright, RGB, its centre crop resized.

        A JPEG is decoded at a fraction of its size where that suffices, which takes half the time at 640 x 480. Nearest
        class means of 50 validation birds, enlarged to that size, then are right as often (+0.06 ± 0.16 points; the
        cosine to features of whole images is 0.998).
        """
        short = min(image.size)
        kept = max(round(short * self.crop), min(short, self.size) if self.small_whole else 0) / short
        if image.format == "JPEG":
            least = math.ceil(self.least_jpeg * self.size)
            image.draft("RGB", (least, least))
        picture = as_seen(image)
        side = max(1, round(min(picture.size) * kept))
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        return _resized(picture, left, top, side, self.size)


def _resized(picture: Any, left: int, top: int, side: int, size: int) -> NDArray[np.uint8]:
    """Return a square of an RGB image as [size, size, 3].

    Compiled code gives what Pillow gives, bit for bit, in less time. Pillow itself resizes squares that it
    reduces by whole steps first, images of which a copy would be large, strips, which its versions resize in different
    orders, and all where Numba's compiler is disabled.
    """
    width, height = picture.size
    strip = max(width, height) > _LONGEST * min(width, height)
    if side < 2 * _GAP * size and width * height <= _STRIP and not strip and not jit_disabled():
        from sinkshot.kernels.resize_numba import fits, resized

        if fits(width, height, side, size):
            pixels = np.frombuffer(picture.tobytes("raw", "RGBX"), np.uint8).reshape(height, width, 4)
            return resized(pixels, left, top, side, size, pillow_order(width, height, size))
    from PIL import Image

    box = (left, top, left + side, top + side)
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=_GAP))


def pillow_order(width: int, height: int, size: int) -> Literal["rows first", "columns first"]:
    """Return in which order the installed Pillow resizes an image: since version 13, tall ones columns first."""
    import PIL

    tall = height - size > 2 * max(0, width - size)
    return "columns first" if tall and int(PIL.__version__.split(".")[0]) >= 13 else "rows first"


def as_seen(image: Any) -> Any:
    """Return a Pillow image as viewers show it: first frame, upright, 8 bits, RGB, on white where transparent."""
    from PIL import ImageOps

    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    return _in_strips(image, _rgb(image))


def _rgb(image: Any) -> Callable[[Any], Any]:
    """Return the function that makes 8-bit RGB on white of an image or of a part of it."""
    from PIL import Image

    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I"):
        top = 65535.0 if max(_values(part).max(initial=0) for part in _strips(image)) > 255 else 255.0
        return lambda part: _grey(np.clip(_values(part) * (255 / top), 0, 255))
    if image.mode == "F":
        ranges = [(float(x.min(initial=0)), float(x.max(initial=1))) for x in map(_values, _strips(image))]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        return lambda part: _grey((_values(part) - low) * (255 / max(high - low, 1e-12)))
    if "A" not in image.getbands() and "transparency" not in image.info:
        return lambda part: part.convert("RGB")

    def on_white(part: Any) -> Any:
        white = Image.new("RGBA", part.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, part.convert("RGBA")).convert("RGB")

    return on_white


def _values(part: Any) -> NDArray[np.float64]:
    return np.nan_to_num(np.asarray(part, dtype=np.float64))


def _grey(values: NDArray[np.float64]) -> Any:
    from PIL import Image

    return Image.fromarray(values.astype(np.uint8)).convert("RGB")


def _strips(image: Any) -> Iterator[Any]:
    """Yield an image in strips, from above; a small one is one strip."""
    rows = max(1, _STRIP // max(1, image.width))
    if rows >= image.height:
        yield image
        return
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(image.height, top + rows)))


def _in_strips(image: Any, change: Callable[[Any], Any]) -> Any:
    """Change an image strip by strip, so that intermediate results take little memory."""
    from PIL import Image

    whole, top = None, 0
    for part in _strips(image):
        changed = change(part)
        if changed.size == image.size:
            return changed
        whole = whole or Image.new("RGB", image.size)
        whole.paste(changed, (0, top))
        top += changed.height
    return whole
