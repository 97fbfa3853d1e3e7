"""Fingerprints of images: a checksum per image, to detect changes."""

from __future__ import annotations

import zlib
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.datasets import Images
from sinkshot.backbones.datasets.images import parallel
from sinkshot.backbones.datasets.sources import Objects, Opened


def fingerprints(images: Images) -> NDArray[np.uint32]:
    """Return a checksum [n] per image: of a file's size and modification time, or of the content if there is no file.

    A missing file gets one too; decoding it reports that it is missing.
    """
    if isinstance(images.source, Objects):
        return images.source.stamps
    found = parallel(lambda index: _fingerprint(images.source.open(index)), range(len(images)))
    return np.fromiter(found, np.uint32, len(images))


def _fingerprint(opened: Opened) -> int:
    if isinstance(opened, BytesIO):
        return zlib.crc32(opened.getbuffer())
    if isinstance(opened, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(opened).data)
    try:
        known = opened.stat()
    except (OSError, ValueError):  # missing, or no name of a file
        return 0
    return zlib.crc32(f"{known.st_size} {known.st_mtime_ns}".encode())
