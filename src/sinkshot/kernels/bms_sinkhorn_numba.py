"""Algorithm 1 of BMS on one episode, compiled: Sinkhorn with a minimum class size, or with a target for each class.

Functions are parts of the kernel in `kernels.bms_numba`. Kernels K are [way, rows], eight rows in a register; values
per row and per class are in two small arrays, indexed by the names below.
"""

import numpy as np

from sinkshot.kernels.simd import (
    INFINITE,
    LOG2_E,
    ONE,
    TINY,
    ZERO,
    Floats,
    each,
    exp2,
    load,
    part,
    store,
    total,
    where_larger,
    zeros,
)

INSIDE, U, MASS, ARGMAX = range(4)  # takes part in Sinkhorn; u; row sum and argmax of P
V, SUM, SHOT, TARGET, COUNT, WB, BB = range(7)  # v; K^T u; shots; BMS* column sum; argmax counts; w . b; b . b


@part
def softmax_numerators(scores: Floats, i: int, scale: float, out: Floats) -> None:
    """out = exp(scale (S - rowmax)) for the eight rows from i."""
    top = load(scores, 0, i)
    for j in range(1, len(scores)):
        s = load(scores, j, i)
        top = where_larger(s, top, s, top)
    for j in range(len(scores)):
        store(out, j, i, exp2((load(scores, j, i) - top) * (scale * LOG2_E)))


@part
def _sweep_five(kernel: Floats, m: int, rows: Floats, classes: Floats) -> None:
    """The sweep below for five classes, as most tasks have: K is read once and the sums stay in registers."""
    v0, v1, v2 = each(classes, V, 0), each(classes, V, 1), each(classes, V, 2)
    v3, v4 = each(classes, V, 3), each(classes, V, 4)
    c0 = c1 = c2 = c3 = c4 = zeros()
    for i in range(0, m, 8):
        k0, k1, k2 = load(kernel, 0, i), load(kernel, 1, i), load(kernel, 2, i)
        k3, k4 = load(kernel, 3, i), load(kernel, 4, i)
        u = load(rows, INSIDE, i) / ((k0 * v0 + k1 * v1) + (k2 * v2 + k3 * v3 + k4 * v4))
        store(rows, U, i, u)
        c0, c1, c2, c3, c4 = c0 + k0 * u, c1 + k1 * u, c2 + k2 * u, c3 + k3 * u, c4 + k4 * u
    for j, c in ((0, c0), (1, c1), (2, c2), (3, c3), (4, c4)):
        classes[SUM, j] = max(total(c), TINY)


@part
def _sweep(kernel: Floats, m: int, rows: Floats, classes: Floats) -> None:
    """Row step u = 1 / (K v), with u = 0 for excluded rows, and the sums K^T u for the column step."""
    way = len(kernel)
    if way == 5:
        _sweep_five(kernel, m, rows, classes)
        return
    for i in range(0, m, 8):
        s = load(kernel, 0, i) * each(classes, V, 0)
        for j in range(1, way):
            s += load(kernel, j, i) * each(classes, V, j)
        store(rows, U, i, load(rows, INSIDE, i) / s)
    for j in range(way):
        s = zeros()
        for i in range(0, m, 8):
            s += load(kernel, j, i) * load(rows, U, i)
        classes[SUM, j] = max(total(s), TINY)


@part
def min_size_sinkhorn(kernel: Floats, min_size: float, passes: int, m: int, rows: Floats, classes: Floats) -> None:
    """Algorithm 1: scale rows to one, then columns below min_size up to it, until a pass scales no column."""
    for j in range(len(kernel)):
        classes[V, j] = ONE
    for _ in range(passes):
        _sweep(kernel, m, rows, classes)
        lifted, largest = False, ONE
        for j in range(len(kernel)):
            if classes[V, j] * classes[SUM, j] < min_size:
                classes[V, j] = min_size / classes[SUM, j]
                lifted = True
            largest = max(largest, classes[V, j])
        if not lifted:
            break
        if largest > np.float32(1e15):  # an unreachable min size lets v grow without bound: move the factor to u
            for j in range(len(kernel)):
                classes[V, j] /= largest
            for i in range(0, m, 8):
                store(rows, U, i, load(rows, U, i) * largest)


@part
def balanced_sinkhorn(kernel: Floats, passes: int, m: int, rows: Floats, classes: Floats) -> None:
    """BMS*: scale every column to its target, then rows to one."""
    for j in range(len(kernel)):
        classes[V, j] = ONE
    _sweep(kernel, m, rows, classes)
    for _ in range(passes):
        for j in range(len(kernel)):
            classes[V, j] = classes[TARGET, j] / classes[SUM, j]
        _sweep(kernel, m, rows, classes)


@part
def smallest_class(kernel: Floats, m: int, rows: Floats, classes: Floats) -> np.float32:
    """The size of the smallest class: rows in Sinkhorn by the argmax of P, added to classes[COUNT]."""
    for i in range(0, m, 8):
        best, which = load(kernel, 0, i) * each(classes, V, 0), zeros()
        for j in range(1, len(kernel)):
            s = load(kernel, j, i) * each(classes, V, j)
            which = where_larger(s, best, np.float32(j), which)
            best = where_larger(s, best, s, best)
        store(rows, ARGMAX, i, which)
    smallest, later = INFINITE, ZERO
    for j in range(len(kernel) - 1, -1, -1):
        s = zeros()
        for i in range(0, m, 8):
            s += where_larger(load(rows, ARGMAX, i), np.float32(j - 0.5), load(rows, INSIDE, i), ZERO)
        these_and_later = total(s)
        smallest = min(smallest, classes[COUNT, j] + these_and_later - later)
        later = these_and_later
    return smallest


@part
def assign(kernel: Floats, m: int, rows: Floats, classes: Floats, assignment: Floats) -> None:
    """P = diag(u) K diag(v), and its row sums."""
    for i in range(0, m, 8):
        u, mass = load(rows, U, i), zeros()
        for j in range(len(kernel)):
            p = load(kernel, j, i) * each(classes, V, j) * u
            store(assignment, j, i, p)
            mass += p
        store(rows, MASS, i, mass)
