"""The graph of a pool in parts: who reads whose values, and averages over it.

Each part holds the rows of the graph that are its own: a sparse matrix with columns for all landmarks. Landmarks come
first in the pool. They read each other, by the mean of both directions; other rows read landmarks and are read by none
(`sinkshot.kernels.landmarks`). So repeated averages run over landmarks alone, and other rows take the last one, as part
of whatever pass needs their values.

Averages of one class do not need those of another. So repeated averages over landmarks are divided by classes, a few in
each job, and a job repeats them without waiting for others; so few values of all landmarks also fit into a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.kernels.landmarks import random_signs, share_returned, without_return
from sinkshot.kernels.nearest_rows import Lists
from sinkshot.parted.array import (
    Expression,
    PartedArray,
    Stored,
    StoreJob,
    new_stored,
    read_rows,
    store,
    write_rows,
)
from sinkshot.parted.work_folder import RowLayout, WorkFolder, removed_with, room_is_said

Floats = NDArray[Any]
PIECE_ROWS = 1_280, 16_384  # least and most rows that look for neighbours in one job, about
PIECES = 256  # number of jobs, as far as those bounds allow
CLASSES_AT_ONCE = 4  # whose values a job averages: so, one average over 20 classes takes two thirds of the time
_LINK_BYTES = 80  # of the graph for a row, about
_GRAPHS_KEPT = 16  # parts of landmarks whose links a process keeps, some 0.6 MB each


@dataclass(frozen=True)
class PartedGraph:
    """The graph of a pool in parts, as `sinkshot.methods._graph.Graph` describes one."""

    work: WorkFolder
    layout: RowLayout
    root_degree: PartedArray  # D^1/2, [1, 1, N]
    closeness: Floats  # [1]
    numbers: NDArray[np.int64] | None = None  # of the landmarks, in the task; None: all rows are landmarks
    _returned: dict[tuple[float, int], Stored] = field(default_factory=dict)

    def smooth(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly.

        Beside other rows, landmarks do without what comes back of their own values.
        """
        if times == 0:
            return values
        returned = None if self.numbers is None else self._share_returned(self.numbers, spread, times)
        return self._everywhere(values, spread, times, returned)

    def average(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        mixed: PartedArray = self._everywhere(values * self.root_degree, spread, times) / self.root_degree
        return mixed.kept()

    def _everywhere(
        self, values: PartedArray, spread: float, times: int, returned: Stored | None = None
    ) -> PartedArray:
        """Mix values of landmarks repeatedly, and those of other rows with them once."""
        before, mixed = self._repeatedly(self._of_landmarks(values), spread, times, returned)
        probe = np.ones((1, mixed.width, values.probe.shape[-1]), np.float32)
        everywhere = mixed if self.layout.landmark_parts is None else Mixed(values.expression, before, mixed, spread)
        return PartedArray(self.work, self.layout, everywhere, probe, of_queries=False)

    def _repeatedly(
        self, own: Stored, spread: float, times: int, returned: Stored | None
    ) -> tuple[StoredByClass, StoredByClass]:
        """Mix values of landmarks; return them before and after the last time, then without what came back."""
        before, mixed = (new_by_class(self.work, self.layout.landmarks, own.width) for _ in range(2))
        jobs = [SmoothJob(self.layout, some, own, spread, times, returned, before, mixed) for some in mixed.classes]
        read = self.layout.landmarks * (8 * own.width + _LINK_BYTES * len(jobs)) * times
        self.work.map(smoothed_classes, jobs, size=read)
        return before, mixed

    def _share_returned(self, numbers: NDArray[np.int64], spread: float, times: int) -> Stored:
        """Return which share of its own value comes back to each landmark."""
        if (spread, times) not in self._returned:
            signs = random_signs(numbers)
            drawn = new_stored(self.work, len(signs), signs.shape[1], by_row=True)
            write_rows(drawn.path, signs, 0)
            _, mixed = self._repeatedly(drawn, spread, times, None)
            found = new_stored(self.work, len(signs), 1, by_row=True)
            every = np.concatenate(mixed.mapped(len(signs)), axis=1)
            write_rows(found.path, share_returned(every, signs, spread), 0)
            self._returned[spread, times] = found
        return self._returned[spread, times]

    def _of_landmarks(self, values: PartedArray) -> Stored:
        """Return the values of the landmarks in a file, row by row."""
        if self.layout.landmark_parts is None:
            return values.stored(by_row=True)
        target = new_stored(self.work, self.layout.landmarks, values.probe.shape[-2], by_row=True)
        parts = self.work.groups(self.layout, range(self.layout.landmark_parts))
        jobs = [StoreJob(values.expression, self.layout, some, target) for some in parts]
        self.work.map(store, jobs, size=values.read_size() * self.layout.landmarks // self.layout.rows)
        return target


@dataclass(eq=False)
class StoredByClass(Expression):
    """Values of landmarks in a file, float32: a few classes after the other, each few row by row."""

    path: Path
    width: int

    @property
    def classes(self) -> list[tuple[int, int]]:
        """Bounds of each few classes."""
        return [(first, min(first + CLASSES_AT_ONCE, self.width)) for first in range(0, self.width, CLASSES_AT_ONCE)]

    def mapped(self, landmarks: int) -> list[Floats]:
        """Map the values [landmarks, k] of each few classes, as they are in the file; no map outlives its use."""
        whole = np.asarray(np.memmap(self.path, np.float32, "r"))
        return [whole[first * landmarks : last * landmarks].reshape(landmarks, -1) for first, last in self.classes]

    def write(self, classes: tuple[int, int], values: Floats) -> None:
        """Write the values [landmarks, k] of a few classes."""
        write_rows(self.path, values.reshape(-1, 1), classes[0] * len(values))

    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Read the values of a part of landmarks."""
        begin, end = layout.starts[part : part + 2]
        return np.concatenate([some[begin:end] for some in self.mapped(layout.landmarks)], axis=1).T[None]

    def files(self) -> set[Any]:
        """Return the file itself."""
        return {self}


def new_by_class(work: WorkFolder, landmarks: int, width: int) -> StoredByClass:
    """Make a file for the values of landmarks; it is deleted when nothing refers to it."""
    made = StoredByClass(work.new_file(4 * width * landmarks), width)
    removed_with(made, made.path)
    return made


@dataclass(eq=False)
class Mixed(Expression):
    """Values mixed with those of neighbours: of landmarks known, of other rows from what landmarks had before."""

    own: Expression
    before: StoredByClass  # values of landmarks before the last average
    landmarks: StoredByClass  # and after it
    spread: float

    def computed(self, layout: RowLayout, part: int, memo: dict[int, Floats]) -> Floats:
        """Read the values of landmarks, or mix those of a part."""
        assert layout.landmark_parts is not None
        if part < layout.landmark_parts:
            return self.landmarks.block(layout, part, memo)
        graph = read_graph(layout, part)
        average = np.concatenate([graph @ some for some in self.before.mapped(layout.landmarks)], axis=1).T  # [way, n]
        own = np.broadcast_to(self.own.block(layout, part, memo)[0], average.shape)
        mixed = (1.0 - self.spread) * own + self.spread * average
        alone = np.diff(graph.indptr) == 0
        mixed[:, alone] = own[:, alone]
        return np.asarray(mixed, dtype=np.float32)[None]

    def files(self) -> set[Any]:
        """Return the files of the rows' own values and that of the landmarks."""
        return {*self.own.files(), self.landmarks}


@dataclass(frozen=True)
class SmoothJob:
    """A few classes whose values at landmarks are mixed with those of neighbours, repeatedly."""

    layout: RowLayout
    classes: tuple[int, int]
    own: Stored  # by row
    spread: float
    times: int
    returned: Stored | None  # share of its own value that comes back to each row, to be taken out
    before: StoredByClass  # to be written: values before the last time ...
    target: StoredByClass  # ... and after it


def smoothed_classes(job: SmoothJob) -> None:
    """Mix the values of landmarks with those of their neighbours."""
    landmarks = job.layout.landmarks
    everything = np.memmap(job.own.path, np.float32, "r", shape=(landmarks, job.own.width))
    own = np.ascontiguousarray(everything[:, slice(*job.classes)])
    graphs = [read_graph(job.layout, part) for part in job.layout.of_landmarks]
    before = mixed = own
    for _ in range(job.times):
        before, mixed = mixed, np.concatenate([graph @ mixed for graph in graphs])
        mixed *= np.float32(job.spread)
        mixed += (1.0 - job.spread) * own
    if job.returned is not None:
        mixed = without_return(mixed, own, read_rows(job.returned.path, 1, 0, landmarks), job.spread)
    job.before.write(job.classes, before)
    job.target.write(job.classes, mixed)


EDGE = np.dtype([("to", np.int32), ("row", np.int32), ("weight", np.float32)])


@dataclass(frozen=True)
class Piece:
    """Rows of a part that look for their neighbours in one job."""

    part: int
    begin: int  # in the part
    end: int

    def path(self, layout: RowLayout, kind: str) -> Path:
        """Return the path of its edges or links."""
        return layout.path(f"{kind}-{self.part}-{self.begin}")


def pieces_of(layout: RowLayout, part: int) -> list[Piece]:
    """Cut a part for the search, into more pieces where a pool is small: parts are large, to make passes quick."""
    first, last = layout.starts[part : part + 2]
    of_kind = layout.landmarks if first < layout.landmarks else layout.rows - layout.landmarks
    wanted = min(max(of_kind / PIECES, PIECE_ROWS[0]), PIECE_ROWS[1])
    count = 1 if part == 0 else max(1, round((last - first) / wanted))
    cuts = [(last - first) * i // count for i in range(count + 1)]
    return [Piece(part, begin, end) for begin, end in pairwise(cuts)]


def write_edges(layout: RowLayout, piece: Piece, lists: Lists, sharpness: float) -> NDArray[np.int64]:
    """Write the links of some landmarks with half their weights, sorted by the row that they lead to.

    Returns the first of them that leads to each part.
    """
    cosines, numbers = lists
    there = (cosines > 0).ravel()
    first = layout.starts[piece.part]
    rows = np.repeat(np.arange(first + piece.begin, first + piece.end, dtype=np.int32), cosines.shape[1])
    edges = np.empty(int(there.sum()), EDGE)
    edges["to"], edges["row"] = numbers.ravel()[there], rows[there]
    edges["weight"] = 0.5 * cosines.ravel()[there] ** sharpness
    edges = edges[np.argsort(edges["to"], kind="stable")]
    with room_is_said(Path(layout.folder)):
        edges.tofile(piece.path(layout, "edges"))
    return np.searchsorted(edges["to"], layout.starts)


def write_one_way(layout: RowLayout, piece: Piece, weights: sparse.csr_array, root: Path) -> None:
    """Write the weights with which some other rows read landmarks, and the roots of their degrees."""
    degree = weights.sum(axis=1)
    _write_graph(piece.path(layout, "links"), weights)
    write_rows(root, np.sqrt(np.where(degree > 0, degree, 1))[:, None], layout.starts[piece.part] + piece.begin)


@dataclass(frozen=True)
class LinkJob:
    """Parts whose rows of the graph are to be made; of landmarks, where they are linked."""

    layout: RowLayout
    parts: tuple[int, ...]
    root: Path  # file of D^1/2
    cuts: NDArray[np.int64]  # [pieces of landmarks, parts + 1], edges of each piece that lead to each part


def linked(job: LinkJob) -> None:
    """Join the links from a part's rows with those to them, and write the roots of their degrees."""
    layout = job.layout
    every = [piece for part in layout.of_landmarks for piece in pieces_of(layout, part)]
    for part in job.parts:
        begin, end = layout.starts[part : part + 2]
        own = np.concatenate([_edges(layout, piece) for piece in every if piece.part == part])
        pairs = zip(every, job.cuts, strict=True)
        to_it = np.concatenate([_edges(layout, other, *cuts[part : part + 2]) for other, cuts in pairs])
        rows = np.concatenate([own["row"], to_it["to"]]) - begin
        columns, weights = np.concatenate([own["to"], to_it["row"]]), np.concatenate([own["weight"], to_it["weight"]])
        graph = sparse.coo_array((weights, (rows, columns)), (end - begin, layout.landmarks)).tocsr()
        graph.sort_indices()
        degree = graph.sum(axis=1)
        alone = np.flatnonzero(degree <= 0)  # rows without neighbours keep themselves
        if len(alone):
            keeps = sparse.coo_array((np.ones(len(alone), np.float32), (alone, alone + begin)), graph.shape)
            graph = sparse.csr_array(graph + keeps)
        _write_graph(Piece(part, 0, end - begin).path(layout, "links"), graph)
        write_rows(job.root, np.sqrt(np.where(degree > 0, degree, 1))[:, None], begin)


def _edges(layout: RowLayout, piece: Piece, begin: int = 0, end: int | None = None) -> Floats:
    count = -1 if end is None else int(end - begin)
    return np.fromfile(piece.path(layout, "edges"), EDGE, count, offset=int(begin) * EDGE.itemsize)


def scaled(job: LinkJob) -> None:
    """Divide the weights of parts by the roots of both degrees."""
    layout = job.layout
    root = np.memmap(job.root, np.float32, "r", shape=(layout.rows,))
    for part in job.parts:
        begin, end = layout.starts[part : part + 2]
        pieces = [Piece(part, 0, end - begin)] if begin < layout.landmarks else pieces_of(layout, part)
        links = [_read_graph(piece.path(layout, "links"), layout.landmarks) for piece in pieces]
        graph = sparse.csr_array(links[0] if len(links) == 1 else sparse.vstack(links, format="csr"))
        own = np.repeat(root[begin:end], np.diff(graph.indptr))
        graph.data /= own * root[graph.indices]
        _write_graph(layout.path(f"graph-{part}"), graph)


def _write_graph(path: Path, graph: sparse.csr_array) -> None:
    """Write the number of rows, then int32: where each begins, columns; then the weights in float32."""
    size = np.array([graph.shape[0]], np.int32)
    with room_is_said(path.parent), path.open("wb") as file:
        for content in (size, graph.indptr.astype(np.int32), graph.indices.astype(np.int32)):
            content.tofile(file)
        graph.data.astype(np.float32).tofile(file)


def read_graph(layout: RowLayout, part: int) -> sparse.csr_array:
    """Read the rows of the graph that a part holds, [n, landmarks]; those of landmarks are kept in memory."""
    path = layout.path(f"graph-{part}")
    if part in layout.of_landmarks:
        return _graph_at(path, path.stat().st_mtime_ns, layout.landmarks)
    return _read_graph(path, layout.landmarks)


def _read_graph(path: Path, landmarks: int) -> sparse.csr_array:
    with room_is_said(path.parent):
        found = np.fromfile(path, np.int32)
    rows = int(found[0])
    indptr, rest = found[1 : rows + 2], found[rows + 2 :]
    indices, data = rest[: indptr[-1]], rest[indptr[-1] :].view(np.float32)
    return sparse.csr_array((data, indices, indptr), (rows, landmarks))


@lru_cache(maxsize=_GRAPHS_KEPT)
def _graph_at(path: Path, _written: int, landmarks: int) -> sparse.csr_array:
    return _read_graph(path, landmarks)
