"""Sinkhorn to a tolerance on the GPU: the plans of the readable code.

Where there is no GPU, triton interprets the kernel at tiny sizes, in a process of its own (see `test_bms_triton`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sinkshot.methods import _sinkhorn

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
GPU, INTERPRETED = torch.cuda.is_available(), os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU and not INTERPRETED else "cpu"

runs = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="runs interpreted, in a process of its own")


@pytest.mark.slow
@pytest.mark.skipif(DEVICE == "cuda" or INTERPRETED, reason="the kernels run in this process")
def test_the_kernel_does_what_it_says_when_interpreted():
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-W", "ignore::RuntimeWarning", str(Path(__file__))]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@runs
@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("way", "queries"), [(5, 19), (3, 8), (2, 1)])
def test_plans_are_those_of_the_readable_code(way, queries, shared, clamped):
    from sinkshot.kernels.sinkhorn_triton import balance, fits

    rng = np.random.default_rng(0)
    kernel = rng.gamma(0.5, 1.0, (4, way, queries)) + 1e-3
    shares = rng.dirichlet(np.full(way, 5.0), 1 if shared else 4)[..., None]
    fixed = rng.random((4, way, 1)) if clamped else None
    target = queries * shares + (fixed if clamped else 0.0)
    held = None if fixed is None else torch.from_numpy(fixed)
    wanted = _sinkhorn.balance(torch.from_numpy(kernel), torch.from_numpy(target), 1e-6, held)
    given = [None if a is None else torch.from_numpy(a).to(DEVICE) for a in (kernel, target, fixed)]
    assert fits(way, queries)
    ours = balance(given[0], given[1], 1e-6, given[2], _sinkhorn.PASSES)
    np.testing.assert_allclose(ours.cpu().numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)


@runs
def test_an_episode_stops_when_it_has_converged_or_when_passes_run_out():
    from sinkshot.kernels.sinkhorn_triton import balance

    kernel = torch.rand((3, 4, 10), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(DEVICE) + 0.1
    target = torch.full((1, 4, 1), 2.5, dtype=torch.float64, device=DEVICE)
    few, many = (balance(kernel, target, 0.0, None, passes) for passes in (1, 200))
    np.testing.assert_allclose(many.sum(dim=1).cpu().numpy(), 1.0, atol=1e-12)
    np.testing.assert_allclose(few.sum(dim=2).cpu().numpy(), 2.5, atol=1e-12)
    assert float((few.sum(dim=1) - 1).abs().max()) > 1e-3
