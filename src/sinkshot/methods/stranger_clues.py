"""What each row of a pool, and the pool as a whole, show of strangers: rows that belong to none of the classes.

`sinkshot` compares how near labelled and other rows are to their classes, which says little if a class has one label.
A pool shows more. Strangers have neighbours among themselves, walks along the graph of neighbours that start at one of
them seldom meet a label, and what they differ by from the class they are nearest to is the same for many of them. The
clues here are such observations. All are ratios, cosines and probabilities, so that they mean the same on any features;
`sinkshot.estimators.stranger_network` weighs them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace, device

from sinkshot.methods import sinkshot as method
from sinkshot.methods._graph import DenseGraph, neighbour_graph
from sinkshot.methods._spread_labels import class_dimension
from sinkshot.methods.algebra import Rows, at_least, one_hot
from sinkshot.methods.bms import unit
from sinkshot.settings.sinkshot import POOL_SETTINGS
from sinkshot.task import Array

LARGEST = 60.0  # of a clue's absolute value
SHOTS, DIMENSION = 1, 8  # places of the logarithm of the labels per class and of the classes' dimension in `Clues.pool`
_SMALL = 1e-3  # added before a logarithm
_SEVERAL, _MANY = 6, 25  # nearest rows whose mean cosine is taken


@dataclass(frozen=True)
class Clues:
    """What R pools of N rows show, labelled rows first."""

    rows: Array  # of each row, [R, N, 35]
    pool: Array  # of each pool, [R, 18]
    nearest: Array  # the class each row belongs to most, [R, N]
    walk: Array  # where a walk of four steps from each row ends, [R, N, N]; rows sum to one
    supports: int


@dataclass(frozen=True)
class _Walks:
    """Random walks along the graph, A / its row sums, of 4, 8, 16 and 32 steps."""

    one: Array  # [R, N, N], where a walk of one step ends
    four: Array
    eight: Array
    longest: Array
    returns: tuple[Array, ...]  # logarithm of how often a walk ends where it began, times N; [R, N] each
    clusters: tuple[Array, ...]  # logarithm of the sum of these chances over the classes, [R] each


def stranger_clues(x: Array, labels: Array, way: int) -> Clues:
    """Return the clues of pools of one size.

    Parameters
    ----------
    x : array of shape (R, N, d)
        Rows of unit length after the chain, labelled ones first.
    labels : array of shape (R, l)
        Classes of the labelled rows.
    way : int
        Classes, at least two.
    """
    xp = array_namespace(x)
    gram = x @ xp.matrix_transpose(x)  # [R, N, N]
    squares = xp.linalg.diagonal(gram)
    supports, count = labels.shape[-1], x.shape[-2]
    rows = Rows(lambda a: a @ gram, squares, one_hot(labels, way, squares), supports, count - supports)
    s = POOL_SETTINGS
    graph = neighbour_graph(rows, s.neighbours, s.sharpness)
    belongs, _, _ = method.before_strangers(rows, graph, method.spreading_over(graph, s), s)
    evidence, near, left_out = method.evidence_of(belongs, rows, graph, s)
    short, gap = method.shortfall(belongs, near, left_out, rows)
    mass = rows.with_queries(rows.member, belongs)  # [R, way, N]
    walks = _walks(graph, way)
    scale = gap[..., 0]  # [R, 1], the unit of differences of cosines
    weights, cosine = unit(mass * mass, rows)
    first, second = _two_largest(method.to_others(weights, cosine, rows))
    alike = _closeness(gram)
    of_rows = [
        *_of_method(evidence, near, rows, scale),
        first,
        (first - second) / scale,
        first / scale,
        xp.sum(mass * mass, axis=-2),
        xp.max(mass, axis=-2),
        *alike,
        (alike[1] - first) / scale,
        (alike[1] - alike[2]) / scale,
        *walks.returns,
        *_labels_met(walks, mass, rows),
        *_around(walks.four, gram, weights, alike[1]),
        *_differences(mass, gram, walks),
        _log(_taken(xp.mean(mass, axis=-1), xp.argmax(mass, axis=-2)) * way),
    ]
    of_rows = xp.clip(xp.stack(of_rows, axis=-1), min=-LARGEST, max=LARGEST)
    share = method.share_of_strangers(belongs, near, short, gap, rows, s)
    pool = _of_pool(belongs, rows, graph, xp.sum(gram * gram, axis=(-2, -1)))
    pool += [short[..., 0, 0], scale[..., 0], left_out[..., 0, 0], share[..., 0, 0], *walks.clusters]
    pool += [xp.std(near[..., 0, :supports], axis=-1) / scale[..., 0]]
    of_pool = xp.clip(xp.stack(pool, axis=-1), min=-LARGEST, max=LARGEST)
    return Clues(of_rows, of_pool, xp.argmax(mass, axis=-2), walks.four, supports)


def _of_method(evidence: Array, near: Array, rows: Rows, scale: Array) -> list[Array]:
    """Whether a row is labelled, and the evidence of `sinkshot`, [R, N] each."""
    xp = array_namespace(evidence)
    of_supports = xp.zeros_like(near[..., 0, : rows.supports])
    own = near[..., 0, :]
    usual = xp.mean(own[..., : rows.supports], axis=-1, keepdims=True)
    return [
        xp.concat([of_supports + 1.0, xp.zeros_like(evidence[..., 0, :])], axis=-1),
        xp.concat([of_supports + POOL_SETTINGS.support_evidence, evidence[..., 0, :]], axis=-1),
        xp.concat([of_supports + 2.0, method.standardised(evidence)[..., 0, :]], axis=-1),
        (own - usual) / scale,
        own,
    ]


def _closeness(gram: Array) -> list[Array]:
    """Cosine of each row to the nearest other, and means over several and many of the nearest, [R, N] each."""
    xp = array_namespace(gram)
    count = gram.shape[-1]
    itself = 3.0 * xp.eye(count, dtype=gram.dtype, device=device(gram))
    ordered = xp.sort(gram - itself, axis=-1, descending=True)[..., : count - 1]
    return [ordered[..., 0], *(xp.mean(ordered[..., :most], axis=-1) for most in (_SEVERAL, _MANY))]


def _walks(graph: DenseGraph, way: int) -> _Walks:
    xp = array_namespace(graph.weights)
    root = graph.root_degree  # [R, 1, N]
    count = root.shape[-1]

    def ends(power: Array) -> Array:
        return power * root / xp.matrix_transpose(root)

    power = graph.weights @ graph.weights
    powers = []
    for _ in range(4):
        power = power @ power
        powers.append(power)  # of 4, 8, 16 and 32 steps
    chances = [xp.linalg.diagonal(each) for each in powers]
    returns = tuple(_log(count * each) for each in chances)
    clusters = tuple(_log(xp.sum(each, axis=-1) / way) for each in chances)
    return _Walks(ends(graph.weights), ends(powers[0]), ends(powers[1]), ends(powers[3]), returns, clusters)


def _labels_met(walks: _Walks, mass: Array, rows: Rows) -> list[Array]:
    """How often walks end at labelled rows, whether these are of the row's class, and neighbours' classes, [R, N]."""
    xp = array_namespace(mass)
    count = mass.shape[-1]
    met = [
        _log(xp.sum(each[..., : rows.supports], axis=-1) * (count / rows.supports))
        for each in (walks.four, walks.eight, walks.longest)
    ]
    of_class = rows.member @ xp.matrix_transpose(walks.eight[..., : rows.supports])  # [R, way, N]
    of_class = of_class / at_least(xp.sum(of_class, axis=-2, keepdims=True), 1e-9)
    same = xp.sum(mass * (mass @ xp.matrix_transpose(walks.one)), axis=-2)
    return [*met, xp.sum(of_class * mass, axis=-2), xp.max(of_class, axis=-2), same]


def _around(four: Array, gram: Array, weights: Array, closeness: Array) -> list[Array]:
    """Cosines to the classes of the mean of the rows where walks from a row end, and that mean's length, [R, N]."""
    xp = array_namespace(gram)
    mean = four @ gram  # inner products of the means with all rows, [R, N, N]
    length = xp.sqrt(at_least(xp.sum(mean * four, axis=-1), 1e-8))
    first, second = _two_largest(weights @ xp.matrix_transpose(mean) / length[..., None, :])
    return [first, first - second, first * length / (at_least(closeness, 0.0) + 0.05), length]


def _differences(mass: Array, gram: Array, walks: _Walks) -> list[Array]:
    """How long a row's difference from its class is, and how alike those of other rows are, [R, N] each."""
    xp = array_namespace(mass)
    turned = xp.matrix_transpose(mass)
    squared = mass * mass
    means = squared / xp.sum(squared, axis=-1, keepdims=True)  # [R, way, N]
    scores = means @ gram
    inner = turned @ scores  # of each row's class with all rows, [R, N, N]
    between = turned @ ((scores @ xp.matrix_transpose(means)) @ mass)
    left = gram - inner - xp.matrix_transpose(inner) + between
    length = xp.sqrt(at_least(xp.linalg.diagonal(left), 1e-6))
    cosine = left / (length[..., :, None] * length[..., None, :])
    nearby = [xp.sum(each * cosine, axis=-1) - xp.linalg.diagonal(each) for each in (walks.four, walks.longest)]
    positive = at_least(cosine, 0.0)
    sums = [xp.sum(cosine * cosine, axis=-1), xp.sum(positive * positive * positive, axis=-1)]
    return [length, *nearby, *(xp.log(at_least(each - 1.0, 0.0) + 1e-2) for each in sums)]


def _of_pool(belongs: Array, rows: Rows, graph: DenseGraph, square: Array) -> list[Array]:
    """Size, balance, certainty and dimensions of a pool, [R] each; `square` is that of its Gram matrix."""
    xp = array_namespace(belongs)
    way = belongs.shape[-2]
    mass = rows.with_queries(rows.member, belongs)
    size = xp.mean(mass, axis=-1)  # [R, way]
    one = xp.ones_like(square)
    numbers = (way, rows.supports / way, rows.supports + rows.queries)
    return [
        *(math.log(number) * one for number in numbers),
        1.0 - xp.sum(belongs * belongs, axis=(-2, -1)) / rows.queries,
        method.labels_that_count(belongs, rows)[..., 0, 0],
        way * xp.sum(size * size, axis=-1),
        xp.log(at_least(xp.sum(rows.squares, axis=-1), 1.0) ** 2 / at_least(square, 1.0)),
        graph.closeness,
        xp.clip(class_dimension(belongs, rows, graph), max=40.0),
    ]


def _two_largest(by_class: Array) -> tuple[Array, Array]:
    """Largest and second largest of values [R, way, N] over the classes, [R, N] each."""
    ordered = array_namespace(by_class).sort(by_class, axis=-2, descending=True)
    return ordered[..., 0, :], ordered[..., 1, :]


def _taken(values: Array, numbers: Array) -> Array:
    """Values [R, way] of classes by their numbers [R, N], [R, N]."""
    return array_namespace(values).take_along_axis(values, numbers, axis=-1)


def _log(values: Array) -> Array:
    return array_namespace(values).log(at_least(values, 0.0) + _SMALL)
