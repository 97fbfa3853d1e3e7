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
_WAYS = tl.constexpr(MOST_WAYS)
_EPSILON = tl.constexpr(MANIFOLD_EPSILON)
_ALIGNED = 16  # numbers
_LOG2_E = tl.constexpr(1.4426950408889634)
_INFINITE, _INFINITE_64 = tl.constexpr(0x7F800000), tl.constexpr(0x7FF0000000000000)  # the bits of infinity


def fits(way: int, rows: int) -> bool:
    """Whether an episode of this size fits into one program."""
    return way < MOST_WAYS and way + rows <= MOST_ROWS


def _grid(like: Tensor, some: int = SOME) -> tuple[tuple[int, int], dict[str, int]]:
    episodes, total = like.shape[0], like.shape[-1]
    every = triton.next_power_of_2(total)
    return (episodes, triton.cdiv(total, some)), {"SOME": some, "ALL": every, "num_warps": 4 if every <= 128 else 8}


def padded(episodes: int, total: int, like: Tensor) -> Tensor:
    """Return zeros [R, N, N] whose rows begin at multiples of 64 bytes: GPUs then load four numbers at once."""
    return like.new_zeros((episodes, total, -(-total // _ALIGNED) * _ALIGNED))[..., :total]


def _extent(array: Tensor) -> tuple[int, int]:
    """The number of rows N of an array [R, N, N] of `padded`, or a plain one, and how far they are apart."""
    assert array.stride() == (array.shape[-1] * array.stride(1), array.stride(1), 1)
    return array.shape[-1], array.stride(1)


def choose(width: Tensor, distances: Tensor, scale: Tensor, way: int, k: int, chosen: Tensor) -> None:
    """Fill `chosen` with exp(-width distance / scale) of the k nearest neighbours of each row, else zero."""
    grid, sizes = _grid(chosen)
    _choose[grid](width, distances, scale, chosen, *_extent(chosen), way, min(k, chosen.shape[-1]), **sizes)


def link(chosen: Tensor, strength: Tensor, strong: Tensor, root: Tensor) -> None:
    """Fill `strong` with twice V, and `root` [R, N, 1] with degree^-1/2."""
    grid, sizes = _grid(chosen, 4 * SOME)
    _link[grid](chosen, strength, strong, root, *_extent(chosen), **sizes)


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
    total, stride = _extent(strong)
    sizes = {"SOME": _TALL, "ALL": max(16, triton.next_power_of_2(total)), "num_warps": 4}
    grid, strides = (len(strong), triton.cdiv(total, _TALL)), (1, stride) if turned else (stride, 1)
    own = total * MOST_WAYS if len(right) > 1 else 0
    _rest[grid](strong, root, solution, right, own, rest, total, stride, *strides, half, **sizes)
    _add[grid](inverse, rest, solution, total, stride, *strides, **sizes)


def send(arrived: Tensor, member: Tensor, sent: Tensor, settings: TIMSettings) -> None:
    """Fill `sent` [R, N, WAYS] with the slopes of the loss by what arrived; `member` [R, way, l]."""
    (episodes, total, _), (way, supports) = arrived.shape, member.shape[1:]
    numbers = (*settings.weights, settings.alpha, settings.temperature)
    options = {"ALL": triton.next_power_of_2(total), "SHANNON": settings.alpha == 1}
    _send[(episodes,)](arrived, member, sent, total, way, supports, *numbers, **options)


def factor(root: Tensor, arrived: Tensor, sent: Tensor, back: Tensor, sides: Tensor, way: int, half: float) -> None:
    """Fill `sides` [R, 2, WAYS, stride], whose products give the slope by V.

    In the place of one more class are the slopes by degrees, and ones.
    """
    episodes, total, _ = arrived.shape
    stride, every = sides.shape[-1], triton.next_power_of_2(total)
    _factor[(episodes,)](root, arrived, sent, back, sides, total, stride, way, half, ALL=every)


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
    _move[grid](*arrays, *_extent(chosen), WAY=towards.shape[-1], **sizes)


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["way", "k"])
def _choose(width, distances, scales, chosen, total, stride, way, k, SOME: tl.constexpr, ALL: tl.constexpr):
    """The k-th smallest of a row's width * distance is found bit by bit: positive floats are ordered as integers are.

    Mostly the neighbours are those that `chosen` has from the step before, which takes one look to see.
    """
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    place = number * total * stride + i[:, None] * stride + j[None, :]
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
def _link(chosen, strength, strong, root, total, stride, SOME: tl.constexpr, ALL: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    first = number * total * stride
    place, turned = first + i[:, None] * stride + j[None, :], first + j[None, :] * stride + i[:, None]
    edges = tl.load(chosen + place, mask=inside, other=0.0) + tl.load(chosen + turned, mask=inside, other=0.0)
    v = edges * tl.load(strength + place, mask=inside, other=0.0)
    tl.store(strong + place, v, mask=inside)
    degree = 0.5 * tl.sum(v, 1) + _EPSILON
    tl.store(root + number * total + i, 1.0 / tl.sqrt(degree), mask=i < total)


@triton.jit
def _rest(
    strong,
    roots,
    solution,
    right,
    own,
    rest,
    total,
    stride,
    along,
    across,
    half,
    SOME: tl.constexpr,
    ALL: tl.constexpr,
):
    """What the solution leaves of the right side, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    state = number * total * _WAYS
    inside = (i < total)[:, None] & (j < total)[None, :]
    part = tl.load(strong + number * total * stride + i[:, None] * along + j[None, :] * across, mask=inside, other=0.0)
    root = tl.load(roots + number * total + j, mask=j < total, other=0.0)[:, None].to(tl.float64)
    passed = tl.dot(part.to(tl.float64), root * _state(solution + state, j, total), out_dtype=tl.float64)
    root = tl.load(roots + number * total + i, mask=i < total, other=0.0)[:, None].to(tl.float64)
    left = _state(right + number * own, i, total) - _state(solution + state, i, total) + passed * (half * root)
    _keep(rest + state, i, total, left)


@triton.jit
def _add(inverse, rest, solution, total, stride, along, across, SOME: tl.constexpr, ALL: tl.constexpr):
    """Add to the solution what the old inverse makes of the rest, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    state = number * total * _WAYS
    inside = (i < total)[:, None] & (j < total)[None, :]
    part = tl.load(inverse + number * total * stride + i[:, None] * along + j[None, :] * across, mask=inside, other=0.0)
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
def _factor(roots, arrived, sent, back, sides, total, stride, way, half, ALL: tl.constexpr):
    """In float64, since the products nearly cancel."""
    number = tl.program_id(0).to(tl.int64)
    i, label = tl.arange(0, ALL), tl.arange(0, _WAYS)[None, :]
    state = number * total * _WAYS
    root = tl.load(roots + number * total + i, mask=i < total, other=0.0)[:, None].to(tl.float64)
    s, b = _state(arrived + state, i, total).to(tl.float64), _state(back + state, i, total).to(tl.float64)
    source = tl.where((i[:, None] == label) & (label < way), 1.0, 0.0)
    by_degree = tl.sum(b * (s - source) + s * (b - _state(sent + state, i, total)), 1)[:, None]
    place = sides + (2 * number * _WAYS + label) * stride + i[:, None]
    inside = (i < total)[:, None] & (label <= way)
    tl.store(place, tl.where(label == way, -0.25 * root * root * by_degree, half * root * b), mask=inside)
    tl.store(place + stride * _WAYS, tl.where(label == way, 1.0, root * s), mask=inside)


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
    sides,  # [R, 2, WAYS, stride]
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
    stride,
    WAY: tl.constexpr,
    SOME: tl.constexpr,
    ALL: tl.constexpr,
):
    """Names as in `sinkshot.kernels.manifold_torch`."""
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < total)[None, :]
    first = number * total * stride
    place, turned = first + i[:, None] * stride + j[None, :], first + j[None, :] * stride + i[:, None]
    left = sides + number * 2 * stride * _WAYS
    right = left + stride * _WAYS
    half, back_half = tl.zeros((SOME, ALL), tl.float64), tl.zeros((SOME, ALL), tl.float64)
    for c in tl.static_range(WAY + 1):
        left_i = tl.load(left + c * stride + i, mask=i < total, other=0.0)
        right_i = tl.load(right + c * stride + i, mask=i < total, other=0.0)
        left_j = tl.load(left + c * stride + j, mask=j < total, other=0.0)
        right_j = tl.load(right + c * stride + j, mask=j < total, other=0.0)
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
