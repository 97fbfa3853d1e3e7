"""Image files: a fixed list of formats, checked before they are decoded; large images are decoded one at a time."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from sinkshot.errors import InputError, unknown_name
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import IMAGE, PIXELS, SCANS, amount, max_memory

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
"""Formats that are opened by default, with their suffixes. Pillow supports more; some start other programs."""
VARIABLE = "SINKSHOT_IMAGE_FORMATS"  # environment variable, set by --image-format
_BYTES_PER_PIXEL = 8  # as stored, and in three colours
_LARGE = 1 << 22  # pixels from which images are decoded one at a time
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"  # the beginning of a file, and of a scan
_PAIR = np.dtype("<u2")  # two bytes as one number
_SCAN_PAIR = int.from_bytes(_SCAN, "little")
_BLOCK = 1 << 20
_one_at_a_time = threading.Lock()


def formats() -> tuple[str, ...]:
    """Return the allowed formats: the fixed list, and those that the user adds by Pillow's names, such as PPM."""
    return _formats(os.environ.get(VARIABLE, ""))


def suffixes() -> frozenset[str]:
    """Return the suffixes of files in these formats."""
    return _suffixes(formats())


@functools.cache
def _formats(added: str) -> tuple[str, ...]:
    names = [name.strip().upper() for name in added.split(",") if name.strip()]
    if names:
        from PIL import Image

        Image.init()
        for name in names:
            if name not in Image.OPEN:
                raise unknown_name("image format", name, Image.OPEN)
    return (*FORMATS, *(name for name in names if name not in FORMATS))


@functools.cache
def _suffixes(names: tuple[str, ...]) -> frozenset[str]:
    found = {suffix for name in names for suffix in FORMATS.get(name, ())}
    if others := [name for name in names if name not in FORMATS]:
        from PIL import Image

        found |= {suffix for suffix, name in Image.EXTENSION.items() if name in others}
    return frozenset(found)


@contextmanager
def picture(source: Path | BytesIO) -> Iterator[Image]:
    """Open an image: read its header and check its size."""
    from PIL import Image

    with ExitStack() as held:
        file: BinaryIO = source if isinstance(source, BytesIO) else held.enter_context(opened(source))
        if not isinstance(source, BytesIO):
            if (size := size_of(file)) > IMAGE.value:
                raise InputError(f"it has {amount(size)}, more than the {amount(IMAGE.value)} of {IMAGE.bounds}")
            if size <= _BLOCK:  # read once, for the check and for Pillow
                file = BytesIO(file.read(size))
        _must_have_few_scans(file)
        try:
            image = held.enter_context(Image.open(file, formats=formats()))
        except Image.DecompressionBombError as error:
            raise InputError("it has more pixels than allowed") from error
        must_be_decodable(*image.size)
        yield image


def _must_have_few_scans(file: BinaryIO) -> None:
    """Refuse a JPEG file of many scans: a hundred bytes each, and each takes as long as the whole image."""
    count, before = 0, file.read(2)
    if before == _JPEG:
        while (part := file.read(_BLOCK)) and count <= SCANS.value:
            count += _scans(part) + (before[-1:] + part[:1]).count(_SCAN)
            before = part
    file.seek(0)
    if count > SCANS.value:
        raise InputError(f"it has more than {SCANS.value} scans; save it again as an ordinary JPEG")


def _scans(part: bytes) -> int:
    """Count the beginnings of scans, in pairs of bytes from 0 and from 1: faster than `bytes.count`."""
    return sum(
        int(np.count_nonzero(np.frombuffer(part, _PAIR, (len(part) - start) // 2, start) == _SCAN_PAIR))
        for start in range(min(2, len(part) - 1))
    )


@contextmanager
def room_for(pixels: int) -> Iterator[None]:
    """If this image is large, wait until no other large image is being decoded."""
    if pixels < _LARGE:
        yield
        return
    with _one_at_a_time:
        yield


def must_be_decodable(width: int, height: int) -> None:
    """Refuse an image of more pixels than the limit."""
    given = max_memory()
    most = PIXELS.value if given is None else given // _BYTES_PER_PIXEL
    if width * height > most:
        raise InputError(
            f"it has {width:,} x {height:,} pixels, more than {most:,}; make it smaller, or allow it with --max-memory"
        )
