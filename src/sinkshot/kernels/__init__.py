"""Compiled code behind the hot methods: whole episodes on the CPU (numba) or the GPU (triton), and one very large task.

Read `simd` (eight floats in a register) and `jit` (compiling, threads) first, then `gram_numba` and `bms_numba`.
"""

LARGE = 200_000
"""A single task with at least this many queries times classes runs in `kernels.bms_large`. Below that, NumPy is done
sooner than numba."""
