"""Encode images or texts on workers, into a bank in parts beside the input.

Items are listed once and cut into parts. A part is a job: a worker encodes its items, with a cache of its own, and
writes the part when it is complete. So a worker that dies costs the batch in flight, and the same command continues
after everything was killed. What cannot be read is left out of its part and named.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders import Encoder, load
from sinkshot.encoders.registry import Modality
from sinkshot.errors import InputError
from sinkshot.foreign.folders import LocalFolder
from sinkshot.formats.part_files import Part, write_part
from sinkshot.formats.parts import open_parts, part_name, write_index
from sinkshot.label import inputs
from sinkshot.label.answer_parts import PartedRows
from sinkshot.label.cache import FeatureCache
from sinkshot.label.encode import NothingReadableError, encode
from sinkshot.label.in_parts import coded
from sinkshot.label.items import OUTSIDER, Items, LeftOut
from sinkshot.workers import crew, each, package_version

PART_ITEMS = 10_000
BANK, CACHES = "bank-in-parts", "features-in-parts"


@dataclass(frozen=True)
class EncodeJob:
    """Items to be encoded and written as a part."""

    number: int
    items: Items
    codes: NDArray[np.int64]
    encoder: str | None
    options: tuple[tuple[str, Any], ...]
    digest: str  # of the encoder
    folder: Path  # of the cache


@dataclass(frozen=True)
class EncodedPart:
    """A part that is written, which of its items are in it, and why others are not."""

    part: Part | None  # None where no item can be read
    kept: NDArray[np.bool_]
    left_out: tuple[LeftOut, ...]


def rows_by_workers(
    source: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None,
    text: str | None,
    encoder: str | Callable[..., Any] | None,
    cache: Path,
    skip: Path | None,
    workers: int | None,
    scheduler: str | None,
    tell: Callable[[str], None],
    progress: Callable[[int, int], None] | None,
    **options: Any,
) -> tuple[PartedRows, dict[str, Any]]:
    """Encode the items of an input on workers; returns their rows, and facts for the summary.

    Parameters are those of `sinkshot.label`; workers must reach the input and `cache` by the same paths.
    """
    items = inputs.read(source, labels=labels, text=text, skip=skip)
    tell(f"{source}: {items.description}")
    for notice in items.notices:
        tell(notice)
    if items.features is not None:
        raise InputError("an input of embeddings goes to workers as a bank in parts: sinkshot convert FILE FOLDER "
                         "--part-rows 100000.")  # fmt: skip
    if callable(encoder):
        raise InputError("workers load the encoder by its name; a Python function cannot be sent to them.")
    modality: Modality = "image" if items.kind == "images" else "text"
    chosen = load(encoder, modality, **options)
    tell(f"encoder: {chosen.name}, {chosen.width:,} features" + (f"; {chosen.note}" if chosen.note else ""))
    numbers = {name: number for number, name in enumerate((*items.classes, OUTSIDER))}
    codes, classes = coded(
        items.classes,
        np.array([numbers.get(label or "", -1) for label in items.labels]),
        dict(enumerate(numbers)),
        {},
    )
    jobs = [
        EncodeJob(number, items.slice(begin, begin + PART_ITEMS), codes[begin : begin + PART_ITEMS], encoder,
                  tuple(options.items()), chosen.digest, cache.resolve())
        for number, begin in enumerate(range(0, len(items), PART_ITEMS))
    ]  # fmt: skip
    found: dict[int, EncodedPart] = {}
    done = 0
    with crew(workers, scheduler, package_version() if scheduler else "") as client:
        for job, encoded in each(client, encode_part, jobs):
            found[job.number] = encoded
            done += len(job.items)
            if progress is not None:
                progress(done, len(items))
    kept = np.concatenate([found[number].kept for number in range(len(jobs))])
    left_out = [one for number in range(len(jobs)) for one in found[number].left_out]
    if not kept.any():
        raise InputError(
            f"none of the {len(items):,} {items.kind} can be read; {left_out[0].name}: {left_out[0].reason}."
        )
    folder = LocalFolder(cache.resolve() / BANK)
    parts = [part for number in range(len(jobs)) if (part := found[number].part) is not None]
    write_index(folder, parts, width=chosen.width, store="float16", class_names=classes, meta={}, base={})
    features, _, _ = open_parts(folder.path)
    rest = items.only(kept, left_out)
    facts = {"encoder": chosen.name, "encoder_digest": chosen.digest}
    return PartedRows(features, codes[kept], classes, rest.names, rest), facts


def encode_part(job: EncodeJob) -> EncodedPart:
    """Encode the items of a part and write it; runs where a worker is."""
    chosen = _loaded(job.encoder, "image" if job.items.kind == "images" else "text", job.options)
    if chosen.digest != job.digest:
        raise InputError(f"the encoder {chosen.name} differs on a worker from the one where the run began.")
    with FeatureCache(job.folder / CACHES / f"{job.number:05d}.sqlite", chosen.digest, chosen.width) as cache:
        try:
            rest, features = encode(job.items, chosen, cache)
        except NothingReadableError as error:
            return EncodedPart(None, np.zeros(len(job.items), bool), (LeftOut(job.items.names[0], str(error)),))
    names = set(rest.names)
    kept = np.array([name in names for name in job.items.names])
    folder = LocalFolder(job.folder / BANK)
    part = write_part(folder, part_name(job.number), features, job.codes[kept], "float16")
    return EncodedPart(part, kept, rest.left_out)


@lru_cache(maxsize=2)
def _loaded(spec: str | None, modality: Modality, options: tuple[tuple[str, Any], ...]) -> Encoder:
    return load(spec, modality, **dict(options))
