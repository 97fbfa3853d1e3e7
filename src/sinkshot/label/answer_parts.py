"""Answers of a pool in parts: Parquet files, one for each part of the bank, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.estimators.unknown_head import NEIGHBOURS, logit, shift_by_labels, sigmoid
from sinkshot.foreign.folders import Folder, folder_at
from sinkshot.formats.parts import PartedFeatures
from sinkshot.label.items import Items
from sinkshot.parted.array import PartedArray, Stored, read_rows
from sinkshot.parted.neighbours import NearestOfSupports
from sinkshot.parted.pool import PartedPool, PoolFiles
from sinkshot.parted.work_folder import WorkFolder
from sinkshot.task import Scores

Floats = NDArray[Any]
ANSWERS = "answers"  # folder of the Parquet files


@dataclass(frozen=True)
class PartedRows:
    """What is to be labelled: features in parts, and the labels, classes and names of their rows."""

    features: PartedFeatures
    labels: NDArray[np.int64]  # [n], numbers of classes, -1 where there is none yet
    classes: tuple[str, ...]  # those with a label
    names: Sequence[str] | None = None  # of images; numbers of rows without
    items: Items | None = None  # where rows are images or texts

    def name(self, row: int) -> str:
        """Return the name of a row."""
        return str(row) if self.names is None else self.names[row]

    @property
    def description(self) -> str:
        """One line: what was recognised."""
        given, count = int((self.labels >= 0).sum()), len(self.classes)
        classes = f"{count} class{'' if count == 1 else 'es'}"
        parts = f"{len(self.labels):,} rows in {len(self.features.index.parts):,} parts"
        return f"{parts}, {given:,} labelled in {classes}, {len(self.labels) - given:,} to label"


@dataclass(frozen=True)
class PartedAnswers:
    """Answers of the method in files of the run, and where the rows of the bank are in them."""

    pool: PoolFiles
    probabilities: Stored  # [N, way]
    unknown: Stored | None  # [N, 1]
    shift: float  # by which the log odds of being unknown are lowered
    places: Path  # int32 [n], a row's place in the pool

    @classmethod
    def of(cls, pool: PartedPool, scores: Scores, near: NearestOfSupports | None, work: WorkFolder) -> PartedAnswers:
        """Store the scores, and check `unknown` by the neighbours of the labelled rows."""
        probabilities = _class_major(scores.probabilities).stored(by_row=True)
        unknown = None if scores.unknown is None else scores.unknown[..., None, :].stored()
        shift = 0.0
        if unknown is not None and near is not None:
            values = np.memmap(unknown.path, np.float32, "r", shape=(pool.layout.rows,))
            shift = shift_by_labels(values[near.numbers[:, :NEIGHBOURS]])
        places = np.empty(pool.layout.rows, np.int32)
        for part, first in enumerate(pool.layout.starts[:-1]):
            numbers = pool.files.bank_numbers(part)
            places[numbers] = np.arange(first, first + len(numbers), dtype=np.int32)
        path = work.path / "places"
        places.tofile(path)
        return cls(pool.files, probabilities, unknown, shift, path)

    def answers(self, places: NDArray[np.int32]) -> tuple[Floats, Floats]:
        """Return probabilities [m, way] and unknown [m] of rows by their places; supports have no meaning here."""
        rows = self.pool.layout.rows
        everywhere = np.memmap(self.probabilities.path, np.float32, "r", shape=(rows, self.probabilities.width))
        probabilities = np.asarray(everywhere[places])
        if self.unknown is None:
            return probabilities, np.zeros(len(places), np.float32)
        unknown = np.asarray(np.memmap(self.unknown.path, np.float32, "r", shape=(rows,))[places])
        return probabilities, sigmoid(logit(unknown) - self.shift).astype(np.float32) if self.shift else unknown


def _class_major(by_query: PartedArray) -> PartedArray:
    """Return probabilities [1, q, way] as class-major ones [1, way, q]."""
    return by_query.__array_namespace__().matrix_transpose(by_query)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AnswerJob:
    """A part of the bank whose answers are to be written."""

    found: PartedAnswers
    part: int
    begin: int  # first row in the bank
    codes: NDArray[np.int64]  # labels of its rows
    names: tuple[str, ...] | None
    column: str
    classes: tuple[str, ...]
    threshold: float | None
    folder: Folder | None


@dataclass(frozen=True)
class Totals:
    """Sums over answers."""

    counts: NDArray[np.int64]  # [way], rows with each label, given ones among them
    sizes: NDArray[np.float64]  # [way], estimated sizes without given ones
    given: int
    rejected: int
    confidence: float  # sum over predicted rows that are not rejected

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.counts + other.counts,
            self.sizes + other.sizes,
            self.given + other.given,
            self.rejected + other.rejected,
            self.confidence + other.confidence,
        )


def write_answers(
    rows: PartedRows, found: PartedAnswers, threshold: float | None, folder: Folder | None, work: WorkFolder
) -> Totals:
    """Write the answers of every part of the bank; a file appears under its name when it is complete."""
    target = None if folder is None else folder_at(folder.path_of(ANSWERS))
    starts = rows.features.starts
    column = "id" if rows.items is None else rows.items.column
    jobs = [
        AnswerJob(found, part, int(begin), rows.labels[begin:end],
                  None if rows.names is None else tuple(rows.names[begin:end]), column, rows.classes, threshold, target)
        for part, (begin, end) in enumerate(pairwise(starts))
    ]  # fmt: skip
    totals = work.map(written, jobs, shown="writing answers")
    if target is not None:
        for name in set(target.names()) - {answer_name(part) for part in range(len(jobs))}:
            if name.startswith("part-"):
                target.remove(name)  # of an earlier run
    total = totals[0]
    for one in totals[1:]:
        total = total + one
    return total


def answer_name(part: int) -> str:
    """Return the name of a file of answers."""
    return f"part-{part:05d}.parquet"


def written(job: AnswerJob) -> Totals:
    """Write the answers of a part, and return their sums."""
    places = read_rows(job.found.places, 1, job.begin, job.begin + len(job.codes), np.int32)[:, 0]
    given = job.codes >= 0
    probabilities, unknown = job.found.answers(places)
    probabilities[given] = 0
    probabilities[given, job.codes[given]] = 1
    unknown[given] = 0
    best = probabilities.argmax(axis=1)
    rejected = np.zeros(len(best), bool) if job.threshold is None else (unknown > job.threshold) & ~given
    top = probabilities[np.arange(len(best)), best]
    confidence = np.where(given, 1, np.where(rejected, unknown, top * (1 - unknown))).astype(np.float32)
    if job.folder is not None:
        _write_part(job, probabilities, unknown, best, confidence, rejected)
    way, kept = len(job.classes), ~rejected
    sizes = (probabilities[~given] * (1 - unknown[~given])[:, None]).sum(axis=0, dtype=np.float64)
    sure = float(confidence[kept & ~given].sum(dtype=np.float64))
    return Totals(np.bincount(best[kept], minlength=way), sizes, int(given.sum()), int(rejected.sum()), sure)


def _write_part(
    job: AnswerJob, probabilities: Floats, unknown: Floats, best: Floats, confidence: Floats, rejected: Floats
) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("answers in parts need pyarrow: pip install 'sinkshot[parquet]'.") from None
    assert job.folder is not None
    way = len(job.classes)
    others = probabilities.copy()
    others[np.arange(len(best)), best] = -1
    second = others.argmax(axis=1)
    names = pyarrow.array([*job.classes, ""])
    given = job.codes >= 0
    ids = np.arange(job.begin, job.begin + len(best)) if job.names is None else list(job.names)
    numbers = np.where(rejected, way, best)
    margin = np.ones(len(best)) if way == 1 else probabilities[np.arange(len(best)), best] - others.max(axis=1)
    columns = {
        job.column: ids,
        "label": pyarrow.DictionaryArray.from_arrays(numbers.astype(np.int32), names).cast(pyarrow.string()),
        "confidence": confidence,
        "unknown": unknown.astype(np.float32),
        "second": pyarrow.DictionaryArray.from_arrays(np.where(way > 1, second, way).astype(np.int32), names).cast(
            pyarrow.string()
        ),
        "margin": margin.astype(np.float32),
        "source": np.where(given, "given", "predicted"),
        "probabilities": pyarrow.ListArray.from_arrays(
            np.arange(0, way * len(best) + 1, way, dtype=np.int32), probabilities.astype(np.float32).ravel()
        ),
    }
    with job.folder.writing(answer_name(job.part)) as temporary, temporary.open("wb") as file:
        parquet.write_table(pyarrow.table(columns), file)
