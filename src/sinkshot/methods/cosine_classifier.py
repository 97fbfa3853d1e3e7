"""Baseline++: Chen et al., "A closer look at few-shot classification", ICLR 2019: its second stage, on fixed features.

A linear layer on features of unit length whose class weights are split into length and direction, W = g v / |v|, is
trained on the supports by SGD with momentum and weight decay.

The public code starts v at random and shuffles mini-batches of four. Here v starts at the class means, with |v| and g
at the length of torch's random weights, and the same number of steps uses all supports: the same descent without noise,
which costs the public code two points at one shot and nothing at five. With `seed` the start is random.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task

EPOCHS, BATCH = 100, 4  # of the public code
LENGTH = 3**-0.5  # of a row of torch's weights, uniform within 1 / sqrt(d)


@register("baseline-plus-plus", transductive=False, preprocess="E", random=True, reference="Chen et al. 2019")
def cosine_classifier(
    task: Task,
    *,
    scale: float = 2.0,
    steps: int | str = "auto",
    lr: float = 0.01,
    momentum: float = 0.9,
    dampening: float = 0.9,
    decay: float = 1e-3,
    seed: int | None = None,
) -> Scores:
    """Train a cosine classifier with learnt lengths of the class weights on the supports.

    Parameters
    ----------
    scale : float
        Multiplies the cosines.
    steps : int or "auto"
        Gradient steps; "auto" takes as many as 100 epochs of mini-batches of four.
    lr, momentum, dampening, decay : float
        Parameters of stochastic gradient descent.
    seed : int, optional
        Seed of a random start, the same for every episode; without it the weights start at the class means.
    """
    steps = EPOCHS * -(-task.supports // BATCH) if steps == "auto" else whole("steps (unless 'auto')", steps, 0)
    scale, lr, decay = number("scale", scale, above=0), number("lr", lr, above=0), number("decay", decay)
    momentum, fresh = number("momentum", momentum), 1 - number("dampening", dampening)
    xp = array_namespace(task.support, task.query)
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    x, v = task.support, member / xp.sum(member, axis=-1, keepdims=True)
    if seed is not None:
        others = _random(task, whole("seed", seed, least=0))  # [R, way, d]
        x, member = (
            xp.concat([x, others], axis=-2),
            xp.concat([member, xp.zeros_like(others[..., : task.way])], axis=-1),
        )
        v = xp.zeros_like(member) + xp.eye(*member.shape[-2:], k=task.supports, dtype=x.dtype, device=device(x))
    gram = x @ xp.matrix_transpose(x)  # [R, n, n]: supports, then where a random start begins
    inside = xp.sum(member, axis=-2, keepdims=True)  # [R, 1, n]: one for a support

    v, g = v * (LENGTH / _norm(v, v @ gram)), xp.full_like(v[..., :1], LENGTH)
    v_speed, g_speed = xp.zeros_like(v), xp.zeros_like(g)
    for step in range(steps):
        scores = v @ gram
        norm = _norm(v, scores)
        p = softmax(scale * g / norm * scores, axis=-2)
        pull = (scale / task.supports) * (p * inside - member)  # gradient by W
        by_g = xp.sum(pull * scores, axis=-1, keepdims=True) / norm
        by_v = (g / norm) * (pull - by_g / norm * v)
        rate = fresh if step else 1.0  # torch does not dampen the first step
        v_speed = momentum * v_speed + rate * (by_v + decay * v)
        g_speed = momentum * g_speed + rate * (by_g + decay * g)
        v, g = v - lr * v_speed, g - lr * g_speed
    scores = v @ (x @ xp.matrix_transpose(task.query))  # [R, way, q]
    return Scores(by_query(softmax(scale * g / _norm(v, v @ gram) * scores, axis=-2)))


def _norm(v: Array, scores: Array) -> Array:
    """Return |v| [R, way, 1] of the weights with coefficients v and scores v G; one for a zero weight."""
    xp = array_namespace(v)
    norm = xp.sqrt(xp.clip(xp.sum(v * scores, axis=-1, keepdims=True), min=0.0))
    return xp.where(norm > 0, norm, xp.ones_like(norm))


def _random(task: Task, seed: int) -> Array:
    """Return a random direction for each class, [R, way, d]."""
    xp = array_namespace(task.support)
    drawn = np.random.default_rng(seed).uniform(-1.0, 1.0, (task.way, task.support.shape[-1]))
    first = xp.asarray(drawn, dtype=task.support.dtype, device=device(task.support))
    return first + xp.zeros_like(task.support[:, :1, :])
