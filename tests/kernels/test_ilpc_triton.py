"""iLPC and protoLP on the GPU: what the readable code computes, at tiny sizes where Triton interprets it."""

from __future__ import annotations

import numpy as np
import pytest
from triton_runs import on_device, runs

from sinkshot.methods import ilpc, protolp

torch = pytest.importorskip("torch")


def unit_rows(episodes, rows, seed):
    x = np.random.default_rng(seed).normal(size=(episodes, rows, 40))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def classes(episodes, way, rows, seed):
    labels = np.random.default_rng(seed).integers(0, way, (episodes, rows))
    return (labels[:, None, :] == np.arange(way)[:, None]).astype(float)


@runs
@pytest.mark.parametrize(("way", "rows"), [(5, 30), (3, 70), (5, 150), (9, 20)])
def test_the_classifier_learns_as_in_the_readable_code(way, rows):
    from sinkshot.kernels.ilpc_triton import fits, mean_loss

    x, target = unit_rows(3, rows, 0), classes(3, way, rows, 1)
    gram, scores = x @ np.swapaxes(x, -1, -2), np.random.default_rng(2).normal(size=(3, way, rows))
    descent = (15, 0.1, 0.9, 5e-4)
    wanted = ilpc._mean_loss(gram, descent, scores, target, None)
    going = np.array([True, False, True])
    ours = mean_loss(*(on_device(a) for a in (gram, scores, target, going)), descent).cpu().numpy()
    assert fits(way, rows)
    assert not ours[1].any()
    np.testing.assert_allclose(ours[going], wanted[going], atol=3e-6)


@runs
@pytest.mark.parametrize("spent", [False, True])
@pytest.mark.parametrize(("way", "rows"), [(5, 19), (3, 8), (2, 1)])
def test_quotas_are_met_as_in_the_readable_code(way, rows, spent):
    from sinkshot.kernels.sinkhorn_triton import allocate

    rng = np.random.default_rng(0)
    mass = rng.random((4, way, rows)) ** 3
    mass[:, :, : rows // 4] = 0.0  # rows that have a label already
    mass[0, 0] = 0.0  # a class with nothing left
    quota = np.full((4, way, 1), rows / way)
    if spent:
        quota[:, 1] = 0.0
    wanted = ilpc._sinkhorn(mass, quota)
    ours = allocate(on_device(mass), on_device(quota), ilpc._TOLERANCE, ilpc._PASSES)
    np.testing.assert_allclose(ours.cpu().numpy(), wanted, rtol=1e-9, atol=1e-12)


@runs
def test_propagated_labels_are_balanced_as_in_the_readable_code():
    from sinkshot.kernels.sinkhorn_triton import rebalance

    rng, member = np.random.default_rng(0), classes(4, 5, 10, 1)
    labels, target = rng.random((4, 5, 60)), np.full((4, 5, 1), 12.0)
    wanted = protolp.rebalanced(torch.from_numpy(labels), torch.from_numpy(member), torch.from_numpy(target))
    ours = rebalance(*(on_device(a) for a in (labels, member, target)), protolp._ROUGH, 1000)
    np.testing.assert_allclose(ours.cpu().numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)
