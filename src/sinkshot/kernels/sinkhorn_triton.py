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
    places = {"ROWS": triton.next_power_of_2(n), "WAYS": triton.next_power_of_2(way)}
    options = {"CLAMPED": fixed is not None, "num_warps": 1 if places["ROWS"] * places["WAYS"] <= 1024 else 4}
    with torch.cuda.device_of(kernel):
        _passes[(episodes,)](kernel.contiguous(), goal, held, plans, way, n, tolerance, most, **places, **options)
    return plans


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
