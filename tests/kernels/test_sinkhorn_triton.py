"""Sinkhorn to a tolerance on the GPU: the plans of the readable code, at tiny sizes where Triton interprets it."""

from __future__ import annotations

import numpy as np
import pytest
from triton_runs import DEVICE, on_device, runs

from sinkshot.methods import _sinkhorn

torch = pytest.importorskip("torch")


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
    given = [None if a is None else on_device(a) for a in (kernel, target, fixed)]
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


@runs
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(("way", "queries"), [(5, 19), (3, 150), (2, 1)])
def test_minimum_sizes_are_met_as_in_the_readable_code(way, queries, weighed):
    from sinkshot.kernels.sinkhorn_triton import min_size
    from sinkshot.methods.bms import min_size_sinkhorn

    rng = np.random.default_rng(0)
    kernel = rng.gamma(0.3, 1.0, (4, way, queries)) + 1e-6
    least = np.array([0.5, 1.0, queries / way / 2, queries / way])[:, None, None]
    mass = rng.random((4, 1, queries)) if weighed else 1.0
    given = on_device(mass) if weighed else 1.0
    ours = min_size(on_device(kernel), on_device(least), given, 50).cpu().numpy()
    for one in range(4):  # an episode stops on its own
        alone = mass[[one]] if weighed else 1.0
        wanted = min_size_sinkhorn(kernel[[one]], least[[one]], 50, alone)
        np.testing.assert_allclose(ours[[one]], wanted, rtol=1e-9, atol=1e-12)
