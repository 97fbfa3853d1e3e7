"""OSTIM: Boudiaf et al., "Model-agnostic few-shot open-set recognition", 2022 (TIM with a class for outliers).

The unknown class is one more column beside the cosines with the prototypes: minus their mean. Prototypes minimise TIM's
loss over all columns: cross-entropy of the supports, minus the mutual information of the queries.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods._adam import adam
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task

_BESIDE_P = 1e-12  # in the logarithm of a query's probabilities


@register("ostim", transductive=True, preprocess="", reference="Boudiaf et al. 2022 (OSTIM)")
def ostim(
    task: Task,
    *,
    temperature: float = 10.0,
    weights: tuple[float, float, float] = (1.0, 0.1, 1.0),
    steps: int | str = "auto",
    lr: float = 1e-3,
) -> Scores:
    """Train prototypes by TIM's loss over the classes and one unknown column, which is `unknown`.

    Parameters
    ----------
    temperature : float
        Multiplies the cosines.
    weights : three numbers
        Weights of the supports' cross-entropy, the queries' mean entropy, and the entropy of their mean (maximised).
    steps, lr : int or "auto", float
        Steps and learning rate of Adam. "auto" is as published: 50 steps at five shots, else 200.
    """
    temperature, lr = number("temperature", temperature, above=0), number("lr", lr, above=0)
    of_supports, of_each, of_mean = (number("weights", weight) for weight in weights)
    if steps == "auto":
        steps = 50 if task.supports == 5 * task.way else 200
    steps = whole("steps (unless 'auto')", steps, least=0)
    xp = array_namespace(task.support, task.query)
    rows = xp.concat([task.support, task.query], axis=-2)  # [R, N, d]
    mean = xp.mean(rows, axis=-2, keepdims=True)
    rows, _ = _unit(rows - mean)
    across = xp.matrix_transpose(rows)
    member = one_hot(task.labels, task.way, rows)  # [R, way, l]
    known = xp.concat([member, xp.zeros_like(member[..., :1, :])], axis=-2)  # [R, way + 1, l]

    def logits(prototypes: Array) -> Array:
        cosine = _unit(prototypes)[0] @ across  # [R, way, N]
        return temperature * xp.concat([cosine, -xp.mean(cosine, axis=-2, keepdims=True)], axis=-2)

    def gradient(prototypes: Array) -> Array:
        p = softmax(logits(prototypes), axis=-2)  # [R, way + 1, N]
        of_support, p = p[..., : task.supports], p[..., task.supports :]
        wish = of_mean * xp.log(xp.clip(xp.mean(p, axis=-1, keepdims=True), min=_BESIDE_P))
        wish = wish - of_each * (xp.log(p + _BESIDE_P) + p / (p + _BESIDE_P))  # d loss / d p, times q, up to a constant
        of_query = p * (wish - xp.sum(p * wish, axis=-2, keepdims=True)) / task.queries
        slope = xp.concat([of_supports * (of_support - known) / task.supports, of_query], axis=-1)  # d loss / d logits
        slope = temperature * (slope[..., :-1, :] - slope[..., -1:, :] / task.way) @ rows  # d loss / d unit prototypes
        direction, length = _unit(prototypes)
        return (slope - xp.sum(slope * direction, axis=-1, keepdims=True) * direction) / length

    start = (member @ task.support) / xp.sum(member, axis=-1, keepdims=True) - mean  # the mean is a fixed shift
    final = logits(adam(start, gradient, steps=steps, lr=lr))[..., task.supports :]
    return Scores(by_query(softmax(final[..., :-1, :], axis=-2)), unknown=softmax(final, axis=-2)[..., -1, :])


def _unit(x: Array) -> tuple[Array, Array]:
    """Rows at unit length, and their length; zero stays zero."""
    xp = array_namespace(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    length = xp.where(length > 0, length, xp.ones_like(length))
    return x / length, length
