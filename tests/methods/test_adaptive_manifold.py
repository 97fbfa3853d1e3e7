"""Adaptive manifold: the authors' computation by torch's autograd and optimiser, step for step."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import episodes
from test_contract import make_task

from sinkshot import METHODS, InputError
from sinkshot.preprocess import apply


def by_torch(torch, task, *, k, spread, alpha, weights, steps, lr):
    """One batch as the authors compute it: loss by autograd, all three kinds of parameters by torch's Adam."""
    support, query = torch.asarray(task.support), torch.asarray(task.query)
    way, labels = task.way, torch.asarray(task.labels)
    member = torch.nn.functional.one_hot(labels.long(), way).to(support.dtype)  # [R, l, way]
    means = member.transpose(1, 2) @ support / member.sum(dim=1)[..., None]
    episodes, total = len(support), way + support.shape[1] + query.shape[1]
    width = torch.ones(episodes, total, total, dtype=support.dtype)
    strength = width * spread
    moving = [t.clone().requires_grad_() for t in (means, strength, width)]
    means, strength, width = moving
    optimiser = torch.optim.Adam(moving, lr=lr)
    sources = torch.eye(total, dtype=support.dtype)[:, :way].expand(episodes, -1, -1)
    for _ in range(steps):
        rows = torch.cat([means, support, query], dim=1)
        distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
        near = torch.exp(-distances / distances.std(dim=(1, 2), keepdim=True) * width)
        chooses = (torch.arange(total) >= way).to(near.dtype)[:, None] * (1 - torch.eye(total, dtype=near.dtype))
        near = near * chooses
        mask = near >= near.topk(k, dim=-1).values[..., -1:]  # at the start a centroid may tie with its only support
        edges = (near * mask + (near * mask).transpose(1, 2)) / 2 * strength
        root = 1 / torch.sqrt(edges.sum(dim=-1) + 1e-12)
        graph = root[:, :, None] * edges * root[:, None]
        scores = 15 * torch.linalg.inv(torch.eye(total, dtype=near.dtype) - spread * graph) @ sources
        p_s, p_q = (
            part.softmax(dim=-1) for part in (scores[:, way : way + labels.shape[1]], scores[:, -query.shape[1] :])
        )
        loss = -weights[0] * (member * torch.log(p_s + 1e-12)).sum(dim=2).mean(dim=1).sum()
        mean = p_q.mean(dim=1)
        if alpha == 1:
            of_mean = -(mean * torch.log(mean)).sum()
            of_each = -(p_q * torch.log(p_q + 1e-12)).sum(dim=2).mean(dim=1).sum()
        else:
            of_mean = ((1 - (mean**alpha).sum(dim=1)) / (alpha - 1)).sum()
            of_each = ((1 - ((p_q + 1e-12) ** alpha).sum(dim=2)) / (alpha - 1)).mean(dim=1).sum()
        optimiser.zero_grad()
        (loss - weights[1] * of_mean + weights[2] * of_each).backward()
        optimiser.step()
    return p_q.detach().numpy()


@pytest.mark.parametrize(
    "size",
    [{"queries": 20}, {"shots": (1, 5, 2, 3), "queries": 15}, {"way": 7, "shots": (1,) * 7, "queries": 30}],
    ids=str,
)
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_it_is_the_authors_computation_for_other_ways_and_shots(size, alpha):
    torch = pytest.importorskip("torch")
    task = apply(make_task(**size), "PEMnE")
    how = {"k": 5, "spread": 0.85, "alpha": alpha, "weights": (1.0, 3.0, 0.5), "steps": 40, "lr": 1e-2}
    ours = METHODS["adaptive-manifold"](task, **how).probabilities
    assert np.abs(ours - METHODS["adaptive-manifold"](task, **{**how, "steps": 1}).probabilities).max() > 1e-3
    np.testing.assert_allclose(ours, by_torch(torch, task, **how), atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [("5w1s15q", (20, 0.8, 2.0)), ("5w5s15q", (10, 0.9, 5.0))])
def test_settings_are_the_authors_for_each_shot(kind, settings):
    torch = pytest.importorskip("torch")
    task, _ = episodes(kind, slice(1))
    task = apply(task, "PEMnE")
    k, spread, alpha = settings
    for hyper, order, weights in (({}, 1.0, (1, 10, 1)), (METHODS["adaptive-manifold"].imbalanced, alpha, (1, 1, 1))):
        ours = METHODS["adaptive-manifold"](task, steps=12, **hyper).probabilities
        expected = by_torch(torch, task, k=k, spread=spread, alpha=order, weights=weights, steps=12, lr=1e-4)
        np.testing.assert_allclose(ours, expected, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["5w5s15q", "dir1"])
def test_single_precision_which_is_compiled_gives_the_labels_of_double(kind):
    tasks = [apply(episodes(kind, slice(8), dtype=dtype)[0], "PEMnE") for dtype in ("float32", "float64")]
    hyper = METHODS["adaptive-manifold"].imbalanced if kind == "dir1" else {}
    single, double = (METHODS["adaptive-manifold"](task, steps=100, **hyper).probabilities for task in tasks)
    assert single.dtype == np.float32
    assert (single.argmax(axis=-1) == double.argmax(axis=-1)).mean() >= 0.995
    assert np.abs(single - double).mean() < 3e-3


def test_it_gains_on_its_own_start():
    task, labels = episodes("5w1s15q", slice(4), dtype="float32")
    task = apply(task, "PEMnE")
    before, after = (METHODS["adaptive-manifold"](task, steps=s).probabilities for s in (1, 300))
    right = [(p.argmax(axis=-1) == labels).mean() for p in (before, after)]
    assert right[1] > right[0] + 0.01


@pytest.mark.parametrize("key", ["k", "spread", "alpha"])
def test_settings_that_are_neither_auto_nor_numbers_are_refused(key):
    with pytest.raises(InputError, match=key):
        METHODS["adaptive-manifold"](make_task(), **{key: "many"})
