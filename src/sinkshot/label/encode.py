"""From items to features: items that are not cached are encoded in batches, and decoded while the network runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders import Encoder
from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError
from sinkshot.foreign.pictures import picture, room_for
from sinkshot.label.cache import Digest, FeatureCache, of_text
from sinkshot.label.items import Items, LeftOut
from sinkshot.threads import cores, in_order

BATCH = {"image": 32, "text": 256}
Progress = Callable[[int, int], None]


class NothingReadableError(InputError):
    """None of the items can be read."""


def encode(
    items: Items, encoder: Encoder, cache: FeatureCache, progress: Progress | None = None
) -> tuple[Items, NDArray[np.float32]]:
    """Return the items that could be encoded, and their features [n, width].

    Parameters
    ----------
    items : Items
        Images or texts.
    encoder : Encoder
    cache : FeatureCache
        Of this encoder.
    progress : callable, optional
        Called with the numbers of items done and in total.
    """
    digests, left_out = _digests(items, cache)
    found = cache.known([digest for digest in digests if digest is not None])
    missing = [i for i, digest in enumerate(digests) if digest is not None and digest not in found]
    first = {digests[i]: i for i in reversed(missing)}  # twins are encoded once
    todo, done = sorted(first.values()), len(items) - len(missing)
    if progress is not None:
        progress(done, len(items))
    for rows, prepared, faults in _batches(items, todo, encoder):
        left_out.update(faults)
        if rows:
            features = _checked(encoder.encode(prepared), encoder, len(rows))
            keys = [digests[i] for i in rows]
            cache.keep([key for key in keys if key is not None], features)
            found.update(zip(keys, features, strict=True))  # type: ignore[arg-type]
        done += len(rows) + len(faults)
        if progress is not None:
            progress(min(done, len(items)), len(items))
    broken = {digests[i]: fault for i, fault in left_out.items() if digests[i] is not None}
    for i, digest in enumerate(digests):
        if digest is not None and digest not in found:
            left_out.setdefault(i, LeftOut(items.names[i], broken[digest].reason))
    kept = np.array([i not in left_out for i in range(len(items))])
    if not kept.any():
        reason = next(iter(left_out.values()))
        raise NothingReadableError(
            f"none of the {len(items):,} {items.kind} can be read; {reason.name}: {reason.reason}."
        )
    rest = items.only(kept, [left_out[i] for i in sorted(left_out)])
    rows_kept: list[Any] = [found[digests[i]] for i in np.flatnonzero(kept)]  # type: ignore[index]
    return rest, np.stack(rows_kept)


def _digests(items: Items, cache: FeatureCache) -> tuple[list[Digest | None], dict[int, LeftOut]]:
    """The digest of each item's content, and what cannot be read."""
    if items.kind == "texts":
        return [of_text(text) for text in items.texts], {}
    digests: list[Digest | None] = []
    left_out: dict[int, LeftOut] = {}
    for i, path in enumerate(items.paths):
        try:
            digests.append(cache.of_file(path))
        except (OSError, InputError) as error:
            digests.append(None)
            left_out[i] = LeftOut(items.names[i], reason(error))
    return digests, left_out


def _batches(items: Items, todo: list[int], encoder: Encoder) -> Iterator[tuple[list[int], Any, dict[int, LeftOut]]]:
    """Yield numbers of items, what the encoder takes of them, and what could not be read."""
    size = BATCH[encoder.modality]
    parts = [todo[at : at + size] for at in range(0, len(todo), size)]
    if items.kind == "texts":
        for part in parts:
            yield part, [items.texts[i] for i in part], {}
        return
    if encoder.images is None:
        raise InputError(f"the encoder {encoder.name} does not say what size of images it takes.")
    shape = encoder.images

    def prepared(part: list[int]) -> tuple[list[int], NDArray[np.uint8], dict[int, LeftOut]]:
        rows, pixels, faults = [], [], {}
        for i in part:
            try:
                pixels.append(_pixels(items.paths[i], shape))
                rows.append(i)
            except Exception as error:  # Pillow's decoders raise almost anything at a damaged file
                faults[i] = LeftOut(items.names[i], reason(error))
        empty = np.empty((0, shape.size, shape.size, 3), np.uint8)
        return rows, np.stack(pixels) if pixels else empty, faults

    yield from in_order(prepared, parts, max(2, cores()))


def _pixels(path: Path, shape: ImageInput) -> NDArray[np.uint8]:
    with picture(path) as image, room_for(image.width * image.height):
        if image.format == "JPEG":
            side = round(shape.size / shape.crop)
            image.draft("RGB", (2 * side, 2 * side))  # decode at no larger a size than needed
        return shape.prepared(image)


def _checked(features: Any, encoder: Encoder, count: int) -> NDArray[np.float32]:
    values = np.asarray(features, dtype=np.float32)
    if values.shape != (count, encoder.width):
        raise InputError(
            f"the encoder {encoder.name} returned an array of shape {values.shape} for {count} items; "
            f"{(count, encoder.width)} is expected."
        )
    if not np.isfinite(values).all():
        raise InputError(f"the encoder {encoder.name} returned features that are not finite.")
    return values


def reason(error: BaseException) -> str:
    """Return why something cannot be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image, or a damaged one"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.rstrip(".")
