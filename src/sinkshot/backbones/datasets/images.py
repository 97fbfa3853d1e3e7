"""Images: labelled images of a data set, decoded when asked for, and `check`, which looks at all beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.datasets.sources import Opened, Pixels, Source, picked
from sinkshot.errors import InputError
from sinkshot.foreign.pictures import must_be_decodable, picture, room_for

if TYPE_CHECKING:
    from PIL.Image import Image

NAMED = 20  # faults listed individually
MARGIN = 1.15  # the short side is brought down to this many times the crop, unless another margin is given
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Labelled images. `pixels` decodes some of them, in parallel, resized and cropped to one size."""

    source: Source
    labels: NDArray[np.int64]  # [n], 0 .. classes-1
    class_names: tuple[str, ...]
    size: int | None = None  # side in pixels of what `pixels` gives; None: as they are, all of one size
    margin: float | None = None  # short side before the crop, in crops; None: MARGIN, and small images stay whole
    meta: Mapping[str, str] = field(default_factory=dict)  # data_set, split, layout
    expected: Mapping[str, int] = field(default_factory=dict)  # images of a class, or of "" all classes, where known
    faults: tuple[str, ...] = ()  # what was found wrong while listing them

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        facts = [f"{len(self)} images", f"{len(self.class_names)} classes", *self.meta.values()]
        return f"Images({', '.join(facts)})"

    @property
    def names(self) -> list[str]:
        """Name of each image, such as its path below the data set's folder."""
        return [self.source.name(i) for i in range(len(self))]

    def pixels(self, indexes: Any) -> NDArray[np.uint8]:
        """Decode the images with these numbers [n] to uint8 [n, h, w, 3]; all that fail are named in one error."""
        rows = np.asarray(indexes, np.int64).ravel()
        if isinstance(self.source, Pixels) and _as_it_is(self.source.pixels, self.size, self.margin):
            return self.source.pixels[rows]
        found, faults = [], []
        for row, image in zip(rows, parallel(self._decoded, rows.tolist()), strict=True):
            if isinstance(image, str):
                faults.append(f"{self.source.name(int(row))}: {image}")
            else:
                found.append(image)
        complain(faults)
        if len(shapes := {image.shape for image in found}) > 1:
            sizes = ", ".join(f"{w} x {h}" for h, w, _ in sorted(shapes)[:3])
            raise InputError(f"images have different sizes ({sizes}, ...); give one size for all.")
        return np.stack(found) if found else np.empty((0, self.size or 1, self.size or 1, 3), np.uint8)

    def _decoded(self, index: int) -> NDArray[np.uint8] | str:
        try:
            return fitted(self.source.open(index), self.size, self.margin)
        except Exception as error:  # whatever PIL and its codecs raise at a broken file
            return _reason(error)

    def _header(self, index: int) -> tuple[int, int] | str:
        """Return height and width as the image's header tells them."""
        try:
            opened = self.source.open(index)
            if isinstance(opened, np.ndarray):
                return int(opened.shape[0]), int(opened.shape[1])
            with picture(opened) as image:
                if self.size is not None:
                    must_be_decodable(*_resized(image.size, self.size, self.margin))
                return image.height, image.width
        except Exception as error:
            return _reason(error)

    def held(self) -> Images:
        """Return the same images, decoded once and held in memory."""
        pixels = np.concatenate([self.pixels(part) for part in parts(len(self), 4096)])
        return replace(self, source=Pixels(pixels, "image"))

    def only(self, indexes: Any) -> Images:
        """Return the images with these numbers; classes of which none is left are dropped."""
        rows = np.asarray(indexes, np.int64).ravel()
        kept, labels = np.unique(self.labels[rows], return_inverse=True)
        names = tuple(self.class_names[i] for i in kept)
        source, numbers = picked(self.source, rows), labels.astype(np.int64)
        return replace(self, source=source, labels=numbers, class_names=names, expected={}, faults=())


def check(
    images: Images,
    *,
    decode: bool = False,
    subset: bool = False,
    headers: bool = True,
    progress: Progress | None = None,
) -> None:
    """Check every image before a long run; one error names all faults.

    The header of each is read, or with `decode` the whole image, unless `headers` is false and workers will say what
    they cannot read; classes are counted, and held against the official numbers where the data set is a known one,
    unless it is a `subset` on purpose.
    """
    complain([*counted(images, subset), *(opened(images, decode, progress) if headers or decode else ())])


def problems(images: Images, decode: bool, subset: bool, progress: Progress | None = None) -> Iterator[str]:
    """Yield a sentence per fault of the images."""
    yield from counted(images, subset)
    yield from opened(images, decode, progress)


def counted(images: Images, subset: bool) -> Iterator[str]:
    """Yield a sentence per fault of the list of images."""
    yield from images.faults
    counts = dict(zip(images.class_names, np.bincount(images.labels, minlength=len(images.class_names)), strict=True))
    for name in (name for name, count in counts.items() if not count):
        yield f"class {name!r} has no images"
    for name, count in ({} if subset else images.expected).items():
        found = int(counts.get(name, 0)) if name else len(images)
        if found != count and (found or not name):
            yield f"{f'class {name!r}' if name else 'the split'} has {found:,} images, expected {count:,}"


def opened(images: Images, decode: bool, progress: Progress | None = None) -> Iterator[str]:
    """Yield a sentence per image that cannot be read, or that is not as large as others."""
    look = images._decoded if decode else images._header
    sizes: dict[Any, int] = {}
    for index, found in enumerate(parallel(look, range(len(images)))):
        if progress is not None and (index % 256 == 255 or index + 1 == len(images)):
            progress(index + 1, len(images))
        if isinstance(found, str):
            yield f"{images.source.name(index)}: {found}"
        else:
            sizes.setdefault(found.shape[:2] if decode else found, index)
    if images.size is None and len(sizes) > 1:
        listed = ", ".join(f"{w} x {h} ({images.source.name(i)})" for (h, w), i in list(sizes.items())[:3])
        yield f"images have {len(sizes)} different sizes, such as {listed}; give one size for all"


def complain(faults: list[str]) -> None:
    """Raise one error that names up to 20 faults and counts the rest."""
    if not faults:
        return
    rest = [f"and {len(faults) - NAMED:,} more"] if len(faults) > NAMED else []
    many = "1 thing is" if len(faults) == 1 else f"{len(faults):,} things are"
    raise InputError(f"{many} wrong with the images:", *faults[:NAMED], *rest)


def fitted(opened: Opened, size: int | None, margin: float | None) -> NDArray[np.uint8]:
    """Decode an image to [size, size, 3], upright (EXIF) and RGB.

    The short side is brought to `margin` times the size, and the middle is cut out, as the field does at test time.
    Where no margin is given, it is 1.15, and smaller images are enlarged to the size alone, so that nothing is cut
    away that was never there.
    """
    from PIL import Image, ImageOps

    if isinstance(opened, np.ndarray) and _as_it_is(opened, size, margin):
        return opened
    held = nullcontext(Image.fromarray(opened)) if isinstance(opened, np.ndarray) else picture(opened)
    with held as image, room_for(image.width * image.height):
        if size is not None:
            must_be_decodable(*_resized(image.size, size, margin))
        ImageOps.exif_transpose(image, in_place=True)
        upright = image if image.mode == "RGB" else image.convert("RGB")
        return np.array(upright) if size is None else _cut(upright, size, margin)


def _as_it_is(pixels: NDArray[Any], size: int | None, margin: float | None) -> bool:
    """Whether an array of pixels has the size already and nothing is to be cut away."""
    return size is None or (size in _square(pixels) and margin in (None, 1.0))


def _resized(shape: tuple[int, int], size: int, margin: float | None) -> tuple[int, int]:
    """Return width and height of an image whose short side is brought to `margin` times the size, or the size."""
    (width, height), short = shape, min(shape)
    side = max(size, min(short, round(size * MARGIN))) if margin is None else round(size * margin)
    return (max(side, round(width * side / short)), max(side, round(height * side / short)))


def _cut(upright: Image, size: int, margin: float | None) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    whole = _resized(upright.size, size, margin)
    if whole != upright.size:
        upright = upright.resize(whole, Resampling.BILINEAR)
    left, top = (upright.width - size) // 2, (upright.height - size) // 2
    return np.asarray(upright.crop((left, top, left + size, top + size)))


def parallel(function: Callable[[int], Any], indexes: Iterable[int]) -> Iterator[Any]:
    """Yield the results of a function in order, computed on all cores; a few thousand at most lie waiting."""
    rows = list(indexes) if not isinstance(indexes, range) else indexes
    with ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 1)) as pool:
        for part in parts(len(rows), 4096):
            groups = [[rows[part[i]] for i in group] for group in parts(len(part), 16)]
            for results in pool.map(lambda group: [function(index) for index in group], groups):
                yield from results


def parts(count: int, step: int) -> Iterator[range]:
    """Cut the numbers below `count` into ranges of `step`."""
    return (range(start, min(start + step, count)) for start in range(0, count, step))


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    if isinstance(error, UnidentifiedImageError):
        return "it is damaged or not an image"
    if isinstance(error, InputError):
        return str(error)
    return f"it cannot be read ({getattr(error, 'strerror', None) or error})"


def _square(pixels: NDArray[np.uint8]) -> tuple[int, ...]:
    height, width = pixels.shape[-3:-1]
    return (int(height),) if height == width else ()
