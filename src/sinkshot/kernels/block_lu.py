"""LU factorisation in blocks of eight, without pivoting, for diagonally dominant systems.

A = L U, where the diagonal blocks of L are identities. Of the diagonal blocks of U, the inverses are stored. Matrices
are [N8, N8 or more], right-hand sides [N8, c8]; a register holds eight columns of one row. The functions are parts of
compiled engines.
"""

from sinkshot.kernels.simd import ONE, Floats, each, load, part, store, zeros


@part
def _invert(matrix: Floats, b: int, unit: Floats, inverse: Floats) -> None:
    """inverse[b:b+8] = matrix[b:b+8, b:b+8]^-1, by Gauss-Jordan elimination; unit is the [8, 8] identity."""
    for i in range(8):
        store(inverse, b + i, 0, load(matrix, b + i, b))
    for p in range(8):
        pivot, axis = inverse[b + p, p], load(unit, p, 0)
        scaled = (load(inverse, b + p, 0) + axis * (ONE - pivot)) * (ONE / pivot)
        for i in range(8):
            times = each(inverse, b + i, p)
            if i != p:
                store(inverse, b + i, 0, (load(inverse, b + i, 0) - times * axis) - times * scaled)
        store(inverse, b + p, 0, scaled)


@part
def _reduce(x: Floats, i: int, j: int, matrix: Floats, first: int, last: int) -> None:
    """x[i:i+8, j:j+8] -= matrix[i:i+8, first:last] @ x[first:last, j:j+8], in eight registers."""
    s0, s1, s2, s3 = load(x, i, j), load(x, i + 1, j), load(x, i + 2, j), load(x, i + 3, j)
    s4, s5, s6, s7 = load(x, i + 4, j), load(x, i + 5, j), load(x, i + 6, j), load(x, i + 7, j)
    for r in range(first, last):
        v = load(x, r, j)
        s0, s1 = s0 - each(matrix, i, r) * v, s1 - each(matrix, i + 1, r) * v
        s2, s3 = s2 - each(matrix, i + 2, r) * v, s3 - each(matrix, i + 3, r) * v
        s4, s5 = s4 - each(matrix, i + 4, r) * v, s5 - each(matrix, i + 5, r) * v
        s6, s7 = s6 - each(matrix, i + 6, r) * v, s7 - each(matrix, i + 7, r) * v
    for r, s in ((0, s0), (1, s1), (2, s2), (3, s3), (4, s4), (5, s5), (6, s6), (7, s7)):
        store(x, i + r, j, s)


@part
def factor(matrix: Floats, unit: Floats, inverse: Floats) -> None:
    """Replace a matrix by its factors: L below the diagonal blocks, U above, their inverses in inverse [N8, 8]."""
    n8 = len(matrix)
    for b in range(0, n8, 8):
        for j in range(b, n8, 8):
            _reduce(matrix, b, j, matrix, 0, b)
        _invert(matrix, b, unit, inverse)
        for i in range(b + 8, n8, 8):
            _reduce(matrix, i, b, matrix, 0, b)
        for i in range(b + 8, n8):
            multipliers = zeros()
            for r in range(8):
                multipliers += each(matrix, i, b + r) * load(inverse, b + r, 0)
            store(matrix, i, b, multipliers)


@part
def _collect(matrix: Floats, b: int, first: int, last: int, rhs: Floats) -> None:
    """rhs[b:b+8] -= matrix[b:b+8, first:last] @ rhs[first:last]."""
    for k in range(0, rhs.shape[1], 8):
        _reduce(rhs, b, k, matrix, first, last)


@part
def _hand_out(matrix: Floats, b: int, first: int, last: int, rhs: Floats) -> None:
    """rhs[first:last] -= matrix[b:b+8, first:last].T @ rhs[b:b+8]."""
    for k in range(0, rhs.shape[1], 8):
        v0, v1, v2, v3 = load(rhs, b, k), load(rhs, b + 1, k), load(rhs, b + 2, k), load(rhs, b + 3, k)
        v4, v5, v6, v7 = load(rhs, b + 4, k), load(rhs, b + 5, k), load(rhs, b + 6, k), load(rhs, b + 7, k)
        for j in range(first, last):
            s = each(matrix, b, j) * v0 + each(matrix, b + 1, j) * v1
            s = s + each(matrix, b + 2, j) * v2 + each(matrix, b + 3, j) * v3
            s = s + each(matrix, b + 4, j) * v4 + each(matrix, b + 5, j) * v5
            s = s + each(matrix, b + 6, j) * v6 + each(matrix, b + 7, j) * v7
            store(rhs, j, k, load(rhs, j, k) - s)


@part
def _by_block(inverse: Floats, b: int, across: int, rhs: Floats, held: Floats) -> None:
    """rhs[b:b+8] = block @ rhs[b:b+8] or, if across is one, block.T @ rhs[b:b+8]; held is [8, c8]."""
    for k in range(0, rhs.shape[1], 8):
        for i in range(8):
            s = zeros()
            for r in range(8):
                s += (each(inverse, b + r, i) if across else each(inverse, b + i, r)) * load(rhs, b + r, k)
            store(held, i, k, s)
        for i in range(8):
            store(rhs, b + i, k, load(held, i, k))


@part
def solve(matrix: Floats, inverse: Floats, first: int, rhs: Floats, held: Floats) -> None:
    """Solve A X = rhs in place, given A's factors; rows of rhs before the first are zero. held is [8, c8]."""
    n8, begin = len(matrix), first // 8 * 8
    for b in range(begin + 8, n8, 8):
        _collect(matrix, b, begin, b, rhs)
    for b in range(n8 - 8, -1, -8):
        _collect(matrix, b, b + 8, n8, rhs)
        _by_block(inverse, b, 0, rhs, held)


@part
def solve_across(matrix: Floats, inverse: Floats, rhs: Floats, held: Floats) -> None:
    """Solve A^T X = rhs in place, given A's factors; held is [8, c8]."""
    n8 = len(matrix)
    for b in range(0, n8, 8):
        _by_block(inverse, b, 1, rhs, held)
        _hand_out(matrix, b, b + 8, n8, rhs)
    for b in range(n8 - 8, 0, -8):
        _hand_out(matrix, b, 0, b, rhs)
