# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The graph of adaptive manifold on the GPU: its large arrays [R, N, N] are each read once per step where possible.

Products are summed in float64, which costs GPUs of the data centre little: what is left of the slopes after their terms
cancel decides which way Adam goes. In torch a step passes over arrays of all pairs some sixty times; these kernels do
it fewer than thirty times, with nothing between. `choose` finds the neighbours of some rows, `link` makes the graph
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
_TALL, _DEEP = 64, 32  # rows, and columns at a time, where tensor cores multiply
_TILE, _MOVERS = 16, 2  # rows and columns of a tile that is moved together with its mirror image, and its warps
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
    """Return zeros [R, N, N] whose rows begin at multiples of 64 bytes: GPUs then load four numbers at once.

    So that they do, kernels read and write whole rows, and what is beyond N stays zero.
    """
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
    sizes = {"SOME": _TALL, "DEEP": _DEEP, "num_warps": 4}
    grid = (len(strong), triton.cdiv(total, _TALL))
    shape = (1, stride, stride, total) if turned else (stride, 1, total, stride)
    own = total * MOST_WAYS if len(right) > 1 else 0
    _rest[grid](strong, root, solution, right, own, rest, total, stride, *shape, half, **sizes)
    _add[grid](inverse, rest, solution, total, stride, *shape, **sizes)


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


def tile_pairs(total: int) -> int:
    """The programs of an episode in `move`: tiles of a matrix [N, N] on or above its diagonal."""
    tiles: int = triton.cdiv(total, _TILE)
    return tiles * (tiles + 1) // 2


def move(
    sides: Tensor,
    chosen: Tensor,
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
    grid = (len(chosen) * tile_pairs(chosen.shape[-1]),)
    arrays = (sides, chosen, distances, scale, *edges, rates, step, towards, sums)
    _move[grid](*arrays, *_extent(chosen), WAY=towards.shape[-1], TILE=_TILE, num_warps=_MOVERS)


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["way", "k"])
def _choose(width, distances, scales, chosen, total, stride, way, k, SOME: tl.constexpr, ALL: tl.constexpr):
    """The k-th smallest of a row's width * distance is found bit by bit: positive floats are ordered as integers are.

    Mostly the neighbours are those that `chosen` has from the step before, which takes one look to see.
    """
    number = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * SOME + tl.arange(0, SOME), tl.arange(0, ALL)
    inside = (i < total)[:, None] & (j < stride)[None, :]
    place = number * total * stride + i[:, None] * stride + j[None, :]
    apart = tl.load(width + place, mask=inside, other=0.0) * tl.load(distances + place, mask=inside, other=0.0)
    some = inside & (j < total)[None, :] & (i >= way)[:, None]  # centroids choose no neighbours
    some = some & (i[:, None] != j[None, :])
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
    inside, mirrored = (i < total)[:, None] & (j < stride)[None, :], (i < stride)[:, None] & (j < total)[None, :]
    first = number * total * stride
    place, turned = first + i[:, None] * stride + j[None, :], first + j[None, :] * stride + i[:, None]
    edges = tl.load(chosen + place, mask=inside, other=0.0) + tl.load(chosen + turned, mask=mirrored, other=0.0)
    v = edges * tl.load(strength + place, mask=inside, other=0.0)
    tl.store(strong + place, v, mask=inside)
    degree = 0.5 * tl.sum(v, 1) + _EPSILON
    tl.store(root + number * total + i, 1.0 / tl.sqrt(degree), mask=i < total)


@triton.jit
def _part(rows, across, i, high, wide, begin, DEEP: tl.constexpr):
    """Some columns of rows of a matrix: asked for one round before they are used."""
    j = begin + tl.arange(0, DEEP)
    return tl.load(rows + j[None, :] * across, mask=(i < high)[:, None] & (j < wide)[None, :], other=0.0)


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
    high,
    wide,
    half,
    SOME: tl.constexpr,
    DEEP: tl.constexpr,
):
    """What the solution leaves of the right side, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * SOME + tl.arange(0, SOME)
    state, rows = number * total * _WAYS, strong + number * total * stride + i[:, None] * along
    passed, next_part = tl.zeros((SOME, _WAYS), tl.float64), _part(rows, across, i, high, wide, 0, DEEP)
    for begin in range(0, total, DEEP):
        j, part = begin + tl.arange(0, DEEP), next_part
        next_part = _part(rows, across, i, high, wide, begin + DEEP, DEEP)
        root = tl.load(roots + number * total + j, mask=j < total, other=0.0)[:, None].to(tl.float64)
        values = root * _state(solution + state, j, total)
        passed = tl.dot(part.to(tl.float64), values, passed, out_dtype=tl.float64)
    root = tl.load(roots + number * total + i, mask=i < total, other=0.0)[:, None].to(tl.float64)
    left = _state(right + number * own, i, total) - _state(solution + state, i, total) + passed * (half * root)
    _keep(rest + state, i, total, left)


@triton.jit
def _add(inverse, rest, solution, total, stride, along, across, high, wide, SOME: tl.constexpr, DEEP: tl.constexpr):
    """Add to the solution what the old inverse makes of the rest, in some rows."""
    number = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * SOME + tl.arange(0, SOME)
    state, rows = number * total * _WAYS, inverse + number * total * stride + i[:, None] * along
    more, next_part = tl.zeros((SOME, _WAYS), tl.float64), _part(rows, across, i, high, wide, 0, DEEP)
    for begin in range(0, total, DEEP):
        j, part = begin + tl.arange(0, DEEP), next_part
        next_part = _part(rows, across, i, high, wide, begin + DEEP, DEEP)
        more = tl.dot(part.to(tl.float64), _state(rest + state, j, total), more, out_dtype=tl.float64)
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
def _moments(means, squares, place, inside):
    return tl.load(means + place, mask=inside, other=0.0), tl.load(squares + place, mask=inside, other=0.0)


@triton.jit
def _moving(of, means, squares, place, inside):
    mean, square = _moments(means, squares, place, inside)
    return tl.load(of + place, mask=inside, other=0.0), mean, square


@triton.jit
def _keep_moving(of, means, squares, place, inside, at, mean, square):
    tl.store(of + place, at, mask=inside)
    tl.store(means + place, mean, mask=inside)
    tl.store(squares + place, square, mask=inside)


@triton.jit
def _move(  # long: a tile and its mirror image need everything twice
    sides,  # [R, 2, WAYS, stride]
    chosen,  # [R, N, N], as the next
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
    TILE: tl.constexpr,
):
    """A tile [i, j] and its mirror image [j, i], whose slopes share their terms, so that each array is read once.

    Names as in `sinkshot.kernels.manifold_torch`. A tile on the diagonal is its own mirror image.
    """
    tiles = tl.cdiv(total, TILE)
    programs = tiles * (tiles + 1) // 2
    number = (tl.program_id(0) // programs).to(tl.int64)
    above, beside = tiles * 0, tl.program_id(0) % programs
    for _ in range(tiles):  # of row `above`, tile `beside` from the diagonal on
        past = beside >= tiles - above
        beside = tl.where(past, beside - (tiles - above), beside)
        above = tl.where(past, above + 1, above)
    i, j = above * TILE + tl.arange(0, TILE), (above + beside) * TILE + tl.arange(0, TILE)
    inside = (i < total)[:, None] & (j < stride)[None, :]
    own = tl.zeros((TILE, TILE), tl.int32) + beside == 0
    mirrored = (j < total)[:, None] & (i < stride)[None, :] & (own == 0)
    first = number * total * stride
    place, turned = first + i[:, None] * stride + j[None, :], first + j[:, None] * stride + i[None, :]
    # All arrays are asked for before anything waits for one of them.
    near, v = tl.load(chosen + place, mask=inside, other=0.0), tl.load(strength + place, mask=inside, other=0.0)
    near_turned = tl.where(own, near, tl.load(chosen + turned, mask=mirrored, other=0.0))
    v_turned = tl.where(own, v, tl.load(strength + turned, mask=mirrored, other=0.0))
    w, w_mean, w_square = _moving(width, width_mean, width_square, place, inside)
    v_mean, v_square = _moments(strength_mean, strength_square, place, inside)
    distance = tl.load(distances + place, mask=inside, other=0.0)
    w_turned, w_mean_turned, w_square_turned = _moving(width, width_mean, width_square, turned, mirrored)
    v_mean_turned, v_square_turned = _moments(strength_mean, strength_square, turned, mirrored)
    distance_turned = tl.load(distances + turned, mask=mirrored, other=0.0)
    count, scale = tl.load(step), tl.load(scales + number)
    rate, by_root = tl.load(rates + 2 * count), tl.load(rates + 2 * count + 1)
    left = sides + number * 2 * stride * _WAYS
    right = left + stride * _WAYS
    half, half_turned = tl.zeros((TILE, TILE), tl.float64), tl.zeros((TILE, TILE), tl.float64)
    for c in tl.static_range(WAY + 1):
        left_i = tl.load(left + c * stride + i, mask=i < stride, other=0.0)
        right_j = tl.load(right + c * stride + j, mask=j < stride, other=0.0)
        half += left_i[:, None] * right_j[None, :]
        left_j = tl.load(left + c * stride + j, mask=j < stride, other=0.0)
        right_i = tl.load(right + c * stride + i, mask=i < stride, other=0.0)
        half_turned += left_j[:, None] * right_i[None, :]
    edges = near + tl.trans(near_turned)
    both = (half * v + tl.trans(half_turned * v_turned)).to(near.dtype)  # minus the slope by the exponent, over `near`

    by_exponent, by_turned = both * near, tl.trans(both) * near_turned
    centres = towards + number * total * WAY
    tl.store(centres + i[:, None] * WAY + j[None, :], by_exponent * w, mask=inside & (j < WAY)[None, :])
    tl.store(centres + j[:, None] * WAY + i[None, :], by_turned * w_turned, mask=mirrored & (i < WAY)[None, :])
    by_width, by_width_turned = -by_exponent * distance / scale, -by_turned * distance_turned / scale
    part = tl.sum(tl.sum(by_width * w, 1), 0) + tl.sum(tl.sum(by_width_turned * w_turned, 1), 0)
    tl.store(sums + number * programs + tl.program_id(0) % programs, part)
    w, w_mean, w_square = adam_moved(w, w_mean, w_square, by_width, rate, by_root)
    _keep_moving(width, width_mean, width_square, place, inside, w, w_mean, w_square)
    v, v_mean, v_square = adam_moved(v, v_mean, v_square, half.to(near.dtype) * edges, rate, by_root)
    _keep_moving(strength, strength_mean, strength_square, place, inside, v, v_mean, v_square)
    w, w_mean, w_square = adam_moved(w_turned, w_mean_turned, w_square_turned, by_width_turned, rate, by_root)
    _keep_moving(width, width_mean, width_square, turned, mirrored, w, w_mean, w_square)
    slope = half_turned.to(near.dtype) * tl.trans(edges)
    v, v_mean, v_square = adam_moved(v_turned, v_mean_turned, v_square_turned, slope, rate, by_root)
    _keep_moving(strength, strength_mean, strength_square, turned, mirrored, v, v_mean, v_square)
