# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Sinkhorn to a tolerance on the GPU, one program per episode: as in `sinkshot.kernels.sinkhorn_numba`.

In torch each pass over a batch costs a dozen launches and a look at the device, and the batch runs until its slowest
episode converges; here an episode stays in registers and ends when it has converged.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

Tensor = Any
"""A torch tensor."""

MOST = 1 << 14  # entries of an episode's kernel that fit into the registers of a program


def fits(way: int, queries: int) -> bool:
    """Whether an episode of this size fits into one program."""
    return bool(triton.next_power_of_2(way) * triton.next_power_of_2(queries) <= MOST)


def balance(kernel: Tensor, target: Tensor, tolerance: float, fixed: Tensor | None, most: int) -> Tensor:
    """Return the plans [R, way, n] of kernels [R, way, n]; target [R or 1, way, 1], fixed [R, way, 1] or None."""
    episodes, way, n = kernel.shape
    held = torch.zeros_like(target) if fixed is None else fixed
    goal, held = (part[..., 0].to(kernel.dtype).expand(episodes, way).contiguous() for part in (target, held))
    plans = torch.empty_like(kernel, memory_format=torch.contiguous_format)
    options = {"CLAMPED": fixed is not None, **_options(way, n)}
    with torch.cuda.device_of(kernel):
        _passes[(episodes,)](kernel.contiguous(), goal, held, plans, way, n, tolerance, most, **options)
    return plans


def rebalance(labels: Tensor, member: Tensor, target: Tensor, tolerance: float, most: int) -> Tensor:
    """Return labels [R, way, N] balanced to target [R, way, 1] as `sinkshot.methods.protolp.rebalanced` does."""
    episodes, way, n = labels.shape
    goal = target[..., 0].to(labels.dtype).expand(episodes, way).contiguous()
    out = torch.empty_like(labels, memory_format=torch.contiguous_format)
    sizes = (way, n, member.shape[-1], tolerance, most)
    with torch.cuda.device_of(labels):
        _rough[(episodes,)](labels.contiguous(), member.contiguous(), goal, out, *sizes, **_options(way, n))
    return out


def allocate(mass: Tensor, quota: Tensor, tolerance: float, most: int) -> Tensor:
    """Return mass [R, way, N] with rows and classes scaled to quota [R, way, 1], as `sinkshot.methods.ilpc` does."""
    episodes, way, n = mass.shape
    goal, out = quota[..., 0].contiguous(), torch.empty_like(mass, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(mass):
        _to_quotas[(episodes,)](mass.contiguous(), goal, out, way, n, tolerance, most, **_options(way, n))
    return out


def min_size(kernel: Tensor, least: Tensor, mass: Tensor | float, most: int) -> Tensor:
    """Return the plans of `bms.min_size_sinkhorn`; kernel [R, way, n], least [R, 1, 1], mass [R, 1, n]."""
    episodes, way, n = kernel.shape
    goal = least.to(kernel.dtype).expand(episodes, 1, 1).contiguous()
    whole = torch.as_tensor(mass, dtype=kernel.dtype, device=kernel.device).expand(episodes, 1, n).contiguous()
    plans = torch.empty_like(kernel, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(kernel):
        _min_size[(episodes,)](kernel.contiguous(), goal, whole, plans, way, n, most, **_options(way, n))
    return plans


def _options(way: int, n: int) -> dict[str, int]:
    places = {"ROWS": triton.next_power_of_2(n), "WAYS": triton.next_power_of_2(way)}
    return {**places, "num_warps": 1 if places["ROWS"] * places["WAYS"] <= 1024 else 4}


@triton.jit(do_not_specialize=["way", "n", "tolerance", "most"])
def _passes(
    kernel, target, fixed, out, way, n, tolerance, most, ROWS: tl.constexpr, WAYS: tl.constexpr, CLAMPED: tl.constexpr
):
    """Names as in `sinkshot.kernels.sinkhorn_numba`."""
    number = tl.program_id(0).to(tl.int64)
    query, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    inside, real = query < n, label < way
    used = real[:, None] & inside[None, :]
    at = (number * way + label[:, None]) * n + query[None, :]
    k = tl.load(kernel + at, mask=used, other=0.0)  # [WAYS, ROWS]
    goal = tl.load(target + number * way + label, mask=real, other=0.0)
    held = tl.load(fixed + number * way + label, mask=real, other=0.0)
    v = goal * 0.0 + 1.0
    mass = tl.where(inside, tl.sum(k, 0), 1.0)
    row, before = 1.0 / mass, mass * 0.0
    step, going = 0, 1
    while going > 0:
        row = 1.0 / mass
        size = tl.where(real, tl.sum(k * row[None, :], 1), 1.0)
        if CLAMPED:  # noqa: SIM108  triton compiles one of the two
            v = goal * v / tl.where(real, held + v * size, 1.0)
        else:
            v = goal / size
        mass = tl.where(inside, tl.sum(k * v[:, None], 0), 1.0)
        total = row * mass
        change = tl.max(tl.where(inside, tl.abs(total - before), 0.0), 0)
        before = total
        step += 1
        going = (((step < 2) | (change > tolerance)) & (step < most)).to(tl.int32)
    tl.store(out + at, row[None, :] * k * v[:, None], mask=used)


@triton.jit(do_not_specialize=["way", "n", "supports", "tolerance", "most"])
def _rough(labels, member, target, out, way, n, supports, tolerance, most, ROWS: tl.constexpr, WAYS: tl.constexpr):
    """Scale rows to one and classes to their targets until row sums settle; supports are reset after each pass."""
    number = tl.program_id(0).to(tl.int64)
    row, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    inside, real, given = row < n, label < way, row < supports
    at = (number * way + label[:, None]) * n + row[None, :]
    p = tl.load(labels + at, mask=real[:, None] & inside[None, :], other=0.0)  # [WAYS, ROWS]
    held = (number * way + label[:, None]) * supports + row[None, :]
    known = tl.load(member + held, mask=real[:, None] & given[None, :], other=0.0)
    goal = tl.load(target + number * way + label, mask=real, other=0.0)
    before = tl.sum(p, 0) * 0.0
    step, going = 0, 1
    while going > 0:
        sums = tl.where(inside, tl.sum(p, 0), 1.0)
        moving = tl.max(tl.where(inside, tl.abs(sums - before), 0.0), 0) > tolerance
        before = sums
        scaled = p / sums[None, :]
        scaled *= (goal / tl.where(real, tl.sum(scaled, 1), 1.0))[:, None]
        p = tl.where(moving, tl.where(given[None, :], known, scaled), p)
        step += 1
        going = (moving & (step < most)).to(tl.int32)
    tl.store(out + at, p, mask=real[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["way", "n", "tolerance", "most"])
def _to_quotas(mass, quota, out, way, n, tolerance, most, ROWS: tl.constexpr, WAYS: tl.constexpr):
    """Scale rows to one and classes to their quotas until row sums settle.

    An episode without spent quotas ends when a class has nothing left to scale.
    """
    number = tl.program_id(0).to(tl.int64)
    row, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    inside, real = row < n, label < way
    at = (number * way + label[:, None]) * n + row[None, :]
    p = tl.load(mass + at, mask=real[:, None] & inside[None, :], other=0.0)  # [WAYS, ROWS]
    goal = tl.load(quota + number * way + label, mask=real, other=1.0)
    spent = tl.max((goal <= 0).to(tl.int32), 0)
    sums = tl.sum(p, 0)
    step, going = 0, 1
    while going > 0:
        p /= tl.where(sums == 0, 1.0, sums)[None, :]
        size = tl.sum(p, 1)
        empty = tl.max((real & (size == 0)).to(tl.int32), 0)
        p *= (goal / tl.where(size == 0, 1.0, size))[:, None]
        before = sums
        sums = tl.sum(p, 0)
        moving = tl.max(tl.abs(sums - before), 0) > tolerance
        step += 1
        going = (moving & ((spent > 0) | (empty == 0)) & (step < most)).to(tl.int32)
    tl.store(out + at, p, mask=real[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["way", "n", "most"])
def _min_size(kernel, least, mass, out, way, n, most, ROWS: tl.constexpr, WAYS: tl.constexpr):
    """Algorithm 1 of BMS: a pass that scales no class is a fixed point, where the episode stops."""
    number = tl.program_id(0).to(tl.int64)
    query, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    inside, real = query < n, label < way
    used = real[:, None] & inside[None, :]
    at = (number * way + label[:, None]) * n + query[None, :]
    k = tl.load(kernel + at, mask=used, other=0.0)  # [WAYS, ROWS]
    each = tl.load(mass + number * n + query, mask=inside, other=0.0)
    goal = tl.load(least + number)
    v = tl.sum(k, 1) * 0.0 + 1.0
    u = each
    step, going = 0, 1
    while going > 0:
        v = v / tl.max(tl.where(real, v, 0.0), 0)
        u = each / tl.where(inside, tl.sum(k * v[:, None], 0), 1.0)
        size = v * tl.sum(k * u[None, :], 1)
        small = real & (size < goal)
        v = tl.where(small, v * goal / tl.maximum(size, 1.2e-38), v)
        step += 1
        going = ((tl.max(small.to(tl.int32), 0) > 0) & (step < most)).to(tl.int32)
    tl.store(out + at, u[None, :] * k * v[:, None], mask=used)
