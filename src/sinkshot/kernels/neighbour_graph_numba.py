"""The graph of nearest neighbours of an episode's rows, compiled: `methods._graph` with lists instead of a matrix."""

from typing import NamedTuple

import numpy as np

from sinkshot.kernels.simd import ONE, ZERO, Floats, Ints, each, load, part, store, where_larger, zeros

_NOWHERE = np.float32(-2)  # below every cosine
LEAST, LENGTH, ROOT, MIXED = 0, 1, 2, 3  # rows of `Links.rows`; MIXED is the first of two


class Links(NamedTuple):
    """The neighbours of each row of an episode, and what they are found on."""

    degree: Ints  # [n] neighbours of each row
    other: Ints  # [n, n] which rows they are
    weight: Floats  # [n, n] of each, S
    rows: Floats  # [5, n8 + 8] the least cosine that counts; 1 / length; D^1/2; values between two averages
    cosine: Floats  # [n, n8 + 8] column i: of row i with all rows
    nearest: Floats  # [neighbours, 8] largest cosines of eight rows
    values: Floats  # [3 * n, way8] of each row by class, as given, and between two averages


def links(n: int, way: int, neighbours: int) -> Links:
    """Allocate for episodes of n rows."""
    n8, way8 = -(-n // 8) * 8, -(-way // 8) * 8
    shapes = ((n, n), (5, n8 + 8), (n, n8 + 8), (max(1, min(neighbours, n - 1)), 8), (3 * n, way8))
    return Links(np.zeros(n, np.int32), np.zeros((n, n), np.int32), *(np.zeros(shape, np.float32) for shape in shapes))


@part
def _cosines(panels: Floats, n: int, graph: Links) -> None:
    """Cosines of all rows, each row's own below every other."""
    depth = len(panels) // ((n + 15) // 16)
    for i in range(n):
        square = panels[i // 16 * depth + i, i % 16]
        graph.rows[LENGTH, i] = ONE / np.sqrt(square) if square > ZERO else ONE
    for i in range(0, n, 8):
        length = load(graph.rows, LENGTH, i)
        for k in range(n):
            store(graph.cosine, k, i, load(panels, i // 16 * depth + k, i % 16) * (length * graph.rows[LENGTH, k]))
    for i in range(n):
        graph.cosine[i, i] = _NOWHERE


@part
def _least(n: int, graph: Links) -> None:
    """The cosine of each row's last neighbour: eight rows at a time insert theirs into sorted lists."""
    nearest = graph.nearest
    last = len(nearest) - 1
    for i in range(0, n, 8):
        for t in range(last + 1):
            store(nearest, t, 0, _NOWHERE)
        for k in range(n):
            x = load(graph.cosine, k, i)
            for t in range(last + 1):
                best = load(nearest, t, 0)
                store(nearest, t, 0, where_larger(x, best, x, best))
                x = where_larger(x, best, best, x)
        store(graph.rows, LEAST, i, load(nearest, last, 0))


@part
def link(panels: Floats, n: int, sharpness: float, graph: Links) -> np.float32:
    """Link each row with its nearest others and those that chose it; a row without any keeps itself.

    Return the mean cosine of rows and the neighbours they chose; one below zero counts as zero.

    A is the sum of both directions here, twice that of the readable code: S and averages are the same.
    """
    count, other, weight, rows, cosine = graph.degree, graph.other, graph.weight, graph.rows, graph.cosine
    near = ZERO
    _cosines(panels, n, graph)
    _least(n, graph)
    for i in range(n):
        count[i] = 0
        rows[ROOT, i] = ZERO
        for j in range(i):
            w = ZERO
            if cosine[j, i] >= rows[LEAST, i] and cosine[j, i] > ZERO:
                w += cosine[j, i] ** sharpness
                near += cosine[j, i]
            if cosine[i, j] >= rows[LEAST, j] and cosine[i, j] > ZERO:
                w += cosine[i, j] ** sharpness
                near += cosine[i, j]
            if w > ZERO:
                for a, b in ((i, j), (j, i)):
                    other[a, count[a]], weight[a, count[a]] = b, w
                    count[a] += 1
                    rows[ROOT, a] += w
    for i in range(n):
        rows[ROOT, i] = np.sqrt(rows[ROOT, i])
        if count[i] == 0:
            count[i], other[i, 0], weight[i, 0], rows[ROOT, i] = 1, i, ONE, ONE
    for i in range(n):
        for e in range(count[i]):
            weight[i, e] /= rows[ROOT, i] * rows[ROOT, other[i, e]]
    return np.float32(near / np.float32(n * len(graph.nearest)))


@part
def smooth(values: Floats, wanted: int, spread: float, times: int, graph: Links) -> None:
    """Mix class values [way, n] with neighbours', as `Graph.smooth`; the first `wanted` rows are given back."""
    way, n, by_row = len(values), len(graph.degree), graph.values
    for j in range(way):
        for i in range(n):
            by_row[i, j] = values[j, i]
    source = 0
    for t in range(times):
        target = n if t % 2 == 0 else 2 * n
        for i in range(n if t < times - 1 else wanted):
            for c in range(0, way, 8):
                s = zeros()
                for e in range(graph.degree[i]):
                    s += load(by_row, source + graph.other[i, e], c) * each(graph.weight, i, e)
                store(by_row, target + i, c, load(by_row, i, c) * (ONE - spread) + s * spread)
        source = target
    for i in range(wanted):
        for j in range(way):
            values[j, i] = by_row[source + i, j]


@part
def average(values: Floats, at: int, spread: float, times: int, graph: Links) -> None:
    """Mix one value of each row, values[at], with neighbours', as `Graph.average`."""
    rows, n = graph.rows, len(graph.degree)
    for i in range(n):
        values[at, i] *= rows[ROOT, i]
        rows[MIXED, i] = values[at, i]
    source = MIXED
    for t in range(times):
        target = MIXED + 1 if t % 2 == 0 else MIXED
        for i in range(n):
            s = ZERO
            for e in range(graph.degree[i]):
                s += graph.weight[i, e] * rows[source, graph.other[i, e]]
            rows[target, i] = (ONE - spread) * values[at, i] + spread * s
        source = target
    for i in range(n):
        values[at, i] = rows[source, i] / rows[ROOT, i]
