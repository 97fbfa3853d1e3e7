"""From items to features: items that are not cached are decoded and encoded in batches, several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
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
_READ_AHEAD = 8  # files whose digests are computed at a time
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
    digests: list[Digest | None] = [of_text(text) for text in items.texts]
    if items.kind != "texts":
        digests = cache.unchanged(items.paths)
    found = cache.known([digest for digest in digests if digest is not None])
    todo = [i for i, digest in enumerate(digests) if digest is None or digest not in found]
    already = len(items) - len(todo)
    left_out: dict[int, LeftOut] = {}
    if progress is not None:
        progress(already, len(items))
    contents: dict[int, bytes] = {}
    unlike, since = _unlike(items, todo, cache, digests, found, left_out, contents), 0
    for rows, features, faults in _batches(items, unlike, len(todo), encoder, contents):
        left_out.update(faults)
        keys = [digest for i in rows if (digest := digests[i]) is not None]
        found.update(zip(keys, features, strict=True))
        cache.add(keys, features)
        since += len(rows) + len(faults)
        if since >= (encoder.core_batch or 1):  # batches at the end are smaller
            cache.write()
            since = 0
        if progress is not None:
            progress(already + bisect_right(todo, max((*rows, *faults))), len(items))
    cache.write()
    if progress is not None:
        progress(len(items), len(items))  # files at the end may be known or unreadable
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


def _unlike(
    items: Items,
    todo: list[int],
    cache: FeatureCache,
    digests: list[Digest | None],
    found: dict[Digest, NDArray[np.float32]],
    left_out: dict[int, LeftOut],
    contents: dict[int, bytes],
) -> Iterator[int]:
    """Yield the items to encode: the first of twins, and none whose features are known.

    Files are read for their digests only when their turn comes, while others are encoded. New digests, features that
    turn out to be cached, files that cannot be read, and the contents of small files that are to be encoded are entered
    into the last four arguments.
    """
    taken: set[Digest] = set()
    for at in range(0, len(todo), _READ_AHEAD):
        part, fresh, read = todo[at : at + _READ_AHEAD], [], {}
        for i in part:
            if digests[i] is None:
                try:
                    digests[i], read[i] = cache.of_file(items.paths[i])
                    fresh.append(digests[i])
                except (OSError, InputError) as error:
                    left_out[i] = LeftOut(items.names[i], reason(error))
        found |= cache.known([digest for digest in fresh if digest is not None and digest not in found])
        for i in part:
            digest = digests[i]
            if digest is not None and digest not in found and digest not in taken:
                taken.add(digest)
                if (content := read.pop(i, None)) is not None:
                    contents[i] = content
                yield i


def _parts(todo: Iterator[int], count: int, size: int, threads: int) -> Iterator[list[int]]:
    """Cut at most `count` items into batches; the last ones are smaller, so that all threads end at the same time."""
    while part := list(islice(todo, max(1, min(size, count // (2 * threads))))):
        count -= len(part)
        yield part


def _batches(
    items: Items, todo: Iterator[int], count: int, encoder: Encoder, contents: dict[int, bytes]
) -> Iterator[Encoded]:
    """Encode items, at most `count`, in batches. Contents of files that have been read are taken out of `contents`.

    Images are decoded in threads. If the encoder takes small batches on one core each, they are encoded there too;
    otherwise one batch is encoded on all cores while the next ones are decoded.
    """
    if encoder.core_batch:
        parts = _parts(todo, count, encoder.core_batch, cores())
    else:
        parts = iter(lambda: list(islice(todo, BATCH[encoder.modality])), [])
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
                content = contents.pop(i, None)
                source = items.paths[i] if content is None else BytesIO(content)
                with picture(source) as image, room_for(image.width * image.height):
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
