"""From items to features: items that are not cached are decoded and encoded in batches, several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders import Encoder
from sinkshot.errors import InputError
from sinkshot.foreign.pictures import picture, room_for
from sinkshot.label.cache import Digest, FeatureCache, of_text
from sinkshot.label.items import Items, LeftOut
from sinkshot.threads import cores, in_order

BATCH = {"image": 32, "text": 256}
Progress = Callable[[int, int], None]
Encoded = tuple[list[int], NDArray[np.float32], dict[int, LeftOut]]
"""Numbers of items, their features [n, width], and what could not be read."""


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
    for rows, features, faults in _batches(items, todo, encoder):
        left_out.update(faults)
        if rows:
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


def _batches(items: Items, todo: list[int], encoder: Encoder) -> Iterator[Encoded]:
    """Encode items in batches.

    Images are decoded in threads. If the encoder takes small batches on one core each, they are encoded there too;
    otherwise one batch is encoded on all cores while the next ones are decoded.
    """
    size = encoder.core_batch or BATCH[encoder.modality]
    parts = [todo[at : at + size] for at in range(0, len(todo), size)]
    if items.kind == "texts":
        for part in parts:
            yield part, _encoded(encoder, [items.texts[i] for i in part]), {}
        return
    if encoder.images is None:
        raise InputError(f"the encoder {encoder.name} does not say what size of images it takes.")
    shape = encoder.images

    def decoded(part: list[int]) -> tuple[list[int], list[NDArray[np.uint8]], dict[int, LeftOut]]:
        rows, pixels, faults = [], [], {}
        for i in part:
            try:
                with picture(items.paths[i]) as image, room_for(image.width * image.height):
                    pixels.append(shape.prepared(image))
                rows.append(i)
            except Exception as error:  # Pillow's decoders raise almost anything at a damaged file
                faults[i] = LeftOut(items.names[i], reason(error))
        return rows, pixels, faults

    def encoded(rows: list[int], pixels: list[NDArray[np.uint8]], faults: dict[int, LeftOut]) -> Encoded:
        none = np.empty((0, encoder.width), np.float32)
        return rows, _encoded(encoder, np.stack(pixels)) if rows else none, faults

    if encoder.core_batch:
        yield from in_order(lambda part: encoded(*decoded(part)), parts, cores())
    else:
        yield from (encoded(*batch) for batch in in_order(decoded, parts, max(2, cores())))


def _encoded(encoder: Encoder, batch: Any) -> NDArray[np.float32]:
    """Encode a batch and check what comes back."""
    values, count = np.asarray(encoder.encode(batch), dtype=np.float32), len(batch)
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
