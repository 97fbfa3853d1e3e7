"""Stamps of images: a number for each that is another once the image is another."""

from __future__ import annotations

import zlib
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.datasets import Images
from sinkshot.backbones.datasets.images import parallel
from sinkshot.backbones.datasets.sources import Opened


def stamps(images: Images) -> NDArray[np.uint32]:
    """Return a stamp [n] of each image: of a file's size and time of change, or of the content where it has no file.

    A file that is not there gets a stamp too; whoever decodes it says that it is missing.
    """
    found = parallel(lambda index: _stamp(images.source.open(index)), range(len(images)))
    return np.fromiter(found, np.uint32, len(images))


def _stamp(opened: Opened) -> int:
    if isinstance(opened, BytesIO):
        return zlib.crc32(opened.getbuffer())
    if isinstance(opened, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(opened).data)
    try:
        known = opened.stat()
    except OSError:
        return 0
    return zlib.crc32(f"{known.st_size} {known.st_mtime_ns}".encode())
