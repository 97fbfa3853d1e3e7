# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The balanced draw on the GPU, one program per episode: bit for bit the episodes of `sinkshot.episodes.draw`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from sinkshot.episodes import Recipe

Tensor = Any
"""A torch tensor."""

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Drawn:
    """Row numbers and labels of R episodes on the device, as `sinkshot.episodes.Episodes` has them."""

    support: Tensor  # [R, way * shot]
    support_labels: Tensor
    query: Tensor  # [R, way * query]
    query_labels: Tensor


def draw_balanced(
    order: Tensor, starts: Tensor, sizes: Tensor, recipe: Recipe, first: int = 0, count: int | None = None
) -> Drawn:
    """Draw balanced episodes on the device, bit for bit those of `sinkshot.episodes.draw`.

    Class c owns the rows `order[starts[c] : starts[c] + sizes[c]]` (int32 tensors); the recipe must be checked before.
    """
    count = recipe.episodes - first if count is None else count
    way, each, cut = recipe.way, recipe.shot + recipe.query, recipe.shot * recipe.way
    rows = torch.empty((count, each * way), dtype=torch.int32, device=order.device)
    places = {"WAYS": triton.next_power_of_2(way), "EACH": triton.next_power_of_2(each)}
    with torch.cuda.device_of(order):
        numbers = (recipe.seed, first, len(sizes), way, each)
        _draw[(count,)](rows, order, starts, sizes, *numbers, **places, num_warps=1)
    labels = torch.arange(way, dtype=torch.int32, device=order.device).repeat(each).expand(count, -1)
    return Drawn(rows[:, :cut], labels[:, :cut], rows[:, cut:], labels[:, cut:])


@triton.jit(do_not_specialize=["seed", "first", "classes", "way", "each"])
def _draw(rows, order, starts, sizes, seed, first, classes, way, each, WAYS: tl.constexpr, EACH: tl.constexpr):
    """Rows of one episode, sample-major; names as in `sinkshot.episodes._pick`."""
    number = tl.program_id(0).to(tl.int64)
    start = _mix(seed.to(tl.uint64) * _GOLDEN + _GOLDEN)
    key = _mix(start + (number + first + 1).to(tl.uint64) * _GOLDEN)
    position, turn = tl.arange(0, WAYS), tl.arange(0, EACH)
    whole = tl.full((1,), 0, tl.int32)
    chosen = tl.reshape(_shuffled(whole + classes, way, whole.to(tl.uint64) + key, WAYS), (WAYS,))
    real = position < way
    size = tl.load(sizes + chosen, mask=real, other=1)
    of_class = _mix(key ^ _mix((position + 1).to(tl.uint64) * _GOLDEN))  # [WAYS]
    within = _shuffled(size, each, of_class, EACH)  # [WAYS, EACH]
    used = real[:, None] & (turn < each)[None, :]
    taken = tl.load(order + tl.load(starts + chosen, mask=real, other=0)[:, None] + within, mask=used, other=0)
    tl.store(rows + number * each * way + turn[None, :] * way + position[:, None], taken, mask=used)


@triton.jit
def _mix(x):
    """SplitMix64's finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _shuffled(size, count, keys, PLACES: tl.constexpr):
    """First `count` entries of a random permutation of 0 .. size-1 for each stream, [streams, PLACES].

    Fisher-Yates on a virtual table: the identity, except for the entries written so far; the last write to an entry
    counts.
    """
    turn = tl.arange(0, PLACES)[None, :]
    place = tl.full((size.shape[0], PLACES), -1, tl.int32)
    value, picked = tl.zeros_like(place), tl.zeros_like(place)
    for t in range(count):
        left = (size - t).to(tl.uint64)
        other = t + (((_mix(keys) >> 32) * left) >> 32).to(tl.int32)  # [streams]
        here = _read(place, value, other)
        moved = _read(place, value, tl.zeros_like(other) + t)
        picked = tl.where(turn == t, here[:, None], picked)
        place = tl.where(turn == t, other[:, None], place)
        value = tl.where(turn == t, moved[:, None], value)
        keys += _GOLDEN
    return picked


@triton.jit
def _read(place, value, at):
    """Entry `at` [streams] of each stream's table: the last write to it, else its own number."""
    turn = tl.arange(0, place.shape[1]).to(tl.int64)[None, :]
    last = tl.max(tl.where(place == at[:, None], (turn << 32) + value, -1), 1)
    return tl.where(last < 0, at, (last & 0xFFFFFFFF).to(tl.int32))
