"""A bank in parts as a pool for a method: preprocessed, sorted into cells of similar rows, in files of a run.

1.  Every part is read once, checked against its digest and summed: the centre of the chain needs the mean of all rows.
    A sample of the rows comes back, from which cells are found.
2.  Every part is read again, preprocessed, and written sorted by small cell. From their sizes landmarks are drawn.
3.  Parts of the pool, some cells each, gather their rows from all of those: landmarks first, then the other rows.

Landmarks of one cell are in one part. Rows of a small cell are in the order of the bank, so the pool does not depend on
how the bank is divided, but for rounding of the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess as chain
from sinkshot.errors import InputError
from sinkshot.formats.part_files import verify
from sinkshot.formats.parts import PartedFeatures
from sinkshot.kernels.cells import SMALL_CELLS, Cells, cells_wanted, find_cells, sample_of, sample_wanted
from sinkshot.kernels.half_floats import widened
from sinkshot.kernels.landmarks import landmark_places, landmarks_wanted, most_landmarks
from sinkshot.parted.array import read_into, read_rows
from sinkshot.parted.cell_files import read_cells, write_cells
from sinkshot.parted.sorted_rows import RowsTaken, SortedRows
from sinkshot.parted.work_folder import RowLayout, WorkFolder, must_fit, room_is_said

Floats = NDArray[Any]
CELLS = "cells"  # file of the cells
PART_ROWS = 8_192, 16_384  # least and most rows of a part of the pool, about
PARTS = 256  # number of parts, as far as those bounds allow: enough for many workers, whatever their number
_ALIKE = 48  # many parts come in multiples of this: as many for each of 2, 3, 4, 6, 8, 12, 16 ... workers
_BLOCK = 4_096  # rows preprocessed at once
_BLOCK_OF_PASS = 512  # rows multiplied at once: at 640 features they stay in a cache of 2 MB, which saves a third


@dataclass(frozen=True)
class PoolFiles:
    """Rows of a run in files, after the chain and of unit length: supports, which are part 0, and queries."""

    layout: RowLayout
    width: int
    store: str  # type of the queries in files; supports are float32

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.layout.rows * self.width * np.dtype(self.store).itemsize

    def rows(self, part: int, begin: int = 0, end: int | None = None) -> Floats:
        """Read rows of a part as float32."""
        end = self.size(part) if end is None else end
        dtype = "float32" if part == 0 else self.store
        found = read_rows(self.layout.path(f"rows-{part}"), self.width, begin, end, dtype)
        return widened(found) if found.dtype == np.float16 else found

    def size(self, part: int) -> int:
        """Return the number of rows of a part."""
        return self.layout.supports if part == 0 else self.layout.sizes[part - 1]

    def blocks(self, part: int) -> Iterator[tuple[int, Floats]]:
        """Yield the rows of a part as float32 in blocks, with the number of the first in the part."""
        size, dtype = self.size(part), "float32" if part == 0 else self.store
        path = self.layout.path(f"rows-{part}")
        held = np.empty((_BLOCK_OF_PASS, self.width), dtype)
        with room_is_said(path.parent), path.open("rb", buffering=0) as file:
            for begin in range(0, size, _BLOCK_OF_PASS):
                rows = held[: min(_BLOCK_OF_PASS, size - begin)]
                read_into(file, rows)
                yield begin, widened(rows) if dtype == "float16" else rows

    def bank_numbers(self, part: int) -> NDArray[np.int64]:
        """Return the numbers in the bank of the rows of a part."""
        return read_rows(self.layout.path(f"numbers-{part}"), 1, 0, self.size(part), np.int64)[:, 0]


@dataclass(frozen=True)
class PartedPool:
    """A pool in files, and what is known of it as a whole."""

    files: PoolFiles
    codes: NDArray[np.int64]  # [l], classes of the supports
    chain: str
    cells: Cells
    cell_starts: NDArray[np.int64]  # [2 C + 1], first query of each cell among landmarks, then among other rows
    zero_rows: int

    @property
    def layout(self) -> RowLayout:
        """How rows lie in the files."""
        return self.files.layout


@dataclass(frozen=True)
class RowSource:
    """A bank in parts, the chain of its rows, and which rows are supports."""

    features: PartedFeatures
    steps: chain.Chain  # row-wise
    supports: NDArray[np.int64]  # numbers of the labelled rows, rising

    def blocks(self, part: int) -> Iterator[tuple[NDArray[np.int64], chain.Prepared]]:
        """Yield numbers in the bank and preprocessed rows of a part, block by block, without the supports."""
        begin, end = int(self.features.starts[part]), int(self.features.starts[part + 1])
        for at in range(begin, end, _BLOCK):
            rows = self.features[at : min(at + _BLOCK, end)]
            done = chain.run(rows, self.steps, first=at)
            numbers = np.arange(at, at + len(rows))
            free = ~np.isin(numbers, self.supports)
            yield numbers[free], chain.Prepared(done.x[free], (), done.zero_rows)


def prepare_pool(features: PartedFeatures, labels: NDArray[np.int64], spelled: str, work: WorkFolder) -> PartedPool:
    """Sort the rows of a bank into a pool.

    Parameters
    ----------
    features : PartedFeatures
        Of the bank.
    labels : array of shape (n,)
        Classes 0 .. way-1, and -1 for the rows to be labelled.
    spelled : str
        The chain: row-wise steps, then at most Mc or Mn, then E.
    work : WorkFolder
        Where to put it.
    """
    row_wise, task_wise = chain.split(chain.parse(spelled))
    centring = chain.centring(task_wise)
    if centring is None or centring.apart:
        raise InputError(f"the chain {spelled} needs all rows of a pool at once; a pool in parts takes PEMcE or PEMnE.")
    numbers = np.flatnonzero(labels >= 0)
    queries = len(labels) - len(numbers)
    if not len(numbers) or not queries:
        raise InputError("a pool needs labelled rows and rows to label.")
    store = "float32" if features.index.store == "float32" else "float16"
    must_fit(work.path, 2 * len(labels) * features.shape[1] * np.dtype(store).itemsize)
    source = RowSource(features, row_wise, numbers)
    wanted = landmarks_wanted(len(numbers), queries, most_landmarks(int(labels.max()) + 1))
    sampled = _sampled(np.flatnonzero(labels < 0), wanted)
    parts = range(len(features.index.parts))
    kept = "float16" if wanted is None else "float32"
    jobs = [SumJob(source, part, _between(sampled, *features.starts[part : part + 2]), kept) for part in parts]
    found = work.map(summed, jobs, shown="reading")
    own = np.asarray(chain.run(features[numbers], row_wise).x)
    total = own.sum(axis=0, dtype=np.float64) + np.sum([one.total for one in found], axis=0)
    shift = centre_of(own, labels[numbers], total / len(labels), centring)
    finish = Finish(shift.astype(np.float32), centring.normalise)
    sample, zero_rows = np.concatenate([one.sample for one in found]), sum(one.zero_rows for one in found)
    del found
    sample = finish(sample.astype(np.float32, copy=False))
    cells = find_cells(sample, cells_wanted(wanted or queries), 1 if wanted is None else SMALL_CELLS)
    del sample
    with room_is_said(work.path):
        write_cells(work.path / CELLS, cells)
    sorting = [SortJob(source, part, finish, str(work.path), store) for part in parts]
    counts = np.array(work.map(sorted_by_cell, sorting, shown="sorting into cells"), np.int32)  # [parts, S]
    rows = SortedRows(counts, None if wanted is None else landmark_places(counts.sum(axis=0, dtype=np.int64), wanted))
    cell_starts = rows.cell_starts(cells.small_starts)
    layout = _layout(str(work.path), len(numbers), cell_starts)
    first = np.array(layout.starts[1:]) - len(numbers)  # query of each part
    gathering = [
        GatherJob(str(work.path), number, rows.taken(first[number - 1], first[number]), features.shape[1], store)
        for number in range(1, len(first))
    ]
    work.map(gathered, gathering, shown="gathering cells")
    work.remove([work.path / f"{kind}-{part}" for part in parts for kind in ("sorted", "cells", "order")])
    with room_is_said(work.path):
        finish(own).astype(np.float32).tofile(work.path / "rows-0")
        numbers.tofile(work.path / "numbers-0")
    files = PoolFiles(layout, features.shape[1], store)
    return PartedPool(files, labels[numbers], spelled, cells, cell_starts, zero_rows)


def _sampled(queries: NDArray[np.int64], landmarks: int | None) -> NDArray[np.int64]:
    """Return those of the queries' numbers in the bank that cells are found from."""
    if landmarks is None:
        return np.asarray(queries[queries % max(1, len(queries) // sample_wanted(len(queries))) == 0])
    return np.asarray(queries[sample_of(len(queries), landmarks)])


def centre_of(own: Floats, codes: NDArray[np.int64], mean: Floats, centring: chain.Centring) -> Floats:
    """Return what the chain subtracts: nothing, the mean of all rows, or the mean of the class means with it (Mc)."""
    if centring.centre:
        return mean
    if not centring.classes:
        return np.zeros_like(mean)
    of_supports, of_mean = chain.class_weights(codes, own)
    return np.asarray((of_supports @ own.astype(np.float64))[0] + of_mean[0, 0] * mean)


@dataclass(frozen=True)
class Finish:
    """The end of a chain: subtract the centre and take unit length."""

    centre: Floats  # [d]
    normalise: bool

    def __call__(self, rows: Floats) -> Floats:
        """Return rows [n, d] after it."""
        rows = rows - self.centre
        return np.asarray(chain.run(rows, chain.parse("E")).x) if self.normalise else rows


@dataclass(frozen=True)
class SumJob:
    """A part to be checked and summed."""

    source: RowSource
    part: int
    sampled: NDArray[np.int64]  # numbers of the rows of the sample
    store: str  # type of the sample


@dataclass(frozen=True)
class PartSums:
    """Sum and sample of the preprocessed rows of a part."""

    total: NDArray[np.float64]  # [d]
    sample: Floats  # [m, d]
    zero_rows: int


def summed(job: SumJob) -> PartSums:
    """Check a part against its digest and sum its rows."""
    features = job.source.features
    verify(features.folder, features.index.parts[job.part])
    total, sample, zero_rows = np.zeros(features.shape[1]), [], 0
    for numbers, done in job.source.blocks(job.part):
        total += done.x.sum(axis=0, dtype=np.float64)
        sample.append(done.x[np.isin(numbers, job.sampled)].astype(job.store))
        zero_rows += done.zero_rows
    return PartSums(total, np.concatenate(sample), zero_rows)


@dataclass(frozen=True)
class SortJob:
    """A part to be preprocessed and sorted by cell."""

    source: RowSource
    part: int
    finish: Finish
    folder: str
    store: str


def sorted_by_cell(job: SortJob) -> NDArray[np.int64]:
    """Write the rows of a part sorted by small cell, with cells and numbers in the bank; return the sizes of cells."""
    where = read_cells(Path(job.folder) / CELLS)
    features, cells, numbers = job.source.features, [], []
    kept = np.empty((features.index.parts[job.part].rows, features.shape[1]), dtype=job.store)
    done = 0
    for numbers_of, prepared in job.source.blocks(job.part):
        finished = job.finish(prepared.x)
        kept[done : done + len(finished)] = finished
        done += len(finished)
        cells.append(where.small_of(finished))
        numbers.append(numbers_of)
    cell = np.concatenate(cells)
    order = np.argsort(cell, kind="stable")
    folder = Path(job.folder)
    with room_is_said(folder):
        with (folder / f"sorted-{job.part}").open("wb") as file:
            for at in range(0, len(order), _BLOCK):
                kept[order[at : at + _BLOCK]].tofile(file)
        cell[order].tofile(folder / f"cells-{job.part}")
        np.concatenate(numbers)[order].tofile(folder / f"order-{job.part}")
    return np.bincount(cell, minlength=len(where.small))


@dataclass(frozen=True)
class GatherJob:
    """A part of the pool: some rows from all parts of the bank."""

    folder: str
    part: int
    taken: dict[int, RowsTaken]  # by part of the bank
    width: int
    store: str


def gathered(job: GatherJob) -> None:
    """Write the rows of some cells, small cell by small cell, in the order of the bank."""
    folder = Path(job.folder)

    def read(kind: str, width: int, dtype: Any) -> Floats:
        found = [taken.read(folder / f"{kind}-{part}", width, dtype) for part, taken in job.taken.items()]
        return np.concatenate(found)

    order = np.argsort(read("cells", 1, np.int32)[:, 0], kind="stable")
    numbers, rows = read("order", 1, np.int64)[:, 0], read("sorted", job.width, job.store)
    with room_is_said(folder):
        numbers[order].tofile(folder / f"numbers-{job.part}")
        with (folder / f"rows-{job.part}").open("wb") as file:
            for at in range(0, len(order), _BLOCK):
                rows[order[at : at + _BLOCK]].tofile(file)


def _between(numbers: NDArray[np.int64], begin: int, end: int) -> NDArray[np.int64]:
    """Return those of some ascending numbers that lie in a range."""
    return numbers[slice(*np.searchsorted(numbers, [begin, end]))]


def _layout(folder: str, supports: int, cell_starts: NDArray[np.int64]) -> RowLayout:
    """Divide queries into parts: landmarks into whole cells, other rows evenly."""
    cells = len(cell_starts) // 2
    landmarks, queries = int(cell_starts[cells]), int(cell_starts[-1])
    cuts = np.unique(np.searchsorted(cell_starts[: cells + 1], np.linspace(0, landmarks, _parts_of(landmarks) + 1)))
    bounds = np.unique(cell_starts[cuts])
    sizes = tuple(int(size) for size in np.diff(bounds))
    if landmarks == queries:
        return RowLayout(folder, supports, sizes)
    wanted = _parts_of(queries - landmarks)
    others = np.diff(np.linspace(landmarks, queries, wanted + 1).astype(np.int64))
    return RowLayout(folder, supports, (*sizes, *(int(size) for size in others)), len(sizes) + 1)


def _parts_of(rows: int) -> int:
    parts = max(1, round(rows / min(max(rows / PARTS, PART_ROWS[0]), PART_ROWS[1])))
    return parts if parts < _ALIKE else round(parts / _ALIKE) * _ALIKE
