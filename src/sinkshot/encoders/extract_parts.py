"""Extract features of images into a bank in parts, on workers: each worker encodes and writes whole parts.

The images are listed once. A part is a job of its own: its images, the encoder and where to write. A worker loads the
encoder once, writes the part under its final name when it is complete, and beside it a small note: which work it
belongs to, its size and its digest. The same command continues with the parts that have no note, so killed workers, or
all of them, cost only the parts in progress. The index, written last, makes the parts a bank.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones import extract as steps
from sinkshot.backbones.backbone import Backbone
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.datasets.sources import Pixels
from sinkshot.backbones.fingerprints import fingerprints
from sinkshot.encoders.registry import load
from sinkshot.encoders.torch_network import as_backbone
from sinkshot.errors import InputError, whole
from sinkshot.foreign import limits, texts
from sinkshot.foreign.folders import Folder, folder_at, free_space
from sinkshot.formats.part_files import Part, write_part
from sinkshot.formats.parts import must_be_free, part_name, write_index
from sinkshot.workers import crew, each, package_version

PART_ROWS = 10_000


@dataclass(frozen=True)
class EncoderChoice:
    """What an encoder is loaded from, on any machine."""

    spec: str | Path
    options: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Backbone:
        """Return the encoder; a process loads it once."""
        return _loaded(self)


@dataclass(frozen=True)
class PartJob:
    """One part to be made."""

    number: int
    encoder: EncoderChoice
    sha256: str  # of the weights
    images: Images
    out: str
    work: str  # digest of everything that decides the part
    batch: int
    device: str
    precision: str
    store: str
    sums: bool  # whether sums for base means are wanted


@dataclass(frozen=True)
class PartDone:
    """A part that is written, and the sums of its rows by chain prefix for base means."""

    part: Part
    sums: Mapping[str, NDArray[np.float64]]


# More than 60 lines: half of them are the documentation of the parameters.
def extract_parts(
    choice: EncoderChoice,
    images: Images,
    out: str,
    *,
    part_rows: int = PART_ROWS,
    workers: int | None = None,
    scheduler: str | None = None,
    batch: int = 256,
    device: str = "auto",
    precision: str = "float32",
    store: str = "float16",
    base: Mapping[str, NDArray[Any]] | None = None,
    meta: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> steps.Extracted:
    """Write the features of all images as a bank in parts to the folder or address `out`.

    Parameters
    ----------
    choice : EncoderChoice
        The encoder, which workers load for themselves.
    images : Images
        As `datasets.load` lists them; workers must reach them by the same paths.
    part_rows : int
        Images of a part.
    workers, scheduler
        Processes of this machine or the address of a Dask scheduler; neither: this process.
    batch, device, precision, store, base, meta, progress
        As in `sinkshot.backbones.extract.extract`; `device` is that of a worker.
    """
    whole("the number of rows in a part", part_rows, 1)
    steps.check_settings(batch, precision, store)
    began, backbone = time.monotonic(), choice.load()
    folder, own = folder_at(out), images.meta.get("split") == "base" and not base
    facts = {**steps.provenance(backbone, images, precision), **(meta or {})}
    plan = [range(at, min(at + part_rows, len(images))) for at in range(0, len(images), part_rows)]
    _must_fit(folder, len(images) * backbone.width * (2 if store == "float16" else 4))
    stamps = fingerprints(images)
    shared = json.dumps([facts, store, batch, list(images.class_names)])
    digests = [_work(shared, images, stamps, rows) for rows in plan]
    notes = _notes(folder, digests)
    done: dict[int, PartDone] = {n: found for n, found in notes.items() if not own or found.sums}
    before = sum(len(plan[number]) for number in done)

    def jobs() -> Iterator[PartJob]:
        settings = {"batch": batch, "device": device, "precision": precision, "store": store, "sums": own}
        for number in (number for number in range(len(plan)) if number not in done):
            chosen = _some(images, plan[number])
            yield PartJob(number, choice, backbone.sha256, chosen, out, digests[number], **settings)  # type: ignore[arg-type]

    rows_done = before
    if progress is not None:
        progress(rows_done, len(images))
    with crew(workers, scheduler, package_version() if scheduler else "") as client:
        for job, found in each(client, make_part, jobs()):
            done[job.number] = found
            rows_done += found.part.rows
            if progress is not None:
                progress(rows_done, len(images))
    means = _means(done, len(images)) if own else {prefix: np.asarray(mean) for prefix, mean in (base or {}).items()}
    parts = [done[number].part for number in range(len(plan))]
    write_index(
        folder, parts, width=backbone.width, store=store, class_names=images.class_names, meta=facts, base=means
    )
    for number in range(len(plan)):
        folder.remove(_note(number))
    return steps.Extracted(Path(out), len(images), backbone.width, before, time.monotonic() - began)


def make_part(job: PartJob) -> PartDone:
    """Encode the images of a part and write it; runs on a worker."""
    backbone = job.encoder.load()
    if backbone.sha256 != job.sha256:
        raise InputError(f"{job.encoder.spec} on a worker differs from the file where the run began; copy it there.")
    encode = steps.encoding(backbone, job.images, job.device, job.precision)
    features = np.concatenate(list(steps.features_of(backbone, encode, job.images, job.batch)))
    steps.must_be_finite(features, job.images, 0)
    folder = folder_at(job.out)
    part = write_part(folder, part_name(job.number), features, job.images.labels, job.store)
    stored = features.astype(np.float16) if job.store == "float16" else features
    done = PartDone(part, steps.base_sums([stored]) if job.sums else {})
    with folder.writing(_note(job.number)) as temporary:
        temporary.write_text(_text(job.work, done), encoding="utf-8")
    return done


@lru_cache(maxsize=2)
def _loaded(choice: EncoderChoice) -> Backbone:
    return as_backbone(load(choice.spec, "image", **dict(choice.options)))


def _some(images: Images, rows: range) -> Images:
    """Return some of the images with their labels, so that a job carries nothing of the others."""
    if isinstance(images.source, Pixels):
        source: Any = Pixels(images.source.pixels[rows.start : rows.stop], images.source.of)
        chosen = replace(images, source=source)
    else:
        chosen = images.only(rows)
        chosen = replace(chosen, source=chosen.source.alone() if hasattr(chosen.source, "alone") else chosen.source)
    return replace(
        chosen, labels=images.labels[rows.start : rows.stop], class_names=images.class_names, expected={}, faults=()
    )


def _work(shared: str, images: Images, stamps: NDArray[np.uint32], rows: range) -> str:
    """Return a digest of everything that decides a part: encoder, settings, and the images with their fingerprints."""
    digest = hashlib.sha256(shared.encode())
    digest.update(f"{images.size} {images.margin} {rows.start}".encode())
    for index in rows:
        digest.update(images.source.name(index).encode("utf-8", "surrogateescape") + b"\n")
    digest.update(stamps[rows.start : rows.stop].astype("<u4").tobytes())
    digest.update(images.labels[rows.start : rows.stop].astype("<i8").tobytes())
    return digest.hexdigest()


def _note(number: int) -> str:
    return part_name(number, ".json")


def _text(work: str, done: PartDone) -> str:
    sums = {prefix: values.tolist() for prefix, values in done.sums.items()}
    return json.dumps({"work": work, "part": asdict(done.part), "sums": sums})


def _notes(folder: Folder, digests: list[str]) -> dict[int, PartDone]:
    """Return the parts of the same work that are complete; the folder must hold nothing else."""
    must_be_free(folder)
    names, found = set(folder.names()), {}
    for number, work in enumerate(digests):
        if {_note(number), part_name(number)} <= names:
            try:
                said = texts.json_object(folder.content(_note(number), limits.JSON))
                part = Part(**said["part"])
                sums = {prefix: np.array(values, np.float64) for prefix, values in said["sums"].items()}
                if said["work"] == work and folder.size(part.file) == part.size:
                    found[number] = PartDone(part, sums)
            except (InputError, KeyError, TypeError, ValueError, AttributeError):  # cut short: made again
                continue
    return found


def _means(done: Mapping[int, PartDone], rows: int) -> dict[str, NDArray[np.float32]]:
    """Return base means from the sums of all parts, added in the order of the parts."""
    prefixes = [prefix for prefix in steps.PREFIXES if all(prefix in found.sums for found in done.values())]
    totals = {prefix: sum(done[number].sums[prefix] for number in sorted(done)) for prefix in prefixes}
    return {prefix: np.asarray(total / rows, np.float32) for prefix, total in totals.items()}


def _must_fit(folder: Folder, need: int) -> None:
    free = free_space(folder)
    held = sum(folder.size(name) for name in folder.names()) if free is not None else 0
    if free is not None and free + held < need:
        raise InputError(f"{folder.address} needs {need / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there.")
