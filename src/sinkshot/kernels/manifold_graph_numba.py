"""The graph of adaptive manifold in compiled code: distances, the neighbours of each row, edges, and their system.

Points of a graph are queries first, then supports, then centroids: n rows, N points with the centroids, N8 with
padding, which has no edges. N x N arrays are processed completely, eight columns at a time; only exponentials are
limited to neighbours. Functions are parts of the engine in `kernels.manifold_numba`.
"""

from typing import Any, NamedTuple

import numpy as np

from sinkshot.kernels.simd import (
    INFINITE,
    ONE,
    TWO,
    ZERO,
    Floats,
    Ints,
    exp2,
    load,
    part,
    root,
    store,
    total,
    where_larger,
    zeros,
)
from sinkshot.kernels.tiles_numba import products
from sinkshot.settings.constants import MANIFOLD_EPSILON

_EPSILON, _HALF, _LARGEST = np.float32(MANIFOLD_EPSILON), np.float32(0.5), np.finfo(np.float32).max
DEGREE, BY_DEGREE = 0, 1  # columns of `ManifoldGraph.of_row`


class Moving(NamedTuple):
    """An array under optimisation, with Adam's running means of gradients and of their squares."""

    at: Floats
    mean: Floats
    square: Floats


class Places(NamedTuple):
    """Rows and centroids in feature space."""

    x: Floats  # [N + 1, width16 or more] the centroids come last, then one of zeros
    first: Floats  # [way5, width16] initial centroids
    shift: Moving  # [way5, width16]
    slope: Floats  # [way5, width16] gradient sums over rows
    from_first: Floats  # [way5, pitch] squared distances from the start to the rows
    above: Floats  # [way5, pitch] distances from the centroids to everything
    pull: Floats  # [way5, pitch] gradient of the loss by them, divided by them


class ManifoldGraph(NamedTuple):
    """Neighbours and edges, and the system that propagation solves."""

    apart: Floats  # [n, pitch] distances, infinite where nothing may be chosen
    width: Moving  # [n, pitch]
    strength: Moving  # [N, pitch]
    neighbours: Ints  # [n, N] columns that a row has chosen
    counts: Ints  # [n] how many
    near: Floats  # [n, N8] width times distance of them, then exp(-that / scale)
    line: Floats  # [1, pitch] gradient of the loss by the widths of a row
    edges: Floats  # [N, pitch] before their strength
    system: Floats  # [N8, pitch] factorised in place; afterwards the gradient of the loss by edges
    inverse: Floats  # [N8, 8] of the factors' diagonal blocks
    unit: Floats  # [8, 8]
    held: Floats  # [8, way8] a block of a solution
    of_row: Floats  # [N8, 2] values per row, indexed by the names above
    arrived: Floats  # [N8, way8] propagated values, over the root of the degree
    across: Floats  # [way, pitch] the same by classes
    back: Floats  # [N8, way8] gradient by the values sent, times the root of the degree


def work(n: int, way: int, width: int) -> tuple[Places, ManifoldGraph]:
    """Allocate for episodes of n rows with `width` features."""

    def some(*shape: int) -> Floats:
        return np.zeros(shape, np.float32)

    def moving(*shape: int) -> Moving:
        return Moving(some(*shape), some(*shape), some(*shape))

    points, n8, way5, way8, width16 = (
        -(-number // multiple) * multiple
        for number, multiple in ((n + way, 1), (n + way, 8), (way, 5), (way, 8), (width, 16))
    )
    pitch, pitch_of_x = (16 * (-(-columns // 16) | 1) for columns in (n8, width))  # an odd number of cache lines
    places = Places(
        x=some(points + 1, pitch_of_x),
        first=some(way5, width16),
        shift=moving(way5, width16),
        slope=some(way5, width16),
        from_first=some(way5, pitch),
        above=some(way5, pitch),
        pull=some(way5, pitch),
    )
    graph = ManifoldGraph(
        apart=some(n, pitch),
        width=moving(n, pitch),
        strength=moving(points, pitch),
        neighbours=np.zeros((n, points), np.int32),
        counts=np.zeros(n, np.int32),
        near=some(n, n8),
        line=some(1, pitch),
        edges=some(points, pitch),
        system=some(n8, pitch),
        inverse=some(n8, 8),
        unit=np.eye(8, dtype=np.float32),
        held=some(8, way8),
        of_row=some(n8, 2),
        arrived=some(n8, way8),
        across=some(way, pitch),
        back=some(n8, way8),
    )
    return places, graph


@part
def _square(x: Floats, i: int, y: Floats, j: int, width: int) -> Any:
    """|x_i - y_j|^2, a float32."""
    square = zeros()
    for k in range(0, width, 8):
        difference = load(x, i, k) - load(y, j, k)
        square += difference * difference
    return total(square)


@part
def begin(n: int, way: int, spread: float, places: Places, graph: ManifoldGraph) -> tuple[float, float]:
    """Compute the fixed distances, their sum and the sum of their squares, and reset the optimised arrays."""
    places.shift.at[:], places.shift.mean[:], places.shift.square[:] = ZERO, ZERO, ZERO
    graph.width.at[:], graph.width.mean[:], graph.width.square[:] = ONE, ZERO, ZERO
    graph.strength.at[:], graph.strength.mean[:], graph.strength.square[:] = spread, ZERO, ZERO
    graph.counts[:] = 0
    x, first, width, sum_, squares = places.x, places.first, places.first.shape[1], 0.0, 0.0
    for i in range(n):
        graph.apart[i, i] = INFINITE
        graph.apart[i, n + way :] = INFINITE
        for j in range(i):
            square = _square(x, i, x, j, width)
            graph.apart[i, j] = graph.apart[j, i] = np.sqrt(square)
            sum_ += 2 * graph.apart[i, j]
            squares += 2 * square
        for k in range(way):
            places.from_first[k, i] = _square(x, i, first, k, width)
    for k in range(way):
        x[n + k, :width] = first[k]
    return sum_, squares


@part
def distances(
    n: int, way: int, places: Places, graph: ManifoldGraph, sum_: float, squares: float
) -> tuple[float, float]:
    """Distances from the centroids; mean and standard deviation of all."""
    x, first, shift, above = places.x, places.first, places.shift.at, places.above
    width = first.shape[1]
    products(x, shift, 0, n, above)
    for k in range(way):
        along, length = zeros(), zeros()
        for j in range(0, width, 8):
            s = load(shift, k, j)
            along += s * load(first, k, j)
            length += s * s
        own = TWO * total(along) + total(length)
        for i in range(0, n, 8):
            square = load(places.from_first, k, i) - load(above, k, i) * TWO + own
            store(above, k, i, root(where_larger(ZERO, square, ZERO, square)))
        above[k, n:] = ZERO
        for j in range(way):
            between = np.sqrt(_square(x, n + k, x, n + j, width))
            above[k, n + j] = between
            sum_ -= between
            squares -= between * between
        along, length = zeros(), zeros()
        for i in range(0, n + way, 8):
            distance = load(above, k, i)
            along += distance
            length += distance * distance
        sum_ += 2.0 * total(along)
        squares += 2.0 * total(length)
        for i in range(n):
            graph.apart[i, n + k] = above[k, i]
    pairs = float((n + way) ** 2)
    mean = sum_ / pairs
    scale = np.sqrt(max(squares - sum_ * mean, 0.0) / (pairs - 1))
    return mean, scale if scale != 0 else 1.0


@part
def _choose(i: int, k: int, points: int, width: Floats, apart: Floats, chosen: Ints, near: Floats, count: int) -> int:
    """Find the k nearest of row i, ties included, and width times distance of each; return their number.

    Candidates are all points not farther than the neighbours of the step before; the farthest ones are dropped.
    """
    last, within = -INFINITE if count else _LARGEST, zeros()
    for s in range(count):
        near[i, s] = width[i, chosen[i, s]] * apart[i, chosen[i, s]]
        last = max(last, near[i, s])
    for j in range(0, points, 8):
        within += where_larger(load(width, i, j) * load(apart, i, j), last, ZERO, ONE)
    if count == k and total(within) == k:
        return count
    count = 0
    for j in range(points):
        value = width[i, j] * apart[i, j]
        chosen[i, count], near[i, count] = j, value
        count += value <= last
    while count > k:
        last, ties, kept = -INFINITE, 0, 0
        for s in range(count):
            last = max(last, near[i, s])
        for s in range(count):
            ties += near[i, s] == last
        if count - ties < k:
            break
        for s in range(count):
            value = near[i, s]
            chosen[i, kept], near[i, kept] = chosen[i, s], value
            kept += value < last
        count = kept
    return count


@part
def connect(n: int, way: int, k: int, spread: float, scale: float, graph: ManifoldGraph) -> None:
    """Edges, and the system I - spread D^-1 V."""
    points, edges, system = n + way, graph.edges, graph.system
    edges[:] = ZERO
    for i in range(n):
        count = _choose(i, k, points, graph.width.at, graph.apart, graph.neighbours, graph.near, graph.counts[i])
        graph.counts[i] = count
        for s in range(0, count, 8):
            store(graph.near, i, s, exp2(load(graph.near, i, s) * np.float32(-np.log2(np.e) / scale)))
        for s in range(count):
            j, half = graph.neighbours[i, s], graph.near[i, s] * _HALF
            edges[i, j] += half
            edges[j, i] += half
    for i in range(points):
        degree = zeros()
        for j in range(0, points, 8):
            strong = load(graph.strength.at, i, j) * load(edges, i, j)
            degree += strong
            store(system, i, j, strong)
        graph.of_row[i, DEGREE] = total(degree) + _EPSILON
        share = -spread / graph.of_row[i, DEGREE]
        for j in range(0, points, 8):
            store(system, i, j, load(system, i, j) * share)
        system[i, i] = ONE
    for i in range(points, len(system)):
        system[i, :] = ZERO
        system[i, i] = ONE
