"""Fused engines behind the hot methods: one episode as a whole on the CPU or GPU, and one very large task."""

LARGE = 200_000
"""Queries times classes from which on a single task takes the road of `kernels.large`: below, NumPy is done sooner than
a compiler."""
