"""Run the tests of Triton kernels on a GPU or, without one, interpreted.

Triton has to be told to interpret before it is imported. So without a GPU the tests of kernels are skipped, and
`test_interpreted.py` runs them in a process of its own, where they are not.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from optional_packages import need

torch = pytest.importorskip("torch")
need("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
KERNELS_RUN = DEVICE == "cuda" or INTERPRETED  # in this process

runs = pytest.mark.skipif(not KERNELS_RUN, reason="runs interpreted, in a process of its own")
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")


def on_device(array):
    """Return a copy of a NumPy array, on the GPU if there is one."""
    return torch.from_numpy(np.array(array)).to(DEVICE)
