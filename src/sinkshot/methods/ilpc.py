"""iLPC: Lazarou, Stathaki, Avrithis, "Iterative label cleaning for transductive and semi-supervised few-shot
learning", ICCV 2021.

Labels spread over a graph of nearest neighbours and are balanced by Sinkhorn. A linear classifier then learns these
pseudo-labels; the queries that it finds easiest join the labelled rows, a few per class, and the next round begins.
The number of queries of each class is assumed to be known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

from sinkshot.errors import number, whole
from sinkshot.kernels import jit_disabled
from sinkshot.methods._sinkhorn import in_triton
from sinkshot.methods.algebra import by_query, one_hot, softmax
from sinkshot.methods.priors import Prior, column_targets
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task

_LEAST = 5  # queries that a round must add at least, for any number of classes
_TOLERANCE, _PASSES = 1e-6, 1000  # of Sinkhorn
_ASKED = 20  # passes between questions whether one more is needed, where an answer must come from a device
_POWER = 3  # of similarities, and of probabilities before Sinkhorn
Descent = tuple[int, float, float, float]  # epochs, lr, momentum, weight decay


@register(
    "ilpc",
    transductive=True,
    preprocess="PsEMnE",
    gram=True,
    balanced=True,
    reference="Lazarou, Stathaki, Avrithis 2021 (iLPC)",
)
def ilpc(
    task: Task | GramTask,
    *,
    neighbours: int = 20,
    alpha: float = 0.8,
    best: int = 3,
    epochs: int = 1000,
    lr: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    prior: Prior = "balanced",
) -> Scores:
    """Label queries in rounds, starting with those that a classifier of all pseudo-labels finds easiest.

    Parameters
    ----------
    neighbours, alpha : int, float
        Neighbours of each row in the graph W, and how far labels spread over it: (I - alpha W)^-1.
    best : int
        Queries of each class that a round may add.
    epochs, lr, momentum, weight_decay : int, float
        Gradient descent of the classifier. Its bias starts at zero (at random in the public code, without effect).
    prior : "balanced", "estimated" or class proportions
        Class proportions among the queries, which determine the number of queries per class.
    """
    neighbours, alpha = whole("neighbours", neighbours, least=1), number("alpha", alpha, above=0)
    best, epochs = whole("best", best, least=1), whole("epochs", epochs, least=1)
    descent = (epochs, number("lr", lr, above=0), number("momentum", momentum), number("weight_decay", weight_decay))
    gram = _gram(task)
    xp = array_namespace(gram)
    spread = _spread(gram, neighbours, alpha)  # [R, N, N]
    labelled = one_hot(task.labels, task.way, gram)
    labelled = xp.concat([labelled, xp.zeros_like(gram[..., : task.way, : task.queries])], axis=-1)  # [R, way, N]
    quota = column_targets(prior, task, gram) + xp.zeros_like(gram[..., :1, :1])  # [R, way, 1]
    going = xp.ones_like(quota[..., :1, :])  # [R, 1, 1], one where there is a next round
    answer = xp.zeros_like(labelled)
    trained = _trainer(gram, task.way, descent)
    for _ in range(task.queries):
        free = going * (1.0 - xp.sum(labelled, axis=-2, keepdims=True))  # [R, 1, N], queries without a label
        reached = labelled @ spread
        share = xp.clip(reached, min=0.0)
        share = share / xp.clip(xp.sum(share, axis=-2, keepdims=True), min=1e-12)
        allocated = _sinkhorn(free * share**_POWER, quota)
        none = xp.max(allocated, axis=-2, keepdims=True) <= 0  # no class has room for them
        pseudo = free * one_hot(xp.argmax(xp.where(none, reached, allocated), axis=-2), task.way, gram)
        answer = xp.where(free > 0, pseudo, answer)
        target = xp.where(free > 0, pseudo, labelled)
        loss = trained(_start(gram, labelled), target, going[..., 0, 0] > 0)[..., None, :]
        loss = xp.where(pseudo > 0, loss, xp.inf)
        rank = xp.argsort(xp.argsort(loss, axis=-1, stable=True), axis=-1)
        taken = xp.where(rank < best, pseudo, xp.zeros_like(pseudo))
        count = xp.sum(taken, axis=-1, keepdims=True)  # [R, way, 1]
        enough = xp.sum(count, axis=-2, keepdims=True) >= _LEAST
        labelled = labelled + xp.where(enough, taken, xp.zeros_like(taken))
        quota = quota - count
        left = xp.sum(labelled, axis=(-2, -1), keepdims=True) < gram.shape[-1]
        going = going * xp.astype(enough & left, gram.dtype)
        if not bool(xp.any(going > 0)):
            break
    answer = xp.where(labelled > 0, labelled, answer)[..., task.supports :]
    return Scores(xp.astype(by_query(answer), _type(task)))


def _type(task: Task | GramTask) -> Array:
    return task.gram.dtype if isinstance(task, GramTask) else task.query.dtype


def _gram(task: Task | GramTask) -> Array:
    """Inner products of the rows, in float64, so that rounding does not change the discrete choices."""
    if isinstance(task, GramTask):
        return array_namespace(task.gram).astype(task.gram, array_namespace(task.gram).float64)
    xp = array_namespace(task.support, task.query)
    x = xp.astype(xp.concat([task.support, task.query], axis=-2), xp.float64)
    return x @ xp.matrix_transpose(x)


def _spread(gram: Array, neighbours: int, alpha: float) -> Array:
    """(I - alpha W)^-1 of the graph W of nearest neighbours, [R, N, N].

    The largest inner product of a row is assumed to be that with itself. Rows without a positive sum of weights are not
    changed. The graph includes all rows, labelled or not, so that one inverse serves every round.
    """
    xp = array_namespace(gram)
    rank = xp.argsort(xp.argsort(gram, axis=-1, descending=True, stable=True), axis=-1)
    near = (rank > 0) & (rank <= neighbours)
    weight = xp.where(near, gram**_POWER, xp.zeros_like(gram))
    identity = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    weight = (weight + xp.matrix_transpose(weight)) * (1.0 - identity)
    degree = xp.sum(weight, axis=-1, keepdims=True)
    scale = xp.where(degree > 0, degree, xp.ones_like(degree)) ** -0.5
    return xp.linalg.inv(identity - alpha * scale * weight * xp.matrix_transpose(scale))


def _sinkhorn(mass: Array, quota: Array) -> Array:
    """Alternately scale rows to one and classes to their quotas, until the row sums of an episode converge.

    Zero rows are ignored. As in the public code, quotas at or below zero are used as they are and iteration continues;
    without such quotas, an episode stops when a class has nothing left to scale.
    """
    if in_triton(mass):
        from sinkshot.kernels.sinkhorn_triton import allocate

        return allocate(mass, quota, _TOLERANCE, _PASSES)
    xp = array_namespace(mass)
    row = xp.sum(mass, axis=-2, keepdims=True)  # [R, 1, N]
    going = xp.ones_like(quota[..., :1, :]) > 0
    spent = xp.any(quota <= 0, axis=-2, keepdims=True)  # [R, 1, 1]
    every = 1 if isinstance(mass, np.ndarray) else _ASKED
    for done in range(1, _PASSES + 1):
        scaled = mass / xp.where(row == 0, xp.ones_like(row), row)
        column = xp.sum(scaled, axis=-1, keepdims=True)  # [R, way, 1]
        empty = column == 0
        scaled = scaled * (quota / xp.where(empty, xp.ones_like(column), column))
        mass = xp.where(going, scaled, mass)
        before, row = row, xp.sum(mass, axis=-2, keepdims=True)
        still = xp.max(xp.abs(row - before), axis=-1, keepdims=True) <= _TOLERANCE
        going = going & ~still & (spent | ~xp.any(empty, axis=-2, keepdims=True))
        if done % every == 0 and not bool(xp.any(going)):
            break
    return mass


def _start(gram: Array, labelled: Array) -> Array:
    """Scores of all rows by the unit-length means of the labelled ones, [R, way, N]."""
    xp = array_namespace(gram)
    scores = labelled @ gram
    return scores / xp.sqrt(xp.clip(xp.sum(labelled * scores, axis=-1, keepdims=True), min=1e-24))


def _trainer(gram: Array, way: int, descent: Descent) -> Callable[[Array, Array, Array], Array]:
    """Return what trains a linear classifier from scores towards targets, for the episodes that go on.

    Its answer is the cross-entropy of each row, averaged over the training, [R, N]. Weights stay in the span of the
    rows: where they would change by D X, the scores S change by D G. The bias, which is decayed as well, is a constant
    feature of one.
    """
    if isinstance(gram, np.ndarray):
        compiled = gram.shape[0] * descent[0] >= _PAYS_FROM and not jit_disabled()
        return partial(_compiled_mean_loss if compiled else _mean_loss, gram, descent)
    if in_triton(gram[..., :way, :]):
        from sinkshot.kernels import ilpc_triton

        if ilpc_triton.fits(way, gram.shape[-1]):
            return lambda scores, target, going: ilpc_triton.mean_loss(gram, scores, target, going, descent)
    if is_torch_array(gram):
        from sinkshot.kernels.ilpc_torch import Descent as TorchDescent

        training = TorchDescent(gram, way, descent)
        return lambda scores, target, _: training.mean_loss(scores, target)
    return partial(_mean_loss, gram, descent)


def _compiled_mean_loss(gram: Array, descent: Descent, scores: Array, target: Array, going: Array) -> Array:
    from sinkshot.kernels.ilpc_numba import mean_loss

    total = np.zeros((len(gram), gram.shape[-1]))
    total[going] = mean_loss(gram[going], scores[going], target[going], descent)
    return total


def _mean_loss(gram: Array, descent: Descent, scores: Array, target: Array, _going: Array) -> Array:
    xp = array_namespace(gram)
    epochs, lr, momentum, decay = descent
    with_bias = (gram + 1.0) / gram.shape[-1]
    speed, total = xp.zeros_like(scores), xp.zeros_like(scores[..., 0, :])
    for _ in range(epochs):
        p = softmax(scores, axis=-2)
        total = total - xp.log(xp.clip(xp.sum(p * target, axis=-2), min=1e-300))
        speed = momentum * speed + (p - target) @ with_bias + decay * scores
        scores = scores - lr * speed
    return total / epochs


_PAYS_FROM = 4000  # total steps: below, NumPy finishes before the compiler would
