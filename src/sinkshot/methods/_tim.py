"""Transductive information maximisation by gradient descent: what TIM-GD and alpha-TIM share.

Class weights W start at the mean of the supports, logits are -(temperature / 2) ||x - W_k||^2, and Adam minimises

    weights[0] cross-entropy(supports) - weights[1] entropy(mean p of the queries) + weights[2] mean entropy(their p)

where the entropy is Shannon's, or for alpha other than one Tsallis' (1 - sum p^alpha) / (alpha - 1). The code is the
readable reference; batches of float32 on NumPy are computed by `kernels.tim_numba`, which does the same.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from sinkshot.errors import InputError, number, whole
from sinkshot.kernels import jit_disabled
from sinkshot.methods._adam import adam
from sinkshot.methods.algebra import one_hot, softmax
from sinkshot.settings.constants import TIM_EPSILON, TIM_LEAST
from sinkshot.settings.tim import TIMSettings
from sinkshot.task import Array, Task


def decide(weights: Any, alpha: float, temperature: float, steps: int, lr: float) -> TIMSettings:
    """Check hyper-parameters."""
    return TIMSettings(
        three("weights", weights),
        number("alpha", alpha, above=0),
        number("temperature", temperature, above=0),
        whole("steps", steps, least=0),
        number("lr", lr, above=0),
    )


def three(name: str, values: Any) -> tuple[float, float, float]:
    """Return the weights of the three terms of the loss."""
    given = tuple(values) if isinstance(values, list | tuple | np.ndarray) else ()
    if len(given) != 3 or any(number(name, value) < 0 for value in given):
        raise InputError(f"{name} must be three non-negative numbers, such as 0.1,1,0.1; {values!r} was given.")
    return float(given[0]), float(given[1]), float(given[2])


def probabilities(task: Task, settings: TIMSettings) -> Array:
    """Return p of the queries [R, way, q] with the weights after the last step."""
    xp = array_namespace(task.support, task.query)
    x = xp.concat([task.support, task.query], axis=-2)  # [R, N, d]
    member = one_hot(task.labels, task.way, task.support)  # [R, way, l]
    start = (member / xp.sum(member, axis=-1, keepdims=True)) @ task.support  # [R, way, d]
    if fused(x, settings.steps):
        from sinkshot.kernels.tim_numba import tim

        final = tim(x, member, start, settings)
    elif in_triton(x, task.way):
        from sinkshot.kernels.tim_triton import tim as on_gpu

        final = on_gpu(x, member, start, settings)
    else:
        final = adam(start, lambda w: gradient(w, x, member, settings), steps=settings.steps, lr=settings.lr)
    return softmax(logits(final, task.query, settings.temperature), axis=-2)


def logits(weights: Array, x: Array, temperature: float) -> Array:
    """Return temperature (w . x - |w|^2 / 2) [R, way, n]: minus half squared distances, up to a constant per row."""
    xp = array_namespace(weights)
    half = xp.sum(weights * weights, axis=-1, keepdims=True) / 2
    return temperature * (weights @ xp.matrix_transpose(x) - half)


def gradient(weights: Array, x: Array, member: Array, settings: TIMSettings) -> Array:
    """Return the gradient of each episode's loss by its weights, [R, way, d]; rows x [R, N, d], supports first."""
    xp = array_namespace(weights)
    p = softmax(logits(weights, x, settings.temperature), axis=-2)
    slope = slope_by_logits(p, member, settings)  # [R, way, N]
    pull = slope @ x - xp.sum(slope, axis=-1, keepdims=True) * weights
    return settings.temperature * pull


def slope_by_logits(p: Array, member: Array, settings: TIMSettings) -> Array:
    """Return the gradient of the loss by the logits that gave p, [R, way, N]."""
    xp = array_namespace(p)
    supports = member.shape[-1]
    of_supports, of_queries = p[..., :supports], p[..., supports:]
    right = xp.sum(member * of_supports, axis=-2, keepdims=True)  # [R, 1, l]
    miss = (of_supports - member) * (right / (right + TIM_EPSILON))
    mean = xp.clip(xp.mean(of_queries, axis=-1, keepdims=True), min=TIM_LEAST)  # [R, way, 1]
    alpha = settings.alpha
    if alpha == 1:
        shifted = of_queries + TIM_EPSILON
        by_mean, by_each = xp.log(mean), xp.log(shifted) + of_queries / shifted
    else:
        factor = alpha / (alpha - 1)
        by_mean, by_each = factor * mean ** (alpha - 1), factor * (of_queries + TIM_EPSILON) ** (alpha - 1)
    by_p = settings.weights[1] * by_mean - settings.weights[2] * by_each  # times q, up to a constant per row
    back = of_queries * (by_p - xp.sum(of_queries * by_p, axis=-2, keepdims=True))
    return xp.concat([miss * (settings.weights[0] / supports), back / of_queries.shape[-1]], axis=-1)


def in_triton(x: Array, way: int) -> bool:
    """Whether float32 rows [R, N, d] are on an NVIDIA GPU with triton, and an episode fits into one of its programs."""
    if not getattr(x, "is_cuda", False) or importlib.util.find_spec("triton") is None:
        return False
    from sinkshot.kernels.tim_triton import fits

    return x.dtype == array_namespace(x).float32 and fits(way, x.shape[1])


FROM_EPISODES, FROM_STEPS = 8, 100  # below, NumPy finishes before the compiler would
MOST_NUMBERS = 1 << 21  # entries of an episode's features; BLAS is better for larger products


def fused(x: Array, steps: int, least: int = FROM_EPISODES) -> bool:
    """Whether the compiled kernel pays off for rows [R, N, d]: many episodes, each small enough for one core."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or jit_disabled():
        return False
    episodes, rows, width = x.shape
    return episodes >= least and rows * width <= MOST_NUMBERS and steps >= FROM_STEPS
