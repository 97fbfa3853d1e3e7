"""TIM-GD, alpha-TIM and TIM-ADM: parity with the public code, slopes against autograd, the plain formulas elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import KINDS, check, episodes

from sinkshot import METHODS, InputError, Task
from sinkshot.methods import _tim
from sinkshot.methods.algebra import one_hot
from sinkshot.methods.alpha_tim import by_shot
from sinkshot.preprocess import apply


def unit_task(*, way, shots, queries, width=24, episodes=3, seed=0, dtype="float64"):
    """Rows of unit length around random class centres."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(way), shots)
    truth = rng.integers(0, way, (episodes, queries))
    centres = rng.gamma(1.0, 1.0, (episodes, way, width))
    rows = np.concatenate([centres[:, labels], np.take_along_axis(centres, truth[..., None], axis=1)], axis=1)
    rows = np.abs(rows + 0.5 * rng.normal(size=rows.shape)).astype(dtype)
    task = Task(rows[:, : len(labels)], np.tile(labels, (episodes, 1)), rows[:, len(labels) :], way)
    return apply(task, "E")


def published_loss(torch, weights, task, settings):
    """The loss of one batch, as the description of the public code has it, summed over episodes."""
    support, query = torch.asarray(task.support), torch.asarray(task.query)

    def p(x):
        squares = ((x[:, :, None] - weights[:, None]) ** 2).sum(-1)
        return torch.softmax(-settings.temperature / 2 * squares, dim=-1)

    right = torch.take_along_dim(p(support), torch.asarray(task.labels)[..., None], dim=-1)
    cross_entropy = -torch.log(right + 1e-12).mean(dim=(1, 2)).sum()
    of_queries = p(query)
    mean, a = of_queries.mean(dim=1), settings.alpha
    if a == 1:
        marginal = -(mean * torch.log(mean)).sum()
        conditional = -(of_queries * torch.log(of_queries + 1e-12)).sum(-1).mean(1).sum()
    else:
        marginal = ((1 - (mean**a).sum(-1)) / (a - 1)).sum()
        conditional = ((1 - ((of_queries + 1e-12) ** a).sum(-1)) / (a - 1)).mean(1).sum()
    first, second, third = settings.weights
    return first * cross_entropy - second * marginal + third * conditional


def start_of(task):
    member = one_hot(task.labels, task.way, task.support)
    return member / member.sum(axis=-1, keepdims=True) @ task.support, member


SIZES = [
    {"way": 5, "shots": (1, 1, 1, 1, 1), "queries": 30},
    {"way": 3, "shots": (4, 1, 2), "queries": 7},
    {"way": 12, "shots": (3,) * 12, "queries": 41, "width": 33},
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tim-gd", "alpha-tim"])
def test_scores_and_accuracy_are_those_of_the_published_code(name, kind):
    check(name, kind, logits=True, dtype="float32", count=24, tolerance=1e-4)  # by the compiled kernel
    check(name, kind, logits=True, count=2, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_alternating_directions_are_those_of_the_published_code(kind):
    check("tim-adm", kind, logits=True, tolerance=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0, 0.5])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_slope_is_that_of_autograd(alpha, size):
    torch = pytest.importorskip("torch")
    task, settings = unit_task(**size), _tim.decide((0.3, 1.1, 0.7), alpha, 15.0, 1, 1e-4)
    start, member = start_of(task)
    weights = torch.asarray(start + 0.01, dtype=torch.float64).requires_grad_()
    published_loss(torch, weights, task, settings).backward()
    x = np.concatenate([task.support, task.query], axis=1)
    ours = _tim.gradient(start + 0.01, x, member, settings)
    np.testing.assert_allclose(ours, weights.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("name", "hyper", "alpha"), [("tim-gd", {"weights": (1, 1, 1)}, 1.0), ("alpha-tim", {"alpha": 3}, 3.0)]
)
def test_descent_is_that_of_torch_for_other_ways_and_shots(name, hyper, alpha, size):
    torch = pytest.importorskip("torch")
    task, settings = unit_task(**size), _tim.decide((1, 1, 1), alpha, 15.0, 40, 1e-3)
    weights = torch.asarray(start_of(task)[0]).requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=settings.lr)
    for _ in range(settings.steps):
        optimiser.zero_grad()
        published_loss(torch, weights, task, settings).backward()
        optimiser.step()
    squares = ((task.query[:, :, None] - weights.detach().numpy()[:, None]) ** 2).sum(-1)
    expected = np.exp(-7.5 * squares)
    ours = METHODS[name](task, steps=40, lr=1e-3, **hyper).probabilities
    np.testing.assert_allclose(ours, expected / expected.sum(-1, keepdims=True), atol=1e-9)


def plain_adm(support, labels, query, way, weights=(0.1, 1.0, 0.1), steps=150):
    """One episode of TIM-ADM with weights in feature space, step by step as described."""
    first, second, third = weights
    y = np.eye(way)[labels]
    w = np.stack([support[labels == k].mean(axis=0) for k in range(way)])

    def p(x):
        logits = -7.5 * ((x[:, None] - w) ** 2).sum(-1)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    for _ in range(steps):
        p_s, p_q = p(support), p(query)
        q = p_q ** (1 + third)
        q = q / q.sum(axis=0) ** (second / (second + 1))
        q = q / q.sum(axis=1, keepdims=True)
        c, g = first / (1 + third), len(support) / len(query)
        numerator = c * ((y - p_s).T @ support + w * p_s.sum(axis=0)[:, None])
        numerator = numerator + g * ((q - p_q).T @ query + w * p_q.sum(axis=0)[:, None])
        w = numerator / (c * y.sum(axis=0) + g * q.sum(axis=0))[:, None]
    return p(query)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("weights", [(0.1, 1.0, 0.1), (1, 1, 1)])
def test_alternating_directions_follow_the_formulas_for_other_ways_and_shots(size, weights):
    task = unit_task(**size)
    expected = [plain_adm(*one, task.way, weights) for one in zip(task.support, task.labels, task.query, strict=True)]
    np.testing.assert_allclose(METHODS["tim-adm"](task, weights=weights).probabilities, expected, atol=1e-7)


def test_alpha_is_the_authors_for_each_shot():
    assert [by_shot(s) for s in (1, 1.8, 2, 3, 4.9, 5, 20)] == [2, 2, 5, 5, 5, 7, 7]
    task = unit_task(way=3, shots=(5, 5, 5), queries=9)
    auto, seven, two = (METHODS["alpha-tim"](task, alpha=a).probabilities for a in ("auto", 7, 2))
    np.testing.assert_array_equal(auto, seven)
    assert not np.allclose(auto, two, atol=1e-4)


def test_shannon_is_the_limit_of_alpha_at_one():
    task = unit_task(way=4, shots=(2,) * 4, queries=20)
    near, at = (METHODS["alpha-tim"](task, alpha=a, steps=50).probabilities for a in (1 + 1e-7, 1))
    np.testing.assert_allclose(near, at, atol=1e-6)


def test_unequal_query_sizes_bring_the_weights_of_their_authors():
    assert METHODS["tim-gd"].imbalanced == {"weights": (1.0, 1.0, 1.0)}
    assert METHODS["tim-gd"].hyper["weights"] == (0.1, 1.0, 0.1)


@pytest.mark.parametrize("name", ["tim-gd", "alpha-tim", "tim-adm"])
@pytest.mark.parametrize("wrong", [1.0, (1, 1), "1,1", (1, 1, float("nan")), (1, 1, True), (1, -1, 1)])
def test_weights_that_are_not_three_numbers_are_refused(name, wrong):
    with pytest.raises(InputError, match="weights"):
        METHODS[name](unit_task(way=2, shots=(1, 1), queries=3), weights=wrong)


def test_distant_rows_do_not_break_the_logarithms():
    task, _ = episodes("5w1s15q", slice(2))
    far = Task(100 * task.support, task.labels, 100 * task.query, 5)
    for name in ("tim-gd", "alpha-tim", "tim-adm"):
        p = METHODS[name](far, steps=20).probabilities
        assert np.isfinite(p).all()
