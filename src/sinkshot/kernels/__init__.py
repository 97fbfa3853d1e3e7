"""Compiled code behind the hot methods: whole episodes on the CPU (numba) or the GPU (triton), and one very large task.

Read `simd` (eight floats in a register) and `jit` (compiling, threads) first, then `gram_numba` and `bms_numba`.
"""

import os

from sinkshot.errors import InputError

LARGE = 200_000
"""A single task with at least this many queries times classes runs in `kernels.bms_large`. Below that, NumPy is faster
than numba."""

LARGE_POOL = 4_000
"""A single task with at least this many rows runs in `kernels.sinkshot_large`, which builds no matrix of all pairs of
rows."""


def jit_disabled() -> bool:
    """Whether Numba's compiler is disabled; the engine of compiled code is then not used."""
    return os.environ.get("NUMBA_DISABLE_JIT", "").strip() not in ("", "0")


def check_threads() -> None:
    """Refuse a number of threads that Numba cannot use."""
    threads = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if threads.lstrip("+-").isdigit() and int(threads) < 1:
        raise InputError(f"NUMBA_NUM_THREADS is {threads} in the environment; give 1 or more, or unset it.")
