"""Pictures of the page: images by number, decoded and encoded anew, the latest ones kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from sinkshot.label.page import jpeg

SIDES = {"small": 224, "large": 720}  # pixels
_QUALITY = {"small": 70, "large": 88}
KEPT = 128 << 20  # bytes
_AT_ONCE = 4  # images that are decoded at the same time


class Thumbnails:
    """Pictures of items.

    Parameters
    ----------
    paths : sequence of Path
        Of the items, by number.
    kept : int
        Bytes of pictures that stay in memory.
    """

    def __init__(self, paths: Sequence[Path], kept: int = KEPT) -> None:
        self.paths, self.kept = paths, kept
        self._found: OrderedDict[tuple[int, str], bytes] = OrderedDict()
        self._size, self._lock, self._room = 0, threading.Lock(), threading.Semaphore(_AT_ONCE)

    def get(self, row: int, size: str) -> bytes | None:
        """Return a JPEG of an item, "small" or "large"; None if there is none, or it can no longer be read."""
        if not 0 <= row < len(self.paths):
            return None
        with self._lock:
            found = self._found.get((row, size))
            if found is not None:
                self._found.move_to_end((row, size))
                return found
        with self._room:
            made = jpeg(self.paths[row], SIDES[size], _QUALITY[size])
        if made is not None:
            self._keep((row, size), made)
        return made

    def _keep(self, key: tuple[int, str], made: bytes) -> None:
        with self._lock:
            if key not in self._found:
                self._found[key] = made
                self._size += len(made)
            while self._size > self.kept:
                self._size -= len(self._found.popitem(last=False)[1])
