# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The graph of adaptive manifold on the GPU: its large arrays [R, N, N] are each read once per step where possible.

Products are summed in float64, which costs GPUs of the data centre little: what is left of the slopes after their terms
cancel decides which way Adam goes. In torch a step passes over arrays of all pairs some sixty times; these kernels do
it thirty times, with nothing else between. `choose` finds the neighbours of some rows, `link` makes the graph
symmetric, `correct` brings the solutions of both systems of equations up to date, `send` has the loss between them,
`move` takes Adam's step of all edges.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sinkshot.kernels.gram_triton import Tensor
from sinkshot.kernels.tim_triton import MOST_ROWS, MOST_WAYS, adam_moved, query_sums, shares, slope_by_logits
from sinkshot.settings.constants import MANIFOLD_EPSILON
from sinkshot.settings.tim import TIMSettings

SOME = 4  # rows of an episode in a program: few, so that a multiprocessor holds several
_TALL = 64  # likewise, where tensor cores multiply
_WAYS, _COLUMNS = tl.constexpr(MOST_WAYS), tl.constexpr(32)
_EPSILON = tl.constexpr(MANIFOLD_EPSILON)
_LOG2_E = tl.constexpr(1.4426950408889634)
_INFINITE, _INFINITE_64 = tl.constexpr(0x7F800000), tl.constexpr(0x7FF0000000000000)  # the bits of infinity


def fits(way: int, rows: int) -> bool:
    """Whether an episode of this size fits into one program."""
    return way < MOST_WAYS and way + rows <= MOST_ROWS


def _grid(like: Tensor, some: int = SOME) -> tuple[tuple[int, int], dict[str, int]]:
    episodes, total = like.shape[0], like.shape[-1]
    every = triton.next_power_of_2(total)
    return (episodes, triton.cdiv(total, some)), {"SOME": some, "ALL": every, "num_warps": 4 if every <= 128 else 8}


def choose(width: Tensor, distances: Tensor, scale: Tensor, way: int, k: int, chosen: Tensor) -> None:
    """Fill `chosen` with exp(-width distance / scale) of the k nearest neighbours of each row, else zero."""
    grid, sizes = _grid(chosen)
    _choose[grid](width, distances, scale, chosen, chosen.shape[-1], way, min(k, chosen.shape[-1]), **sizes)


def link(chosen: Tensor, strength: Tensor, strong: Tensor, root: Tensor) -> None:
    """Fill `strong` with twice V, and `root` [R, N, 1] with degree^-1/2."""
    grid, sizes = _grid(chosen, 4 * SOME)
    _link[grid](chosen, strength, strong, root, chosen.shape[-1], **sizes)


def correct(
    strong: Tensor,
    inverse: Tensor,
    root: Tensor,
    right: Tensor,
    solution: Tensor,
    rest: Tensor,
    half: float,
    *,
    turned: bool,
) -> None:
    """Bring `solution` [R, N, WAYS] of (I - half root strong root) solution = right nearer, by an inverse of before.

    `right` [R or 1, N, WAYS]; `rest` is work space; `turned` takes the transposes of both matrices.
    """
    episodes, total, _ = strong.shape
    sizes = {"SOME": _TALL, "ALL": max(16, triton.next_power_of_2(total)), "num_warps": 4 if total <= 128 else 8}
    grid, strides = (episodes, triton.cdiv(total, _TALL)), (1, total) if turned else (total, 1)
    own = total * MOST_WAYS if len(right) > 1 else 0
    _rest[grid](strong, root, solution, right, own, rest, total, *strides, half, **sizes)
    _add[grid](inverse, rest, solution, total, *strides, **sizes)


def send(arrived: Tensor, member: Tensor, sent: Tensor, settings: TIMSettings) -> None:
    """Fill `sent` [R, N, WAYS] with the slopes of the loss by what arrived; `member` [R, way, l]."""
    (episodes, total, _), (way, supports) = arrived.shape, member.shape[1:]
    numbers = (*settings.weights, settings.alpha, settings.temperature)
    options = {"ALL": triton.next_power_of_2(total), "SHANNON": settings.alpha == 1}
    _send[(episodes,)](arrived, member, sent, total, way, supports, *numbers, **options)


def factor(root: Tensor, arrived: Tensor, sent: Tensor, back: Tensor, sides: Tensor, way: int, half: float) -> None:
    """Fill `sides` [R, 2, WAYS, N], whose products give the slope by V.

    In the place of one more class are the slopes by degrees, and ones.
    """
    episodes, total, _ = arrived.shape
    _factor[(episodes,)](root, arrived, sent, back, sides, total, way, half, ALL=triton.next_power_of_2(total))


def between(centroids: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, way] with the distances of centroids [R, way, d]."""
    episodes, way, width = centroids.shape
    _between[(episodes, way)](centroids, out, way, width, num_warps=1)


def move(
    sides: Tensor,
    chosen: Tensor,
    strong: Tensor,
    distances: Tensor,
    scale: Tensor,
    edges: tuple[Tensor, ...],
    rates: Tensor,
    step: Tensor,
    towards: Tensor,
    sums: Tensor,
) -> None:
    """Take a step of Adam: `edges` are width and strength [R, N, N], and of each the mean slope and mean square.

    `towards` [R, N, way] becomes minus the slopes by (distance of rows to centroids / scale); `sums` [R, programs] the
    parts of the slopes by widths times widths.
    """
    grid, sizes = _grid(chosen)
    arrays = (sides, chosen, strong, distances, scale, *edges, rates, step, towards, sums)
    _move[grid](*arrays, chosen.shape[-1], WAY=towards.shape[-1], **sizes)


def products(x: Tensor, weights: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, n] with the inner products of weights [R, way, d] and rows [R, n, d]."""
    (episodes, rows, width), way = x.shape, weights.shape[1]
    tall = max(16, triton.next_power_of_2(rows))
    _products[(episodes,)](x, weights, out, rows, width, way, ROWS=tall, num_warps=4 if tall <= 128 else 8)


def pulls(x: Tensor, slope: Tensor, out: Tensor) -> None:
    """Fill `out` [R, way, d] with slopes [R, way, n] times rows [R, n, d]."""
    (episodes, rows, width), way = x.shape, out.shape[1]
    grid = (episodes, triton.cdiv(width, 2 * _COLUMNS.value))
    _pulls[grid](x, slope, out, rows, width, way)


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["way", "k"])
def _choose(width, distances, scales, chosen, total, way, k, SOME: tl.constexpr, ALL: tl.constexpr):
    """The k-th smallest of a row's width * distance is found bit by bit: positive floats are ordered as integers are.

    Mostly the neighbours are those that `chosen` has from the step before, which takes one look to see.
    """
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    place = number * total * total + i[:, None] * total + j[None, :]
    apart = tl.load(width + place, mask=inside, other=0.0) * tl.load(distances + place, mask=inside, other=0.0)
    some = inside & (i >= way)[:, None] & (i[:, None] != j[None, :])  # centroids choose no neighbours
    near = tl.where(some, tl.exp2(apart * (-_LOG2_E / tl.load(scales + number))), 0.0)
    if near.dtype == tl.float64:
        bits, top = apart.to(tl.int64, bitcast=True), _INFINITE_64
    else:
        bits, top = apart.to(tl.int32, bitcast=True), _INFINITE
    bits = tl.where(some, bits, top)
    held = tl.load(chosen + place, mask=inside, other=0.0) > 0
    count, most = tl.sum(held.to(tl.int32), 1), tl.max(tl.where(held, bits, -1), 1)
    same = (i < way) | (i >= total) | ((count == k) & (most < tl.min(tl.where(held, top, bits), 1)))
    if tl.min(same.to(tl.int32), 0) == 0:
        low = most * 0 - 1
        high = low + 1 + top
        for _ in range(63 if near.dtype == tl.float64 else 31):
            middle = low + (high - low) // 2
            enough = tl.sum((bits <= middle[:, None]).to(tl.int32), 1) >= k
            low, high = tl.where(enough, low, middle), tl.where(enough, middle, high)
        held = bits <= high[:, None]
    tl.store(chosen + place, tl.where(held, near, 0.0), mask=inside)


@triton.jit
def _link(chosen, strength, strong, root, total, SOME: tl.constexpr, ALL: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    first = number * total * total
    place, turned = first + i[:, None] * total + j[None, :], first + j[None, :] * total + i[:, None]
    edges = tl.load(chosen + place, mask=inside, other=0.0) + tl.load(chosen + turned, mask=inside, other=0.0)
    v = edges * tl.load(strength + place, mask=inside, other=0.0)
    tl.store(strong + place, v, mask=inside)
    degree = 0.5 * tl.sum(v, 1) + _EPSILON
    tl.store(root + number * total + i, 1.0 / tl.sqrt(degree), mask=i < total)


@triton.jit
def _rest(strong, roots, solution, right, own, rest, total, along, across, half, SOME: tl.constexpr, ALL: tl.constexpr):
    """What the solution leaves of the right side, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    state = number * total * _WAYS
    inside = (i < total)[:, None] & (j < total)[None, :]
    part = tl.load(strong + number * total * total + i[:, None] * along + j[None, :] * across, mask=inside, other=0.0)
    root = tl.load(roots + number * total + j, mask=j < total, other=0.0)[:, None].to(tl.float64)
    passed = tl.dot(part.to(tl.float64), root * _state(solution + state, j, total), out_dtype=tl.float64)
    root = tl.load(roots + number * total + i, mask=i < total, other=0.0)[:, None].to(tl.float64)
    left = _state(right + number * own, i, total) - _state(solution + state, i, total) + passed * (half * root)
    _keep(rest + state, i, total, left)


@triton.jit
def _add(inverse, rest, solution, total, along, across, SOME: tl.constexpr, ALL: tl.constexpr):
    """Add to the solution what the old inverse makes of the rest, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    state = number * total * _WAYS
    inside = (i < total)[:, None] & (j < total)[None, :]
    part = tl.load(inverse + number * total * total + i[:, None] * along + j[None, :] * across, mask=inside, other=0.0)
    more = tl.dot(part.to(tl.float64), _state(rest + state, j, total), out_dtype=tl.float64)
    _keep(solution + state, i, total, _state(solution + state, i, total) + more)


@triton.jit
def _state(of, i, total):
    label = tl.arange(0, _WAYS)
    return tl.load(of + i[:, None] * _WAYS + label[None, :], mask=(i < total)[:, None], other=0.0)


@triton.jit
def _keep(of, i, total, values):
    label = tl.arange(0, _WAYS)
    tl.store(of + i[:, None] * _WAYS + label[None, :], values, mask=(i < total)[:, None])


@triton.jit(do_not_specialize=["way", "supports"])
def _send(
    arrived,
    members,
    sent,
    total,
    way,
    supports,
    of_supports,
    of_mean,
    of_each,
    alpha,
    temperature,
    ALL: tl.constexpr,
    SHANNON: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    i, label = tl.arange(0, ALL), tl.arange(0, _WAYS)
    rows, row, state = total - way, i - way, number * total * _WAYS
    p = shares(temperature * _state(arrived + state, i, total).to(tl.float32), label, way)
    mean = query_sums(p, row, supports, rows) / (rows - supports)
    known = ((row >= 0) & (row < supports))[:, None] & (label < way)[None, :]
    member = tl.load(members + (number * way + label)[None, :] * supports + row[:, None], mask=known, other=0.0)
    slope = slope_by_logits(p, member, mean, row, supports, rows, of_supports, of_mean, of_each, alpha, SHANNON)
    _keep(sent + state, i, total, temperature * slope)


@triton.jit(do_not_specialize=["way"])
def _factor(roots, arrived, sent, back, sides, total, way, half, ALL: tl.constexpr):
    """In float64, since the products nearly cancel."""
    number = tl.program_id(0).to(tl.int64)
    i, label = tl.arange(0, ALL), tl.arange(0, _WAYS)[None, :]
    state = number * total * _WAYS
    root = tl.load(roots + number * total + i, mask=i < total, other=0.0)[:, None].to(tl.float64)
    s, b = _state(arrived + state, i, total).to(tl.float64), _state(back + state, i, total).to(tl.float64)
    source = tl.where((i[:, None] == label) & (label < way), 1.0, 0.0)
    by_degree = tl.sum(b * (s - source) + s * (b - _state(sent + state, i, total)), 1)[:, None]
    place = sides + 2 * state + label * total + i[:, None]
    inside = (i < total)[:, None] & (label <= way)
    tl.store(place, tl.where(label == way, -0.25 * root * root * by_degree, half * root * b), mask=inside)
    tl.store(place + total * _WAYS, tl.where(label == way, 1.0, root * s), mask=inside)


@triton.jit(do_not_specialize=["way"])
def _between(centroids, out, way, width):
    number, one = tl.program_id(0).to(tl.int64), tl.program_id(1)
    label, column = tl.arange(0, _WAYS), tl.arange(0, 2 * _COLUMNS)
    centroids += number * way * width
    sums = tl.zeros((_WAYS,), tl.float64)
    for begin in range(0, width, 2 * _COLUMNS):
        real = begin + column < width
        inside = (label < way)[:, None] & real[None, :]
        others = tl.load(centroids + label[:, None] * width + begin + column[None, :], mask=inside, other=0.0)
        off = others - tl.load(centroids + one * width + begin + column, mask=real, other=0.0)[None, :]
        sums += tl.sum(off * off, 1)
    tl.store(out + (number * way + one) * way + label, tl.sqrt(sums), mask=label < way)


@triton.jit
def _adam(of, means, squares, place, inside, at, slope, rate, scale):
    """Take a step of Adam and keep it."""
    mean = tl.load(means + place, mask=inside, other=0.0)
    square = tl.load(squares + place, mask=inside, other=0.0)
    at, mean, square = adam_moved(at, mean, square, slope, rate, scale)
    tl.store(of + place, at, mask=inside)
    tl.store(means + place, mean, mask=inside)
    tl.store(squares + place, square, mask=inside)


@triton.jit
def _move(
    sides,  # [R, 2, WAYS, N]
    chosen,  # [R, N, N], as the next two
    strong,
    distances,
    scales,  # [R]
    width,  # [R, N, N], as the next five
    width_mean,
    width_square,
    strength,
    strength_mean,
    strength_square,
    rates,  # [steps, 2]
    step,  # [1]
    towards,  # [R, N, way]
    sums,  # [R, programs]
    total,
    WAY: tl.constexpr,
    SOME: tl.constexpr,
    ALL: tl.constexpr,
):
    """Names as in `sinkshot.kernels.manifold_torch`."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    first = number * total * total
    place, turned = first + i[:, None] * total + j[None, :], first + j[None, :] * total + i[:, None]
    left = sides + number * 2 * total * _WAYS
    right = left + total * _WAYS
    half, back_half = tl.zeros((SOME, ALL), tl.float64), tl.zeros((SOME, ALL), tl.float64)
    for c in tl.static_range(WAY + 1):
        left_i = tl.load(left + c * total + i, mask=i < total, other=0.0)
        right_i = tl.load(right + c * total + i, mask=i < total, other=0.0)
        left_j = tl.load(left + c * total + j, mask=j < total, other=0.0)
        right_j = tl.load(right + c * total + j, mask=j < total, other=0.0)
        half += left_i[:, None] * right_j[None, :]
        back_half += right_i[:, None] * left_j[None, :]
    near, near_back = tl.load(chosen + place, mask=inside, other=0.0), tl.load(chosen + turned, mask=inside, other=0.0)
    v = tl.load(strength + place, mask=inside, other=0.0)
    v_back = tl.load(strong + turned, mask=inside, other=0.0)
    edges = near + near_back
    v_back = tl.where(edges > 0, v_back / tl.where(edges > 0, edges, 1.0), 0.0)
    by_exponent = (half * v + back_half * v_back).to(near.dtype) * near  # minus the slope by the exponent
    distance = tl.load(distances + place, mask=inside, other=0.0)
    by_width = -by_exponent * distance / tl.load(scales + number)
    count = tl.load(step)
    rate, scale = tl.load(rates + 2 * count), tl.load(rates + 2 * count + 1)
    w = tl.load(width + place, mask=inside, other=0.0)
    tl.store(sums + number * tl.num_programs(1) + tl.program_id(1), tl.sum(tl.sum(by_width * w, 1), 0))
    near_centre = inside & (j < WAY)[None, :]
    tl.store(towards + number * total * WAY + i[:, None] * WAY + j[None, :], by_exponent * w, mask=near_centre)
    _adam(width, width_mean, width_square, place, inside, w, by_width, rate, scale)
    of_strength = half.to(near.dtype) * edges
    _adam(strength, strength_mean, strength_square, place, inside, v, of_strength, rate, scale)


@triton.jit(do_not_specialize=["way", "rows"])
def _products(x, weights, out, rows, width, way, ROWS: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    row, label, column = tl.arange(0, ROWS), tl.arange(0, _WAYS), tl.arange(0, _COLUMNS)
    x += number * rows * width
    weights += number * way * width
    sums = tl.zeros((ROWS, _WAYS), tl.float64)
    for begin in range(0, width, _COLUMNS):
        real = begin + column < width
        part = tl.load(
            x + row[:, None] * width + begin + column[None, :], mask=(row < rows)[:, None] & real[None, :], other=0.0
        )
        inside = real[:, None] & (label < way)[None, :]
        w = tl.load(weights + label[None, :] * width + begin + column[:, None], mask=inside, other=0.0)
        sums = tl.dot(part.to(tl.float64), w.to(tl.float64), sums, out_dtype=tl.float64)
    inside = (row < rows)[:, None] & (label < way)[None, :]
    tl.store(out + (number * way + label[None, :]) * rows + row[:, None], sums, mask=inside)


@triton.jit(do_not_specialize=["way", "rows"])
def _pulls(x, slope, out, rows, width, way):
    number = tl.program_id(0).to(tl.int64)
    label, column = tl.arange(0, _WAYS), tl.program_id(1) * 2 * _COLUMNS + tl.arange(0, 2 * _COLUMNS)
    sums = tl.zeros((_WAYS, 2 * _COLUMNS), tl.float64)
    for begin in range(0, rows, _COLUMNS):
        row = begin + tl.arange(0, _COLUMNS)
        inside = (label < way)[:, None] & (row < rows)[None, :]
        pull = tl.load(slope + (number * way + label[:, None]) * rows + row[None, :], mask=inside, other=0.0)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        part = tl.load(x + (number * rows + row[:, None]) * width + column[None, :], mask=inside, other=0.0)
        sums = tl.dot(pull.to(tl.float64), part.to(tl.float64), sums, out_dtype=tl.float64)
    inside = (label < way)[:, None] & (column < width)[None, :]
    tl.store(out + (number * way + label[:, None]) * width + column[None, :], sums, mask=inside)
