"""Nearest rows in a pool in parts, found by cells.

A row is compared with the landmarks of the cells nearest to it and with all supports; supports are compared with all
landmarks. In a small pool every row is a landmark (`sinkshot.kernels.landmarks`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.kernels.landmarks import LandmarkLinks
from sinkshot.kernels.nearest_rows import Lists, keep_nearest, no_rows, unit_rows
from sinkshot.parted.array import new_array
from sinkshot.parted.cell_files import read_cells
from sinkshot.parted.graph import LinkJob, PartedGraph, Piece, linked, pieces_of, scaled, write_edges, write_one_way
from sinkshot.parted.pool import CELLS, PartedPool, PoolFiles
from sinkshot.parted.work_folder import RowLayout, WorkFolder, room_is_said

Floats = NDArray[Any]
CELLS_SEARCHED = 32  # nearest cells of each row whose rows are compared: 99.7 % of the neighbours, see docs/scale.md
CELLS_OF_OTHERS = 12  # the same of rows that are no landmarks, which are read by none: 99.0 %
CELLS_NEAR = 128  # cells near a cell, among which its rows choose those
LEAST = "least-cosines"  # file of the cosine of each landmark's last neighbour
LISTED_OF_SUPPORTS = 32  # nearest queries of each support that are kept
_BLOCK = 2_048  # rows compared at once


@dataclass(frozen=True)
class NearestOfSupports:
    """Nearest queries of each support, the nearest first."""

    cosines: Floats  # [l, k]
    numbers: NDArray[np.int32]  # [l, k], rows of the layout


def neighbour_graph(
    pool: PartedPool, work: WorkFolder, count: int, sharpness: float
) -> tuple[PartedGraph, NearestOfSupports]:
    """Find the nearest rows of all rows and link them: weight max(cosine, 0)^sharpness, the mean of both directions."""
    layout = pool.layout
    every = range(len(layout.sizes) + 1)
    count = min(count, layout.landmarks - 1)
    root = new_array(work, layout, 1, of_queries=False)
    searching = {"count": count, "sharpness": sharpness}
    _write_near_cells(pool)
    pieces = [piece for part in layout.of_landmarks[1:] for piece in pieces_of(layout, part)]
    jobs = [SearchJob(pool.files, piece, searched=CELLS_SEARCHED, **searching) for piece in pieces]  # type: ignore[arg-type]
    found = work.map(searched, jobs, shown="finding neighbours")
    near, of_supports = _join_supports(pool, found, count, sharpness)
    found = [of_supports, *found]
    cuts = np.array([one.cuts for one in found])
    closeness = sum(one.closeness for one in found)
    if layout.landmark_parts is not None:
        with room_is_said(work.path):
            np.concatenate([one.least for one in found]).astype(np.float32).tofile(layout.path(LEAST))
        others = [
            OtherJob(pool.files, piece, searched=CELLS_OF_OTHERS, root=root.stored().path, **searching)  # type: ignore[arg-type]
            for part in every[layout.landmark_parts :]
            for piece in pieces_of(layout, part)
        ]
        closeness += sum(work.map(searched_by_others, others, shown="finding neighbours"))
    for function, parts in ((linked, layout.of_landmarks), (scaled, every)):
        linking = [LinkJob(layout, some, root.stored().path, cuts) for some in work.groups(layout, parts)]
        work.map(function, linking, shown="linking neighbours")
    pieces = [piece for part in every for piece in pieces_of(layout, part)]
    work.remove([piece.path(layout, name) for piece in pieces for name in ("edges", "links")])
    numbers = None if layout.landmark_parts is None else _numbers_in_task(pool.files)
    return PartedGraph(work, layout, root, np.array([closeness / (count * layout.rows)]), numbers), near


def _numbers_in_task(pool: PoolFiles) -> NDArray[np.int64]:
    """Return the numbers of supports and landmarks in the task as it is in memory: supports, then queries."""
    supports = pool.bank_numbers(0)
    queries = np.concatenate([pool.bank_numbers(part) for part in pool.layout.of_landmarks[1:]])
    before = np.searchsorted(supports, queries)  # supports that come before each query in the bank
    return np.concatenate([np.arange(len(supports)), len(supports) + queries - before])


@dataclass(frozen=True)
class SearchJob:
    """Rows that look for their neighbours."""

    pool: PoolFiles
    piece: Piece
    searched: int  # cells
    count: int
    sharpness: float


@dataclass(frozen=True)
class Searched:
    """What some landmarks found: those nearest to each support, the sum of its cosines, and its edges."""

    of_supports: Lists
    closeness: float
    least: Floats  # [n], cosine of each row's last neighbour
    cuts: NDArray[np.int64]  # [parts + 1], first edge that leads to each part


def searched(job: SearchJob) -> Searched:
    """Find the nearest landmarks of some landmarks, write their edges, and compare them with the supports."""
    pool, piece, where = job.pool, job.piece, _cell_table(job.pool.layout)
    first = pool.layout.starts[piece.part] + piece.begin
    rows, supports = unit_rows(pool.rows(piece.part, piece.begin, piece.end)), unit_rows(pool.rows(0))
    lists = no_rows(len(rows), job.count)
    of_supports = no_rows(len(supports), min(LISTED_OF_SUPPORTS, pool.layout.queries))
    for begin in range(0, len(rows), _BLOCK):
        some = np.arange(begin, min(begin + _BLOCK, len(rows)))
        near = supports @ rows[some].T
        keep_nearest(np.ascontiguousarray(near.T), some, first, 0, *lists)
        keep_nearest(near, np.arange(len(supports)), 0, first + begin, *of_supports)
    for number, others, some in _pairs(pool, rows, where, job):
        keep_nearest(rows[some] @ others.T, some, first, number, *lists)
    cuts = write_edges(pool.layout, piece, lists, job.sharpness)
    return Searched(of_supports, _sum(lists), lists[0][:, -1], cuts)


@dataclass(frozen=True)
class OtherJob(SearchJob):
    """Rows that are no landmarks."""

    root: Path  # file of D^1/2


def searched_by_others(job: OtherJob) -> float:
    """Find the landmarks that some other rows read, write their weights, and return the sum of cosines."""
    pool, piece, where = job.pool, job.piece, _cell_table(job.pool.layout)
    least = np.fromfile(pool.layout.path(LEAST), np.float32)
    rows, supports = unit_rows(pool.rows(piece.part, piece.begin, piece.end)), unit_rows(pool.rows(0))
    links = LandmarkLinks(len(rows), job.count)
    for begin in range(0, len(rows), _BLOCK):
        some = np.arange(begin, min(begin + _BLOCK, len(rows)))
        links.compare(rows[some] @ supports.T, some, 0, least[: len(supports)])
    for number, others, some in _pairs(pool, rows, where, job):
        links.compare(rows[some] @ others.T, some, number, least[number : number + len(others)])
    write_one_way(pool.layout, piece, links.weights(job.sharpness, pool.layout.landmarks), job.root)
    return links.closeness


def _sum(lists: Lists) -> float:
    return float(np.maximum(lists[0], 0).sum(dtype=np.float64))


def _pairs(
    pool: PoolFiles, rows: Floats, where: CellTable, job: SearchJob
) -> Iterator[tuple[int, Floats, NDArray[np.int64]]]:
    """Yield the landmarks of cells, with the number of the first, and rows to be compared with them."""
    first = pool.layout.starts[job.piece.part] + job.piece.begin - pool.layout.supports
    for cell, chosen_by in _chosen_cells(rows, where, first, job.searched):
        others = _rows_of_cell(pool, where, cell)
        for begin in range(0, len(chosen_by), _BLOCK):
            yield pool.layout.supports + int(where.starts[cell]), others, chosen_by[begin : begin + _BLOCK]


def _chosen_cells(rows: Floats, where: CellTable, first: int, searched: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield cells with the rows that choose them: each row chooses the nearest of those near its own."""
    cells, choosing = [], []
    numbered, end = len(where.directions), first + len(rows)
    for own in range(int(np.searchsorted(where.starts, first, side="right")) - 1, 2 * numbered):
        if where.starts[own] >= end:
            break
        some = np.arange(max(where.starts[own], first), min(where.starts[own + 1], end)) - first
        near = where.near[own % numbered]
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
    starts: NDArray[np.int64]  # [2 C + 1], first query of each cell among landmarks, then among other rows
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
    cosines, numbers = (np.concatenate(each, axis=1) for each in zip(*(one.of_supports for one in found), strict=True))
    order = np.lexsort((numbers, -cosines), axis=1)[:, :LISTED_OF_SUPPORTS]
    cosines, numbers = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(numbers, order, axis=1)
    rows = unit_rows(pool.files.rows(0))
    lists = no_rows(len(rows), count)
    keep_nearest(rows @ rows.T, np.arange(len(rows)), 0, 0, *lists)
    for row in range(len(rows)):
        for cosine, number in zip(cosines[row], numbers[row], strict=True):
            own = (part[row : row + 1] for part in lists)
            keep_nearest(np.array([[cosine]], np.float32), np.zeros(1, np.int64), row, int(number), *own)
    cuts = write_edges(pool.layout, pieces_of(pool.layout, 0)[0], lists, sharpness)
    return NearestOfSupports(cosines, numbers), Searched((cosines, numbers), _sum(lists), lists[0][:, -1], cuts)
