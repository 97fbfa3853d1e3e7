"""Baseline++: its descent matches torch's weight norm and SGD, its accuracy the public code's within noise."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import episodes
from test_contract import make_task

from sinkshot import METHODS
from sinkshot.methods.cosine_classifier import LENGTH
from sinkshot.preprocess import apply


def by_torch(torch, support, labels, query, v, batches):
    """One episode with torch's optimiser on the length and the direction of each weight; `batches` of row numbers."""
    x, y = torch.asarray(support), torch.asarray(labels).long()
    v = torch.asarray(v).requires_grad_()
    g = v.detach().norm(dim=1, keepdim=True).clone().requires_grad_()
    optimiser = torch.optim.SGD([g, v], lr=0.01, momentum=0.9, dampening=0.9, weight_decay=0.001)
    for batch in batches:
        optimiser.zero_grad()
        weights = g * v / v.norm(dim=1, keepdim=True)
        torch.nn.functional.cross_entropy(2 * x[batch] @ weights.T, y[batch]).backward()
        optimiser.step()
    weights = g * v / v.norm(dim=1, keepdim=True)
    return torch.softmax(2 * torch.asarray(query) @ weights.T, dim=1).detach().numpy()


@pytest.mark.parametrize("size", [{}, {"shots": (1, 5, 2, 3)}, {"way": 2, "shots": (1, 1)}], ids=str)
@pytest.mark.parametrize("seed", [None, 5])
def test_the_descent_is_that_of_torch_on_all_supports(size, seed):
    torch = pytest.importorskip("torch")
    task = apply(make_task(**size), "E")
    ours = METHODS["baseline-plus-plus"](task, steps=120, seed=seed).probabilities
    for r in range(3):
        means = np.stack([task.support[r, task.labels[r] == k].mean(axis=0) for k in range(task.way)])
        if seed is not None:
            means = np.random.default_rng(seed).uniform(-1, 1, means.shape)
        v = LENGTH * means / np.linalg.norm(means, axis=1, keepdims=True)
        everything = [np.arange(task.supports)] * 120
        expected = by_torch(torch, task.support[r], task.labels[r], task.query[r], v, everything)
        np.testing.assert_allclose(ours[r], expected, atol=1e-9)


def test_the_number_of_steps_is_that_of_a_hundred_epochs_of_mini_batches():
    task = apply(make_task(shots=(2, 2, 2, 3)), "E")  # nine supports, three mini-batches
    auto, given = (METHODS["baseline-plus-plus"](task, steps=s).probabilities for s in ("auto", 300))
    np.testing.assert_array_equal(auto, given)


@pytest.mark.slow
def test_accuracy_is_near_that_of_the_public_code_with_its_random_start_and_batches():
    torch = pytest.importorskip("torch")
    task, labels = episodes("5w5s15q", slice(4))
    task = apply(task, "E")
    rng, right = np.random.default_rng(0), []
    for r in range(4):
        v = rng.uniform(-1, 1, (5, 640)) / 640**0.5
        batches = [part for _ in range(100) for part in np.split(rng.permutation(25), range(4, 25, 4))]
        p = by_torch(torch, task.support[r], task.labels[r], task.query[r], v, batches)
        right.append((p.argmax(axis=-1) == labels[r]).mean())
    ours = METHODS["baseline-plus-plus"](task).probabilities
    assert abs((ours.argmax(axis=-1) == labels).mean() - np.mean(right)) < 0.02
