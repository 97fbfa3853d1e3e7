"""Where the images of a data set lie: in files, here or in an object store, encoded in memory, or as plain pixels.

All are opened by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.folders import RemoteFolder
from sinkshot.foreign.limits import IMAGE

Opened = Path | BytesIO | NDArray[np.uint8]
"""A file or bytes that PIL can read, or pixels [h, w, 3]."""


class Source(Protocol):
    """Images by number; `name` identifies an image in messages."""

    def __len__(self) -> int: ...
    def name(self, index: int) -> str:  # noqa: D102
        ...

    def open(self, index: int) -> Opened:  # noqa: D102
        ...


@dataclass(frozen=True, eq=False)
class Files:
    """Image files under a folder, read when they are needed."""

    root: Path
    paths: Sequence[str]  # relative to root

    def __post_init__(self) -> None:
        for path in self.paths:
            if (".." in path and ".." in Path(path).parts) or Path(path).is_absolute():
                raise InputError(f"{self.root}: a list names {path!r:.200}, which is outside the folder.")

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        """Return the path below the root."""
        return self.paths[index]

    def open(self, index: int) -> Opened:
        """Return the file."""
        return self.root / self.paths[index]


@dataclass(frozen=True, eq=False)
class Objects:
    """Image files at an address such as `s3://bucket/photos`, read when they are needed."""

    folder: RemoteFolder
    paths: Sequence[str]  # relative to the address
    stamps: NDArray[np.uint32]  # checksums of what the store says of each: they change with the content

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        """Return the path below the address."""
        return self.paths[index]

    def open(self, index: int) -> Opened:
        """Read the file."""
        return BytesIO(self.folder.content(self.paths[index], IMAGE))


@dataclass(frozen=True, eq=False)
class Blob:
    """Encoded images one after another."""

    blob: NDArray[np.uint8]  # [bytes]
    offsets: NDArray[np.int64]  # [n + 1]
    of: str  # what they come from

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, index: int) -> str:
        """Return the file and the number in it."""
        return f"{self.of}[{index}]"

    def open(self, index: int) -> Opened:
        """Return the encoded image."""
        return BytesIO(self.blob[self.offsets[index] : self.offsets[index + 1]].tobytes())


@dataclass(frozen=True, eq=False)
class Encoded:
    """A list of encoded images, each an array of bytes."""

    images: Sequence[NDArray[np.uint8]]
    of: str

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        """Return the file and the number in it."""
        return f"{self.of}[{index}]"

    def open(self, index: int) -> Opened:
        """Return the encoded image."""
        return BytesIO(self.images[index].tobytes())


@dataclass(frozen=True, eq=False)
class Pixels:
    """Plain pixels, in memory or mapped."""

    pixels: NDArray[np.uint8]  # [n, h, w, 3]
    of: str

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, index: int) -> str:
        """Return the file and the number in it."""
        return f"{self.of}[{index}]"

    def open(self, index: int) -> Opened:
        """Return the pixels [h, w, 3]."""
        pixels: NDArray[np.uint8] = self.pixels[index]
        return pixels


@dataclass(frozen=True, eq=False)
class Picked:
    """Some images of some sources, in an order of their own."""

    sources: Sequence[Source]
    which: NDArray[np.int64]  # [n] places in `sources`
    indexes: NDArray[np.int64]  # [n] numbers within that source

    def __len__(self) -> int:
        return len(self.indexes)

    def alone(self) -> Source:
        """Return the same images without the sources' other ones, to be sent to another process."""
        found = [_parts_of(source, self.indexes[self.which == n]) for n, source in enumerate(self.sources)]
        if any(source is None for source in found):
            return self
        places = np.empty(len(self), np.int64)
        for n in range(len(self.sources)):
            chosen = self.which == n
            places[chosen] = np.arange(chosen.sum())
        return Picked(tuple(source for source in found if source is not None), self.which, places)

    def name(self, index: int) -> str:
        """Return the name that the source knows it by."""
        return self.sources[int(self.which[index])].name(int(self.indexes[index]))

    def open(self, index: int) -> Opened:
        """Return what the source returns."""
        return self.sources[int(self.which[index])].open(int(self.indexes[index]))


def _parts_of(source: Source, indexes: NDArray[np.int64]) -> Source | None:
    """Return a source of these images alone; None where that is not known how."""
    if isinstance(source, Files):
        return Files(source.root, [source.paths[i] for i in indexes])
    if isinstance(source, Objects):
        return Objects(source.folder, [source.paths[i] for i in indexes], source.stamps[indexes])
    if isinstance(source, Picked):
        return Picked(source.sources, source.which[indexes], source.indexes[indexes]).alone()
    if isinstance(source, Pixels):
        return Pixels(source.pixels[indexes], source.of)
    return None


def picked(source: Source, indexes: Any) -> Source:
    """Return the images of a source that have these numbers, in that order."""
    rows = np.asarray(indexes, np.int64)
    return Picked((source,), np.zeros(len(rows), np.int64), rows)


def joined(sources: Sequence[Source]) -> Source:
    """Return the images of several sources as one."""
    if len(sources) == 1:
        return sources[0]
    sizes = [len(source) for source in sources]
    which = np.repeat(np.arange(len(sources)), sizes)
    return Picked(tuple(sources), which, np.concatenate([np.arange(size) for size in sizes]))
