"""Nearest rows in a pool in parts, found by cells, and the graph of them in parts.

The rows of a cell are compared with those of the cells nearest to it and with all supports; supports are compared with
all rows. Each part then holds the rows of the symmetric graph that are its own: a sparse matrix with columns for all
rows. Averages over neighbours read the values of all rows from one file.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.kernels.nearest_rows import Lists, keep_nearest, no_rows, unit_rows
from sinkshot.parted.array import PartedArray, Stored, new_array, read_rows, write_rows
from sinkshot.parted.pool import Pool
from sinkshot.parted.work_folder import Layout, WorkFolder, room_is_said

Floats = NDArray[Any]
CELLS_SEARCHED = 48  # nearest cells whose rows are compared; see docs/scale.md for what is found
LISTED_OF_SUPPORTS = 32  # nearest queries of each support that are kept
_CELLS_KEPT = 160  # rows of so many cells are kept in memory by a worker


@dataclass(frozen=True)
class NearestOfSupports:
    """Nearest queries of each support, the nearest first."""

    cosines: Floats  # [l, k]
    numbers: NDArray[np.int32]  # [l, k], rows of the layout


@dataclass(frozen=True)
class PartedGraph:
    """The graph of a pool in parts, as `sinkshot.methods._graph.Graph` describes one."""

    work: WorkFolder
    layout: Layout
    root_degree: PartedArray  # D^1/2, [1, 1, N]
    closeness: Floats  # [1]

    def smooth(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly."""
        own = values.kept()
        mixed = own
        for _ in range(times):
            target = new_array(self.work, self.layout, own.shape[-2], of_queries=False)
            jobs = [SmoothJob(self.layout, parts, _stored(own), _stored(mixed), _stored(target).path, spread)
                    for parts in self.work.groups(own.parts())]  # fmt: skip
            self.work.map(smoothed_part, jobs)
            mixed = target
        return mixed

    def average(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        return self.smooth(values * self.root_degree, spread, times) / self.root_degree  # type: ignore[no-any-return]


def _stored(array: PartedArray) -> Stored:
    assert isinstance(array.expression, Stored)
    return array.expression


@dataclass(frozen=True)
class SmoothJob:
    """Parts whose values are mixed with those of neighbours once."""

    layout: Layout
    parts: tuple[int, ...]
    own: Stored
    mixed: Stored
    target: Path
    spread: float


def smoothed_part(job: SmoothJob) -> None:
    """Mix the values of parts with those of their neighbours."""
    width, starts = job.own.width, job.layout.starts
    everywhere = np.memmap(job.mixed.path, np.float32, "r", shape=(job.layout.rows, width))
    for part in job.parts:
        graph = read_graph(job.layout, part)
        own = read_rows(job.own.path, width, starts[part], starts[part + 1])
        write_rows(job.target, (1.0 - job.spread) * own + job.spread * (graph @ everywhere), starts[part])


def neighbour_graph(pool: Pool, work: WorkFolder, count: int, sharpness: float) -> tuple[PartedGraph, NearestOfSupports]:
    """Find the nearest rows of all rows and link them: weight max(cosine, 0)^sharpness, the mean of both directions."""
    layout = pool.layout
    parts = range(1, len(layout.sizes) + 1)
    near_cells = pool.cells.nearest(CELLS_SEARCHED)
    count = min(count, layout.rows - 1)
    jobs = [SearchJob(pool, part, near_cells, count, sharpness) for part in parts]
    found = work.map(searched, jobs, shown="finding neighbours")
    near, of_supports = _join_supports(pool, found, count, sharpness)
    found = [of_supports, *found]
    root = new_array(work, layout, 1, of_queries=False)
    cuts = np.array([one.cuts for one in found])  # [parts, parts + 1]
    jobs_of_links = [
        LinkJob(layout, parts, _stored(root).path, cuts) for parts in work.groups(range(len(layout.sizes) + 1))
    ]
    work.map(linked, jobs_of_links)
    work.map(scaled, jobs_of_links)
    for part in range(len(layout.sizes) + 1):
        for name in ("edges", "links"):
            layout.path(f"{name}-{part}").unlink(missing_ok=True)
    closest = np.array([sum(one.closeness for one in found) / (count * layout.rows)])
    return PartedGraph(work, layout, root, closest), near


@dataclass(frozen=True)
class SearchJob:
    """A part whose rows look for their neighbours."""

    pool: Pool
    part: int
    near_cells: NDArray[np.int32]  # [C, searched]
    count: int
    sharpness: float


@dataclass(frozen=True)
class Searched:
    """What a part found: its rows that are nearest to each support, the sum of its cosines, and its edges."""

    of_supports: Lists
    closeness: float
    cuts: NDArray[np.int64]  # [parts + 1], first edge that leads to each part


def searched(job: SearchJob) -> Searched:
    """Find the nearest rows of a part's rows, write its edges, and compare its rows with the supports."""
    pool, starts = job.pool, job.pool.layout.starts
    first = starts[job.part]
    cells = _CellRows(pool)
    begin, end = first - pool.layout.supports, starts[job.part + 1] - pool.layout.supports
    own_cells = range(*np.searchsorted(pool.cell_starts, [begin, end]))
    supports = unit_rows(pool.supports)
    lists = no_rows(end - begin, job.count)
    of_supports = no_rows(len(supports), min(LISTED_OF_SUPPORTS, pool.layout.queries))
    for cell in own_cells:
        rows, at = cells[cell], int(pool.cell_starts[cell]) - begin
        if not len(rows):
            continue
        own = tuple(part[at : at + len(rows)] for part in lists)
        near = supports @ rows.T
        keep_nearest(np.ascontiguousarray(near.T), 0, -1, *own)
        keep_nearest(near, first + at, -1, *of_supports)
        for other in job.near_cells[cell]:
            others = cells[int(other)]
            number = pool.layout.supports + int(pool.cell_starts[other])
            keep_nearest(rows @ others.T, number, first + at if other == cell else -1, *own)
    cuts = write_edges(pool.layout, job.part, lists, job.sharpness)
    return Searched(of_supports, float(np.maximum(lists[0], 0).sum(dtype=np.float64)), cuts)


class _CellRows:
    """Rows of cells, the last few kept."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.starts = np.array(pool.layout.starts[1:]) - pool.layout.supports  # of the parts, among the queries
        self.kept: OrderedDict[int, Floats] = OrderedDict()

    def __getitem__(self, cell: int) -> Floats:
        if cell in self.kept:
            self.kept.move_to_end(cell)
            return self.kept[cell]
        begin, end = self.pool.cell_starts[cell : cell + 2]
        part = int(np.searchsorted(self.starts, begin, side="right"))
        rows = np.empty((0, self.pool.width), np.float32)
        if end > begin:
            at = int(self.starts[part - 1])
            rows = unit_rows(self.pool.rows(part, int(begin) - at, int(end) - at))
        self.kept[cell] = rows
        if len(self.kept) > _CELLS_KEPT:
            self.kept.popitem(last=False)
        return rows


def _join_supports(
    pool: Pool, found: list[Searched], count: int, sharpness: float
) -> tuple[NearestOfSupports, Searched]:
    """Join what all parts found for the supports, and write the edges of these."""
    cosines = np.concatenate([one.of_supports[0] for one in found], axis=1)
    numbers = np.concatenate([one.of_supports[1] for one in found], axis=1)
    order = np.lexsort((numbers, -cosines), axis=1)[:, :LISTED_OF_SUPPORTS]
    cosines, numbers = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(numbers, order, axis=1)
    rows = unit_rows(pool.supports)
    lists = no_rows(len(rows), count)
    keep_nearest(rows @ rows.T, 0, 0, *lists)
    for row in range(len(rows)):
        for cosine, number in zip(cosines[row], numbers[row], strict=True):
            own = (part[row : row + 1] for part in lists)
            keep_nearest(np.array([[cosine]], np.float32), int(number), -1, *own)
    cuts = write_edges(pool.layout, 0, lists, sharpness)
    closeness = float(np.maximum(lists[0], 0).sum(dtype=np.float64))
    return NearestOfSupports(cosines, numbers), Searched((cosines, numbers), closeness, cuts)


EDGE = np.dtype([("to", np.int32), ("row", np.int32), ("weight", np.float32)])


def write_edges(layout: Layout, part: int, lists: Lists, sharpness: float) -> NDArray[np.int64]:
    """Write the links of a part with half their weights, sorted by the row that they lead to; return the cuts."""
    cosines, numbers = lists
    there = (cosines > 0).ravel()
    rows = np.repeat(np.arange(*layout.starts[part : part + 2], dtype=np.int32), cosines.shape[1])
    edges = np.empty(int(there.sum()), EDGE)
    edges["to"], edges["row"] = numbers.ravel()[there], rows[there]
    edges["weight"] = 0.5 * cosines.ravel()[there] ** sharpness
    edges = edges[np.argsort(edges["to"], kind="stable")]
    with room_is_said(Path(layout.folder)):
        edges.tofile(layout.path(f"edges-{part}"))
    return np.searchsorted(edges["to"], layout.starts)


@dataclass(frozen=True)
class LinkJob:
    """Parts whose rows of the graph are to be made."""

    layout: Layout
    parts: tuple[int, ...]
    root: Path  # file of D^1/2
    cuts: NDArray[np.int64]  # [parts, parts + 1], edges of each part that lead to each part


def linked(job: LinkJob) -> None:
    """Join the links from a part's rows with those to them, and write the roots of their degrees."""
    layout, every = job.layout, range(len(job.layout.sizes) + 1)
    for part in job.parts:
        begin, end = layout.starts[part : part + 2]
        own = _edges(layout, part, 0, int(job.cuts[part, -1]))
        to_it = np.concatenate([_edges(layout, other, *job.cuts[other, part : part + 2]) for other in every])
        rows = np.concatenate([own["row"], to_it["to"]]) - begin
        columns, weights = np.concatenate([own["to"], to_it["row"]]), np.concatenate([own["weight"], to_it["weight"]])
        graph = sparse.coo_array((weights, (rows, columns)), (end - begin, layout.rows)).tocsr()
        graph.sort_indices()
        degree = graph.sum(axis=1)
        alone = np.flatnonzero(degree <= 0)  # rows without neighbours keep themselves
        if len(alone):
            keeps = sparse.coo_array((np.ones(len(alone), np.float32), (alone, alone + begin)), graph.shape)
            graph = sparse.csr_array(graph + keeps)
        _write_graph(layout, part, graph, "links")
        write_rows(job.root, np.sqrt(np.where(degree > 0, degree, 1))[:, None], begin)


def _edges(layout: Layout, part: int, begin: int, end: int) -> Floats:
    return np.fromfile(layout.path(f"edges-{part}"), EDGE, int(end - begin), offset=int(begin) * EDGE.itemsize)


def scaled(job: LinkJob) -> None:
    """Divide the weights of parts by the roots of both degrees."""
    layout = job.layout
    root = np.memmap(job.root, np.float32, "r", shape=(layout.rows,))
    for part in job.parts:
        begin, end = layout.starts[part : part + 2]
        graph = read_graph(layout, part, "links")
        own = np.repeat(root[begin:end], np.diff(graph.indptr))
        graph.data /= own * root[graph.indices]
        _write_graph(layout, part, graph, "graph")


def _write_graph(layout: Layout, part: int, graph: sparse.csr_array, name: str) -> None:
    arrays = {"data": graph.data.astype(np.float32), "indices": graph.indices.astype(np.int32), "indptr": graph.indptr}
    with room_is_said(Path(layout.folder)), layout.path(f"{name}-{part}").open("wb") as file:
        np.savez(file, **arrays)


def read_graph(layout: Layout, part: int, name: str = "graph") -> sparse.csr_array:
    """Read the rows of the graph that a part holds, [n, N]."""
    with np.load(layout.path(f"{name}-{part}"), allow_pickle=False) as found:
        data, indices, indptr = found["data"], found["indices"], found["indptr"]
    return sparse.csr_array((data, indices, indptr), (len(indptr) - 1, layout.rows))
