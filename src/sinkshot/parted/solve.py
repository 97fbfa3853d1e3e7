"""Run a method on a pool in parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.arrays import one_hot
from sinkshot.errors import InputError
from sinkshot.methods import Method
from sinkshot.methods.algebra import PreparedTask, Rows
from sinkshot.parted.array import Expression, PartedArray, Stored, new_array
from sinkshot.parted.graph import PartedGraph
from sinkshot.parted.neighbours import NearestOfSupports, neighbour_graph
from sinkshot.parted.pool import PartedPool, PoolFiles
from sinkshot.parted.work_folder import WorkFolder
from sinkshot.task import Scores

Floats = NDArray[Any]
METHODS = ("sinkshot", "bms", "bms-star", "ncm")
"""Methods that are tested on pools in parts. Others that are written in `Rows` may run, too."""


def solve(
    pool: PartedPool, method: Method, hyper: dict[str, Any], work: WorkFolder
) -> tuple[Scores, NearestOfSupports | None]:
    """Run a method; probabilities [1, q, way] and unknown [1, q] are arrays in parts.

    Returns also the nearest queries of each support, where the method needed them.
    """
    if method.name not in METHODS:
        raise InputError(f"{method.name} does not run on a pool in parts; use one of {', '.join(METHODS)}.")
    if method.fused == "bms" and hyper.get("epochs") == "auto":
        hyper = {**hyper, "epochs": 0}  # steps of regression would each read all rows twice
    found: list[NearestOfSupports] = []

    def graph(neighbours: int, sharpness: float) -> PartedGraph:
        made, near = neighbour_graph(pool, work, neighbours, sharpness)
        found.append(near)
        return made

    way = int(pool.codes.max()) + 1
    squares = squares_of(pool.files, work)
    member = one_hot(pool.codes[None], way, np.ones(1, np.float32))
    rows = Rows(
        partial(product, pool.files, work), squares[..., 0, :], member, pool.layout.supports, pool.layout.queries
    )
    scores = method.function(PreparedTask(rows, way, graph), **hyper)
    return scores, found[0] if found else None


@dataclass(frozen=True)
class ProductJob:
    """Parts to be multiplied with coefficients or weights."""

    pool: PoolFiles
    parts: tuple[int, ...]
    coefficients: Expression | None = None  # a, to be summed to a X
    weights: Floats | None = None  # [way, d], whose scores are written to `target`
    target: Stored | None = None


def product(pool: PoolFiles, work: WorkFolder, a: PartedArray) -> PartedArray:
    """Return a X X^T of coefficients [1, way, N]: two passes, one for the weights a X and one for their scores."""
    every = work.groups(pool.layout, range(len(pool.layout.sizes) + 1))
    jobs = [ProductJob(pool, parts, coefficients=a.expression) for parts in every]
    sums = work.map(weighted, jobs, size=pool.nbytes)
    weights = np.sum([part for group in sums for part in group], axis=0)  # [way, d]
    target = new_array(work, pool.layout, len(weights), of_queries=False)
    single = weights.astype(np.float32)
    jobs = [ProductJob(pool, parts, weights=single, target=target.stored()) for parts in every]
    work.map(scored, jobs, size=pool.nbytes)
    return target


def weighted(job: ProductJob) -> list[NDArray[np.float64]]:
    """Return a X of each part, [way, d]."""
    assert job.coefficients is not None
    found = []
    for part in job.parts:
        a = job.coefficients.of_part(job.pool.layout, part)[0]  # [way, n]
        total = np.zeros((len(a), job.pool.width))
        for begin, rows in job.pool.blocks(part) if a.any() else ():  # those of queries may all be zero
            total += a[:, begin : begin + len(rows)] @ rows
        found.append(total)
    return found


def scored(job: ProductJob) -> None:
    """Write the scores of each part's rows."""
    assert job.weights is not None
    assert job.target is not None
    for part in job.parts:
        found = [rows @ job.weights.T for _, rows in job.pool.blocks(part)]
        job.target.write(job.pool.layout, part, np.concatenate(found).T)


def squares_of(pool: PoolFiles, work: WorkFolder) -> PartedArray:
    """Return the squared lengths of the rows, [1, 1, N]."""
    target = new_array(work, pool.layout, 1, of_queries=False)
    every = work.groups(pool.layout, range(len(pool.layout.sizes) + 1))
    work.map(squared, [ProductJob(pool, parts, target=target.stored()) for parts in every], size=pool.nbytes)
    return target


def squared(job: ProductJob) -> None:
    """Write the squared lengths of each part's rows."""
    assert job.target is not None
    for part in job.parts:
        found = [np.einsum("nd,nd->n", rows, rows) for _, rows in job.pool.blocks(part)]
        job.target.write(job.pool.layout, part, np.concatenate(found)[None])
