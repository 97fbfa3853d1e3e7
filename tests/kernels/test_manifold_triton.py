"""TIM and adaptive manifold on the GPU: the steps of the readable code, at tiny sizes where Triton interprets it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from triton_runs import on_device, runs

from sinkshot.methods import _tim
from sinkshot.methods._adam import adam

torch = pytest.importorskip("torch")


def made(rows, shots, seed=2, way=5, width=70):
    """Clustered rows of unit length [2, rows, width], the classes of the supports, and their means."""
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.normal(size=(2, rows, width)) + 0.5 * rng.normal(size=(way, width))[np.arange(rows) % way]
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    labels = np.arange(shots * way) % way
    member = np.broadcast_to((labels == np.arange(way)[:, None]) * 1.0, (2, way, shots * way))
    return x, member, member @ x[:, : shots * way] / shots


@runs
@pytest.mark.parametrize(("alpha", "rows"), [(1.0, 30), (2.0, 30), (7.0, 30), (1.0, 130)])
def test_weights_move_as_in_the_readable_code(alpha, rows):
    from sinkshot.kernels.tim_triton import tim

    x, member, start = made(rows, 2)
    settings = _tim.decide((1.0, 1.0, 0.5), alpha, 15.0, 12, 1e-3)
    wanted = adam(start, lambda w: _tim.gradient(w, x, member, settings), steps=12, lr=1e-3)
    ours = tim(*(on_device(a.astype(np.float32)) for a in (x, member, start)), settings).cpu().numpy()
    assert np.abs(wanted - start).max() > 5e-3
    assert np.median(np.abs(ours - wanted)) < 1e-7
    np.testing.assert_allclose(ours, wanted, atol=2e-5)  # Adam turns the rounding of a slope near zero into a step


@runs
@pytest.mark.parametrize("shots", [1, 5])
def test_a_linear_layer_moves_as_in_the_readable_code(shots):
    from sinkshot.kernels.linear_triton import linear
    from sinkshot.methods.sgc import train

    x, member, _ = made(5 * shots, shots)
    x = np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)  # an intercept, whose first slopes cancel
    start = np.zeros((2, 5, x.shape[-1]))
    wanted = train(start, x, member, 12, 1e-3, 5e-6)
    given = (on_device(a.astype(np.float32)) for a in (x, member, start))
    ours = linear(*given, decay=5e-6, least=2.0**-25, lr=1e-3, steps=12).cpu().numpy()
    assert np.abs(wanted).max() > 5e-3
    np.testing.assert_allclose(ours, wanted, atol=1e-6)


@runs
@pytest.mark.parametrize(("alpha", "rows", "shots", "k"), [(1.0, 25, 2, 5), (2.0, 25, 1, 5), (1.0, 140, 1, 10)])
def test_centroids_and_edges_move_as_in_the_readable_code(alpha, rows, shots, k):
    """In float64: in float32, two neighbours that are equally far but for rounding may swap places."""
    from sinkshot.kernels.manifold_cuda import ManifoldOnGPU
    from sinkshot.kernels.manifold_torch import Manifold

    x, member, start = (torch.from_numpy(np.array(a)) for a in made(rows, shots))
    settings = _tim.decide((1.0, 10.0, 1.0), alpha, 15.0, 7, 1e-4)
    theirs = Manifold(x, start, k, 0.8, 15.0, 1e-4, partial(_tim.slope_by_logits, member=member, settings=settings))
    wanted = theirs.descend(7)
    ours = ManifoldOnGPU(*(on_device(a.numpy()) for a in (x, member, start)), k, 0.8, settings)
    np.testing.assert_allclose(ours.descend(7).cpu().numpy(), wanted.numpy(), atol=1e-7)
    for a, b in ((ours.shift, theirs.shift), (ours.width, theirs.width), (ours.strength, theirs.strength)):
        off = np.abs(a.cpu().numpy() - b.numpy())
        assert np.median(off) < 1e-7
        assert off.max() < 5e-5  # Adam turns the rounding of a slope near zero into a step
    for array in (ours.width, ours.strength, ours.chosen, ours.strong, ours.inverse, *ours.moments):
        total, stride = array.shape[-1], array.stride(1)
        assert stride > total
        whole = array.as_strided((2, total, stride), (total * stride, stride, 1))
        assert not whole[..., total:].any()  # kernels read and write it with the rest


@runs
def test_as_many_neighbours_as_asked_are_chosen_and_ties_all():
    from sinkshot.kernels.manifold_triton import choose

    rng = np.random.default_rng(0)
    distances = rng.random((2, 19, 19)).astype(np.float32) + 0.1
    distances[1, 7, 3] = distances[1, 7, 4] = 0.01  # a tie at the first place
    width = np.ones_like(distances)
    near = np.exp(-distances / 0.5)
    near[:, :3] = 0.0
    near[:, np.arange(19), np.arange(19)] = 0.0
    chosen = torch.empty((2, 19, 19), device=on_device(width).device)
    for k in (1, 5, 40):
        choose(on_device(width), on_device(distances), on_device(np.full((2, 1, 1), 0.5, np.float32)), 3, k, chosen)
        least = np.sort(near, axis=-1)[..., [max(0, 19 - k)]]
        np.testing.assert_allclose(chosen.cpu().numpy(), np.where(near >= least, near, 0.0), atol=1e-6)
        assert (chosen[:, 3:].cpu().numpy() > 0).sum(axis=-1).max() == {1: 2, 5: 5, 40: 18}[k]
