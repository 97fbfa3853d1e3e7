"""OSLO and OSTIM: parity with the public code on open-set episodes; the plain formulas elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import check, open_set
from scipy.special import expit, softmax
from test_contract import make_task

from sinkshot import METHODS
from sinkshot.preprocess import apply

CASES = [("oslo", "oslo", None), ("oslo", "oslo-sqrt", "PsMnE"), ("ostim", "ostim", None)]
KINDS = ("5w1s15q", "5w5s15q")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "file", "chain"), CASES)
def test_scores_and_closed_accuracy_are_those_of_the_public_code(name, file, chain, kind):
    check(name, kind, file=file, chain=chain, count=40, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "file", "chain"), CASES)
def test_unknown_scores_and_their_auroc_are_those_of_the_public_code(name, file, chain, kind):
    unknown, theirs, auroc, their_auroc = open_set(name, kind, file=file, chain=chain, dtype="float32")
    np.testing.assert_allclose(unknown[:16], theirs, atol=1e-4)
    np.testing.assert_allclose(auroc, their_auroc, atol=3e-3)  # a sigmoid near one has ties in single precision
    assert auroc.mean() == pytest.approx(their_auroc.mean(), abs=2e-4)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def plain_oslo(support, labels, query, way):
    """One episode of raw features, step by step as the public code is described."""
    mean = np.concatenate([support, query]).mean(axis=0)
    support, query, member = unit(support - mean), unit(query - mean), np.eye(way)[labels]
    prototypes = member.T @ support / member.sum(axis=0)[:, None]
    z = np.full((len(query), way), 1 / way)
    for _ in range(2):
        cosine = query @ unit(prototypes).T
        inlier = expit((z * cosine).sum(axis=1, keepdims=True) / 0.05)
        z = softmax(inlier * cosine / 0.1, axis=1)
        weight = inlier * z
        prototypes = (member.T @ support + weight.T @ query) / (member.sum(axis=0) + weight.sum(axis=0))[:, None]
    return softmax(query @ unit(prototypes).T, axis=1), 1 - inlier[:, 0]


def plain_ostim(support, labels, query, way):
    """One episode of raw features by torch's own slopes and optimiser."""
    torch = pytest.importorskip("torch")
    steps = 50 if len(labels) == 5 * way else 200
    support, query, labels = torch.asarray(support), torch.asarray(query), torch.asarray(labels).long()
    mean = torch.cat([support, query]).mean(dim=0)
    prototypes = torch.stack([support[labels == k].mean(dim=0) for k in range(way)]).requires_grad_()
    optimiser = torch.optim.Adam([prototypes], lr=1e-3)

    def logits(x):
        x, centres = (torch.nn.functional.normalize(y - mean, dim=1) for y in (x, prototypes))
        cosine = x @ centres.T
        return 10 * torch.cat([cosine, -cosine.mean(dim=1, keepdim=True)], dim=1)

    for _ in range(steps):
        p = logits(query).softmax(dim=1)
        entropy = -(p * torch.log(p + 1e-12)).sum(dim=1).mean()
        share = p.mean(dim=0)
        loss = torch.nn.functional.cross_entropy(logits(support), labels) + 0.1 * entropy + (share * share.log()).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    final = logits(query).detach().numpy()
    return softmax(final[:, :-1], axis=1), softmax(final, axis=1)[:, -1]


@pytest.mark.parametrize(
    "size",
    [
        {"way": 2, "shots": (1, 1), "queries": 7},
        {"way": 3, "shots": (5, 5, 5), "queries": 4},
        {"way": 10, "shots": (10,) * 10, "queries": 41},
        {"way": 4, "shots": (1, 4, 2, 7), "queries": 12},
    ],
    ids=str,
)
@pytest.mark.parametrize(("name", "plain"), [("oslo", plain_oslo), ("ostim", plain_ostim)])
def test_they_follow_the_formulas_for_other_ways_and_shots(name, plain, size):
    method, task = METHODS[name], make_task(**size, episodes=2)
    rows = zip(task.support, task.labels, task.query, strict=True)
    closed, unknown = zip(*(plain(*one, task.way) for one in rows), strict=True)
    for given, tolerance in [(task, 1e-9), (make_task(**size, episodes=2, dtype="float32"), 1e-4)]:
        ours = method(apply(given, method.preprocess))
        np.testing.assert_allclose(ours.probabilities, closed, atol=tolerance)
        np.testing.assert_allclose(ours.unknown, unknown, atol=tolerance)
