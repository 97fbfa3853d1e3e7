"""Answers of a pool in parts: Parquet files, one for each part of the bank, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.estimators.outsiders import OutsiderRule
from sinkshot.estimators.stranger_share import Scale, log_odds, opinion, samples, scale_of, share_of
from sinkshot.estimators.unknown_head import NEIGHBOURS, shift_by_labels
from sinkshot.foreign.folders import Folder, folder_at
from sinkshot.formats.parts import PartedFeatures
from sinkshot.label.items import OUTSIDER, Items
from sinkshot.methods import Method
from sinkshot.parted.array import PartedArray, Stored, new_stored, read_rows
from sinkshot.parted.neighbours import NearestOfSupports
from sinkshot.parted.pool import PartedPool, PoolFiles
from sinkshot.parted.work_folder import WorkFolder, room_is_said
from sinkshot.task import Scores

Floats = NDArray[Any]
ANSWERS = "answers"  # folder of the Parquet files
_MOST_HEARD = 20_000  # rows of the pool among which known outsiders are heard
_MOST_RANKED = 1_000_000  # rows whose `unknown` sets its scale
KNOWN_OUTSIDER = -2  # code of a row that is known to belong to no class


@dataclass(frozen=True)
class PartedRows:
    """What is to be labelled: features in parts, and the labels, classes and names of their rows."""

    features: PartedFeatures
    labels: NDArray[np.int64]  # [n], numbers of classes, -1 where there is none yet, `KNOWN_OUTSIDER`
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
        outsiders = int((self.labels == KNOWN_OUTSIDER).sum())
        classes = f"{count} class{'' if count == 1 else 'es'}"
        parts = f"{len(self.labels):,} rows in {len(self.features.index.parts):,} parts"
        known = f", {outsiders:,} known outsiders" if outsiders else ""
        return f"{parts}, {given:,} labelled in {classes}{known}, {len(self.labels) - given - outsiders:,} to label"


class AnswerSource(Protocol):
    """What has answers for the rows of a bank."""

    def of_rows(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return probabilities [m, way] and unknown [m] of rows by their numbers in the bank."""


@dataclass(frozen=True)
class PartedAnswers:
    """Answers of the method in files of the run, and where the rows of the bank are in them."""

    pool: PoolFiles
    probabilities: Stored  # [N, way]
    unknown: Stored | None  # [N, 1]
    scale: Scale  # of the log odds of being unknown
    places: Path  # int32 [n], a row's place in the pool
    updated: Stored | None = None  # unknown [N, 1] after known outsiders are heard

    @classmethod
    def of(
        cls,
        pool: PartedPool,
        scores: Scores,
        near: NearestOfSupports | None,
        work: WorkFolder,
        outsiders: NDArray[np.int64],
        method: Method,
    ) -> PartedAnswers:
        """Store the scores, check `unknown` by the neighbours of the labelled rows, and learn from known outsiders.

        `outsiders` are their numbers in the bank, empty where `unknown` is not asked for.
        """
        probabilities = _class_major(scores.probabilities).stored(by_row=True)
        unknown = None if scores.unknown is None else scores.unknown[..., None, :].stored()
        if unknown is None and len(outsiders):
            unknown = new_stored(work, pool.layout.rows, 1)  # a method that rejects none: zeros
        scale = Scale() if unknown is None else _scale(pool, unknown, near, method)
        places = np.empty(pool.layout.rows, np.int32)
        for part, first in enumerate(pool.layout.starts[:-1]):
            numbers = pool.files.bank_numbers(part)
            places[numbers] = np.arange(first, first + len(numbers), dtype=np.int32)
        path = work.path / "places"
        with room_is_said(work.path):
            places.tofile(path)
        found = cls(pool.files, probabilities, unknown, scale, path)
        if not len(outsiders):
            return found
        return replace(found, updated=_with_outsiders(found, pool, np.sort(places[outsiders]), work, method))

    def answers(self, places: NDArray[np.int32], updated: bool = True) -> tuple[Floats, Floats]:
        """Return probabilities [m, way] and unknown [m] of rows by their places; supports have no meaning here."""
        rows = self.pool.layout.rows
        everywhere = np.memmap(self.probabilities.path, np.float32, "r", shape=(rows, self.probabilities.width))
        return np.asarray(everywhere[places]), self.unknown_of(places, updated)

    def of_rows(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return probabilities [m, way] and unknown [m] of rows by their numbers in the bank."""
        return self.answers(read_rows(self.places, 1, begin, end, np.int32)[:, 0])

    def unknown_of(self, places: Any, updated: bool = True) -> Floats:
        """Return unknown [m] of rows by their places."""
        rows, source = self.pool.layout.rows, self.updated if updated and self.updated is not None else self.unknown
        if source is None:
            return np.zeros(len(places), np.float32)
        unknown = np.asarray(np.memmap(source.path, np.float32, "r", shape=(rows,))[places])
        done = source is self.updated or self.scale == Scale()
        return unknown if done else self.scale(log_odds(unknown)).astype(np.float32)


def _scale(pool: PartedPool, unknown: Stored, near: NearestOfSupports | None, method: Method) -> Scale:
    """Return the scale of `unknown`: set by samples of the pool, then checked by the neighbours of labelled rows."""
    values = np.memmap(unknown.path, np.float32, "r", shape=(pool.layout.rows,))
    scale, supports = Scale(), pool.files.rows(0)
    looked_at = samples(pool.codes, pool.layout.rows - len(supports)) if method.name == "sinkshot" else ()
    opinions = [
        opinion(supports[each.labelled], pool.codes[each.labelled], _rows_at(pool, each.others + len(supports)))
        for each in looked_at
    ]
    if opinions:
        step = -(-len(values) // _MOST_RANKED)
        scale = scale_of(log_odds(values[len(supports) :: step]), share_of(opinions))
    if near is None:
        return scale
    shift = shift_by_labels(scale(log_odds(values[near.numbers[:, :NEIGHBOURS]])))
    return replace(scale, shift=shift)


@dataclass(frozen=True)
class OutsiderJob:
    """Parts whose rows are compared with known outsiders."""

    found: PartedAnswers
    parts: tuple[int, ...]
    rule: OutsiderRule
    target: Stored


def _with_outsiders(
    found: PartedAnswers, pool: PartedPool, places: NDArray[np.int32], work: WorkFolder, method: Method
) -> Stored:
    """Return `unknown` of all rows after hearing the outsiders at these places, in a pass over the rows."""
    supports = pool.files.rows(0)
    free = np.setdiff1d(np.arange(len(supports), pool.layout.rows, dtype=np.int32), places, assume_unique=True)
    some = free[np.unique(np.linspace(0, len(free) - 1, min(len(free), _MOST_HEARD)).astype(np.int64))]
    rows = np.concatenate([supports, _rows_at(pool, places), _rows_at(pool, some)])
    rule = OutsiderRule.fit(method, rows, pool.codes, len(places), centred="Mc" in pool.chain)
    target = new_stored(work, pool.layout.rows, 1)
    groups = work.groups(pool.layout, range(1, len(pool.layout.sizes) + 1))
    work.map(outsiders_heard, [OutsiderJob(found, parts, rule, target) for parts in groups])
    return target


def _rows_at(pool: PartedPool, places: NDArray[np.integer[Any]]) -> Floats:
    """Return the rows [m, d] at these places, which rise."""
    cuts = np.searchsorted(places, pool.layout.starts)
    found = [
        pool.files.rows(part)[places[begin:end] - pool.layout.starts[part]]
        for part, (begin, end) in enumerate(pairwise(cuts))
        if end > begin
    ]
    return np.concatenate([np.empty((0, pool.files.width), np.float32), *found])


def outsiders_heard(job: OutsiderJob) -> None:
    """Write `unknown` of parts, updated by the rule."""
    pool = job.found.pool
    for part in job.parts:
        first = pool.layout.starts[part]
        done = [
            job.rule(rows, job.found.unknown_of(np.arange(first + begin, first + begin + len(rows))))
            for begin, rows in pool.blocks(part)
        ]
        job.target.write(pool.layout, part, np.concatenate(done)[None].astype(np.float32))


def _class_major(by_query: PartedArray) -> PartedArray:
    """Return probabilities [1, q, way] as class-major ones [1, way, q]."""
    return by_query.__array_namespace__().matrix_transpose(by_query)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AnswerJob:
    """A part of the bank whose answers are to be written."""

    found: AnswerSource
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
    rows: PartedRows, found: AnswerSource, threshold: float | None, folder: Folder | None, work: WorkFolder
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
    given, outside = job.codes >= 0, job.codes == KNOWN_OUTSIDER
    probabilities, unknown = job.found.of_rows(job.begin, job.begin + len(job.codes))
    probabilities[given] = 0
    probabilities[given, job.codes[given]] = 1
    unknown[given], unknown[outside] = 0, 1
    best = probabilities.argmax(axis=1)
    given |= outside
    rejected = np.zeros(len(best), bool) if job.threshold is None else (unknown > job.threshold) & ~given
    top = probabilities[np.arange(len(best)), best]
    confidence = np.where(given, 1, np.where(rejected, unknown, top * (1 - unknown))).astype(np.float32)
    if job.folder is not None:
        _write_part(job, probabilities, unknown, best, confidence, rejected)
    way, kept = len(job.classes), ~rejected & ~outside
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
    names = pyarrow.array([*job.classes, "", OUTSIDER])
    given = job.codes != -1
    ids = np.arange(job.begin, job.begin + len(best)) if job.names is None else list(job.names)
    numbers = np.where(job.codes == KNOWN_OUTSIDER, way + 1, np.where(rejected, way, best))
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
