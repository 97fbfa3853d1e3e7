"""Nearest rows in a pool in parts, found by cells, and the graph of them in parts.

The rows of a cell are compared with those of the cells nearest to it and with all supports; supports are compared with
all rows. Each part then holds the rows of the symmetric graph that are its own: a sparse matrix with columns for all
rows. Averages over neighbours read the values of all rows from one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sinkshot.kernels.nearest_rows import Lists, keep_nearest, no_rows, unit_rows
from sinkshot.parted.array import PartedArray, Stored, new_array, read_rows, write_rows
from sinkshot.parted.cells import read_cells
from sinkshot.parted.pool import CELLS, PartedPool, PoolFiles
from sinkshot.parted.work_folder import RowLayout, WorkFolder, room_is_said

Floats = NDArray[Any]
CELLS_SEARCHED = 32  # nearest cells of each row whose rows are compared: 99.8 % of the neighbours, see docs/scale.md
CELLS_NEAR = 128  # cells near a cell, among which its rows choose those
LISTED_OF_SUPPORTS = 32  # nearest queries of each support that are kept
_LINK_BYTES = 80  # of the graph for a row, about
_BLOCK = 2_048  # rows compared at once


@dataclass(frozen=True)
class NearestOfSupports:
    """Nearest queries of each support, the nearest first."""

    cosines: Floats  # [l, k]
    numbers: NDArray[np.int32]  # [l, k], rows of the layout


@dataclass(frozen=True)
class PartedGraph:
    """The graph of a pool in parts, as `sinkshot.methods._graph.Graph` describes one."""

    work: WorkFolder
    layout: RowLayout
    root_degree: PartedArray  # D^1/2, [1, 1, N]
    closeness: Floats  # [1]

    def smooth(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, way, N] with neighbours' values: v <- (1 - spread) values + spread v S, repeatedly."""
        own = values.kept()
        mixed = own
        for _ in range(times):
            target = new_array(self.work, self.layout, own.shape[-2], of_queries=False)
            jobs = [SmoothJob(self.layout, parts, own.stored(), mixed.stored(), target.stored().path, spread)
                    for parts in self.work.groups(own.parts())]  # fmt: skip
            read = self.layout.rows * (8 * own.shape[-2] + _LINK_BYTES)
            self.work.map(smoothed_part, jobs, size=read)
            mixed = target
        return mixed

    def average(self, values: PartedArray, spread: float, times: int) -> PartedArray:
        """Mix values [1, 1, N] with the weighted mean of neighbours' values, by D^-1 A: a constant stays one."""
        return self.smooth(values * self.root_degree, spread, times) / self.root_degree  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SmoothJob:
    """Parts whose values are mixed with those of neighbours once."""

    layout: RowLayout
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


def neighbour_graph(
    pool: PartedPool, work: WorkFolder, count: int, sharpness: float
) -> tuple[PartedGraph, NearestOfSupports]:
    """Find the nearest rows of all rows and link them: weight max(cosine, 0)^sharpness, the mean of both directions."""
    layout = pool.layout
    parts = range(1, len(layout.sizes) + 1)
    count = min(count, layout.rows - 1)
    searching = {"count": count, "sharpness": sharpness, "searched": CELLS_SEARCHED}
    _write_near_cells(pool)
    jobs = [SearchJob(pool.files, part, **searching) for part in parts]  # type: ignore[arg-type]
    found = work.map(searched, jobs, shown="finding neighbours")
    near, of_supports = _join_supports(pool, found, count, sharpness)
    found = [of_supports, *found]
    root = new_array(work, layout, 1, of_queries=False)
    cuts = np.array([one.cuts for one in found])  # [parts, parts + 1]
    jobs_of_links = [
        LinkJob(layout, parts, root.stored().path, cuts) for parts in work.groups(range(len(layout.sizes) + 1))
    ]
    work.map(linked, jobs_of_links, shown="linking neighbours")
    work.map(scaled, jobs_of_links, shown="linking neighbours")
    for part in range(len(layout.sizes) + 1):
        for name in ("edges", "links"):
            layout.path(f"{name}-{part}").unlink(missing_ok=True)
    closest = np.array([sum(one.closeness for one in found) / (count * layout.rows)])
    return PartedGraph(work, layout, root, closest), near


@dataclass(frozen=True)
class SearchJob:
    """A part whose rows look for their neighbours."""

    pool: PoolFiles
    part: int
    count: int
    sharpness: float
    searched: int  # cells


@dataclass(frozen=True)
class Searched:
    """What a part found: its rows that are nearest to each support, the sum of its cosines, and its edges."""

    of_supports: Lists
    closeness: float
    cuts: NDArray[np.int64]  # [parts + 1], first edge that leads to each part


def searched(job: SearchJob) -> Searched:
    """Find the nearest rows of a part's rows, write its edges, and compare its rows with the supports."""
    pool, where = job.pool, _cell_table(job.pool.layout)
    first = pool.layout.starts[job.part]
    rows, supports = unit_rows(pool.rows(job.part)), unit_rows(pool.rows(0))
    lists = no_rows(len(rows), job.count)
    of_supports = no_rows(len(supports), min(LISTED_OF_SUPPORTS, pool.layout.queries))
    for begin in range(0, len(rows), _BLOCK):
        some = np.arange(begin, min(begin + _BLOCK, len(rows)))
        near = supports @ rows[some].T
        keep_nearest(np.ascontiguousarray(near.T), some, first, 0, *lists)
        keep_nearest(near, np.arange(len(supports)), 0, first + begin, *of_supports)
    for cell, chosen_by in _chosen_cells(rows, where, first - pool.layout.supports, job.searched):
        others = _rows_of_cell(pool, where, cell)
        number = pool.layout.supports + int(where.starts[cell])
        for begin in range(0, len(chosen_by), _BLOCK):
            some = chosen_by[begin : begin + _BLOCK]
            keep_nearest(rows[some] @ others.T, some, first, number, *lists)
    cuts = write_edges(pool.layout, job.part, lists, job.sharpness)
    return Searched(of_supports, float(np.maximum(lists[0], 0).sum(dtype=np.float64)), cuts)


def _chosen_cells(rows: Floats, where: CellTable, first: int, searched: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield cells with the rows of a part that choose them: each row chooses the nearest of those near its own."""
    begin, end = np.searchsorted(where.starts, [first, first + len(rows)])
    cells, choosing = [], []
    for cell in range(int(begin), int(end)):
        some = np.arange(where.starts[cell], where.starts[cell + 1]) - first
        near = where.near[cell]
        count = min(searched, len(near))
        nearest = np.argpartition(-(rows[some] @ where.directions[near].T), count - 1, axis=1)[:, :count]
        cells.append(near[nearest].ravel())
        choosing.append(np.repeat(some, count))
    chosen, numbers = np.concatenate(cells), np.concatenate(choosing)
    order = np.argsort(chosen, kind="stable")
    chosen, numbers = chosen[order], numbers[order]
    found, starts = np.unique(chosen, return_index=True)
    for cell, (at, until) in zip(found, pairwise([*starts, len(chosen)]), strict=True):
        if where.starts[cell + 1] > where.starts[cell]:
            yield int(cell), numbers[at:until]


def _rows_of_cell(pool: PoolFiles, where: CellTable, cell: int) -> Floats:
    """Read the rows of a cell, of unit length."""
    starts = np.array(pool.layout.starts[1:]) - pool.layout.supports  # of the parts, among the queries
    begin, end = int(where.starts[cell]), int(where.starts[cell + 1])
    part = int(np.searchsorted(starts, begin, side="right"))
    at = int(starts[part - 1])
    return unit_rows(pool.rows(part, begin - at, end - at))


@dataclass(frozen=True)
class CellTable:
    """Directions of all cells, where their queries begin, and which cells are near."""

    directions: Floats  # [C, d]
    starts: NDArray[np.int64]  # [C + 1], first query of each cell
    near: NDArray[np.int32]  # [C, near], itself first


def _write_near_cells(pool: PartedPool) -> None:
    path = pool.layout.path("near-cells")
    with room_is_said(path.parent), path.open("wb") as file:
        np.savez(file, starts=pool.cell_starts, near=pool.cells.nearest(CELLS_NEAR))


def _cell_table(layout: RowLayout) -> CellTable:
    with np.load(layout.path("near-cells"), allow_pickle=False) as found:
        return CellTable(read_cells(layout.path(CELLS)).fine, found["starts"], found["near"])


def _join_supports(
    pool: PartedPool, found: list[Searched], count: int, sharpness: float
) -> tuple[NearestOfSupports, Searched]:
    """Join what all parts found for the supports, and write the edges of these."""
    cosines = np.concatenate([one.of_supports[0] for one in found], axis=1)
    numbers = np.concatenate([one.of_supports[1] for one in found], axis=1)
    order = np.lexsort((numbers, -cosines), axis=1)[:, :LISTED_OF_SUPPORTS]
    cosines, numbers = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(numbers, order, axis=1)
    rows = unit_rows(pool.files.rows(0))
    lists = no_rows(len(rows), count)
    keep_nearest(rows @ rows.T, np.arange(len(rows)), 0, 0, *lists)
    for row in range(len(rows)):
        for cosine, number in zip(cosines[row], numbers[row], strict=True):
            own = (part[row : row + 1] for part in lists)
            keep_nearest(np.array([[cosine]], np.float32), np.zeros(1, np.int64), row, int(number), *own)
    cuts = write_edges(pool.layout, 0, lists, sharpness)
    closeness = float(np.maximum(lists[0], 0).sum(dtype=np.float64))
    return NearestOfSupports(cosines, numbers), Searched((cosines, numbers), closeness, cuts)


EDGE = np.dtype([("to", np.int32), ("row", np.int32), ("weight", np.float32)])


def write_edges(layout: RowLayout, part: int, lists: Lists, sharpness: float) -> NDArray[np.int64]:
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

    layout: RowLayout
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


def _edges(layout: RowLayout, part: int, begin: int, end: int) -> Floats:
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


def _write_graph(layout: RowLayout, part: int, graph: sparse.csr_array, name: str) -> None:
    arrays = {"data": graph.data.astype(np.float32), "indices": graph.indices.astype(np.int32), "indptr": graph.indptr}
    with room_is_said(Path(layout.folder)), layout.path(f"{name}-{part}").open("wb") as file:
        np.savez(file, **arrays)


def read_graph(layout: RowLayout, part: int, name: str = "graph") -> sparse.csr_array:
    """Read the rows of the graph that a part holds, [n, N]."""
    with np.load(layout.path(f"{name}-{part}"), allow_pickle=False) as found:
        data, indices, indptr = found["data"], found["indices"], found["indptr"]
    return sparse.csr_array((data, indices, indptr), (len(indptr) - 1, layout.rows))
