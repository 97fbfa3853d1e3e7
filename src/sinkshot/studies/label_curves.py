"""Label curves: what strategies of what to label next reach, from zero labels, behind a classifier.

A draw is a pool of a few classes of a bank. A strategy asks for as many labels at a time as there are classes, and is
told the true ones; the classifier then answers for the whole pool. Accuracy is that of the rows that nobody may ask
about, every second one of each class: classifiers and strategies see them without labels. A class without a label
cannot be answered, so its rows count as wrong. All strategies see the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.engines.fused_kernels import KERNELS, Question
from sinkshot.errors import InputError
from sinkshot.kernels import jit_disabled
from sinkshot.selection import STRATEGIES, Pool
from sinkshot.selection.registry import centred
from sinkshot.studies.merge import selection_seed, shuffled
from sinkshot.task import Task

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

POOLS = ("balanced", "long-tail", "strangers")
METRICS = ("accuracy", "macro_accuracy", "found", "strangers")
STRANGER = -1  # class of a row that belongs to none
REGRESSION_C = 100.0  # of scikit-learn: with the default, 1, rows of unit length are regularised too much
RATIO = 10  # rows of the largest class in a long tail, over those of the smallest
STRANGERS = 0.3  # rows of other classes, over the rows of the classes


class PoolDraw(NamedTuple):
    """The rows of a pool, in random order."""

    rows: Floats  # [n, d], behind the row-wise part of sinkshot's chain
    truth: Ints  # [n], classes 0 .. way-1, or STRANGER
    test: NDArray[np.bool_]  # [n], rows that may not be asked about


class Answer(NamedTuple):
    """What a classifier says of every row of a pool."""

    classes: Ints  # [found], those that have a label
    probabilities: Floats  # [n, found], labelled rows one-hot
    unknown: Floats | None = None  # [n]


Classifier = Callable[[Floats, Ints, Ints], Answer]
"""From rows [n, d], the numbers of labelled rows and their classes to an answer."""


def draw_pool(bank: FeatureBank, kind: str, classes: int, rows: int, seed: int) -> PoolDraw:
    """Draw a pool: classes of `rows` rows or as many as there are, a long tail, or with strangers."""
    needed = classes + (kind == "strangers")
    if bank.classes < needed:
        raise InputError(f"{needed} classes are needed, but the bank has {bank.classes}; lower `classes`.")
    order = shuffled(bank.classes, selection_seed(seed, 0))
    sizes = [rows] * classes
    if kind == "long-tail":
        sizes = [max(4, round(rows * RATIO ** (-i / (classes - 1)))) for i in range(classes)]
    chosen: list[NDArray[np.intp]] = []
    truth: list[int] = []
    for i, size in enumerate(sizes):
        own = np.flatnonzero(bank.labels == order[i])
        chosen.append(own[shuffled(len(own), selection_seed(seed, i + 1))][:size])
        truth += [i] * len(chosen[-1])
    if kind == "strangers":
        others = np.flatnonzero(np.isin(bank.labels, order[classes:]))
        count = round(STRANGERS * len(truth))
        chosen.append(others[shuffled(len(others), selection_seed(seed, classes + 1))][:count])
        truth += [STRANGER] * len(chosen[-1])
    test = np.concatenate([np.arange(len(own)) % 2 == 1 for own in chosen])
    mixed = shuffled(len(truth), selection_seed(seed, classes + 2))
    features = bank.features[np.concatenate(chosen)[mixed]].astype(np.float32)
    steps = preprocess.parse("PE" if features.min() >= 0 else "E")
    return PoolDraw(np.asarray(preprocess.run(features, steps).x), np.array(truth)[mixed], test[mixed])


def by_sinkshot(rows: Floats, labelled: Ints, labels: Ints) -> Answer:
    """Answer by the method `sinkshot`, in compiled code where there is a compiler."""
    queries = np.setdiff1d(np.arange(len(rows)), labelled)
    answer, codes = _one_hot(len(rows), labelled, labels)
    if len(answer.classes) == 1:
        return _all_of_one_class(answer)
    way, unknown = len(answer.classes), np.zeros(len(rows), dtype=np.float32)
    if jit_disabled():
        centre = preprocess.parse("McE")
        both = np.concatenate([rows[labelled], rows[queries]])
        done = np.asarray(preprocess.run(both, centre, supports=len(labelled), labels=codes).x)
        task = Task(done[None, : len(labelled)], codes[None], done[None, len(labelled) :], way)
        scores = methods.get("sinkshot")(task)
    else:
        from sinkshot.kernels.gram_numba import padded

        support, given, query = (part[None].astype(np.int32) for part in (labelled, codes, queries))
        centring = preprocess.Centring(centre=False, apart=False, normalise=True, classes=True)
        scores = KERNELS["sinkshot"].numba(Question(padded(rows), support, given, query, way, centring, {}))
    answer.probabilities[queries] = np.asarray(scores.probabilities[0])
    unknown[queries] = np.asarray(scores.unknown)[0]
    return answer._replace(unknown=unknown)


def by_nearest_mean(rows: Floats, labelled: Ints, labels: Ints) -> Answer:
    """Answer by the method `ncm`."""
    queries = np.setdiff1d(np.arange(len(rows)), labelled)
    answer, codes = _one_hot(len(rows), labelled, labels)
    task = Task(rows[None, labelled], codes[None], rows[None, queries], len(answer.classes))
    answer.probabilities[queries] = np.asarray(methods.get("ncm")(task).probabilities[0])
    return answer


def by_logistic_regression(rows: Floats, labelled: Ints, labels: Ints) -> Answer:
    """Answer by scikit-learn's logistic regression, on rows of unit length seen from their mean."""
    from sklearn.linear_model import LogisticRegression

    queries = np.setdiff1d(np.arange(len(rows)), labelled)
    answer, codes = _one_hot(len(rows), labelled, labels)
    if len(answer.classes) == 1:
        return _all_of_one_class(answer)
    moved = centred(rows)
    answer.probabilities[queries] = (
        LogisticRegression(C=REGRESSION_C, max_iter=200).fit(moved[labelled], codes).predict_proba(moved[queries])
    )
    return answer


CLASSIFIERS: dict[str, Classifier] = {
    "sinkshot": by_sinkshot,
    "ncm": by_nearest_mean,
    "logistic regression": by_logistic_regression,
}
"""Classifiers that a curve can be measured behind."""


def _one_hot(count: int, labelled: Ints, labels: Ints) -> tuple[Answer, Ints]:
    """Return an answer that knows the labelled rows alone, and their classes as numbers from 0."""
    classes, codes = np.unique(labels, return_inverse=True)
    probabilities = np.zeros((count, len(classes)), dtype=np.float32)
    probabilities[labelled, codes] = 1
    return Answer(classes, probabilities), codes.astype(np.int64)


def _all_of_one_class(answer: Answer) -> Answer:
    return answer._replace(probabilities=np.ones_like(answer.probabilities))


def curve(drawn: PoolDraw, choose: Callable[[Pool, int], list[int]], classifier: Classifier, labels: int) -> Floats:
    """Ask for labels until there are `labels` a class; return METRICS [labels + 1, 4] as fractions."""
    way = int(drawn.truth.max()) + 1
    pool = Pool(centred(drawn.rows), np.zeros(len(drawn.truth), dtype=bool), closed=drawn.test)
    measured = np.zeros((labels + 1, len(METRICS)))
    for step in range(1, labels + 1):
        asked = pool.labelled.copy()
        asked[choose(pool, way)] = True
        of_class = np.flatnonzero(asked & (drawn.truth != STRANGER))
        strangers = asked & (drawn.truth == STRANGER)
        seed, right = pool.seed + 1, np.zeros(len(asked), dtype=bool)
        if len(of_class):
            answer = classifier(drawn.rows, of_class, drawn.truth[of_class])
            right = answer.classes[answer.probabilities.argmax(axis=1)] == drawn.truth
            pool = _after(drawn, asked, strangers, answer, seed)
        else:
            pool = Pool(pool.rows, asked, closed=drawn.test, seed=seed)
        by_class = [right[drawn.test & (drawn.truth == c)].mean() for c in range(way)]
        known = drawn.test & (drawn.truth != STRANGER)
        found = len(np.unique(drawn.truth[of_class])) / way
        measured[step] = right[known].mean(), np.mean(by_class), found, strangers.sum() / asked.sum()
    return measured


def _after(drawn: PoolDraw, asked: NDArray[np.bool_], strangers: NDArray[np.bool_], answer: Answer, seed: int) -> Pool:
    """The pool as a strategy sees it behind an answer, from the mean of the class means."""
    unknown = answer.unknown
    if unknown is not None or strangers.any():
        unknown = np.where(strangers, 1.0, 0.0 if unknown is None else unknown)
    weights = answer.probabilities if unknown is None else answer.probabilities * (1 - unknown)[:, None]
    means = weights.T @ drawn.rows / weights.sum(axis=0)[:, None]
    centre = means.mean(axis=0) if len(means) > 1 else None
    return Pool(centred(drawn.rows, centre), asked, answer.probabilities, unknown, seed, drawn.test)


def curves_of_draw(
    bank: FeatureBank,
    number: int,
    *,
    pool: str,
    classifier: str,
    classes: int,
    rows: int,
    labels: int,
    seed: int,
    strategies: Sequence[str] = (),
) -> dict[str, Floats]:
    """Measure the curves of all strategies, or of some, on the draw of a number."""
    drawn = draw_pool(bank, pool, classes, rows, selection_seed(seed, number))
    names = strategies or STRATEGIES
    return {name: curve(drawn, STRATEGIES[name].choose, CLASSIFIERS[classifier], labels) for name in names}


def label_curves(bank: FeatureBank, draws: int, **options: Any) -> dict[str, Any]:
    """Measure the curves of all strategies, or of some, on the same draws; options are those of one draw."""
    return collected([curves_of_draw(bank, number, **options) for number in range(draws)], **options)


def collected(measured: Sequence[Mapping[str, Floats]], *, pool: str, classifier: str, **_: Any) -> dict[str, Any]:
    """Return the curves of draws as JSON can hold them, with what they describe."""
    steps = len(next(iter(measured[0].values())))
    return {
        "pool": pool,
        "classifier": classifier,
        "draws": len(measured),
        "labels": list(range(steps)),
        "strategies": {name: summary(np.array([one[name] for one in measured])) for name in measured[0]},
    }


def summary(measured: Floats) -> dict[str, Any]:
    """Means and 95 % half-widths of curves [draws, labels + 1, 4], and the areas under them, as JSON can hold them."""
    told: dict[str, Any] = {}
    for number, name in enumerate(METRICS):
        values = measured[:, :, number]
        told[name] = {
            "mean": [round(float(v), 5) for v in values.mean(axis=0)],
            "half_width": [round(float(v), 5) for v in half_width(values)],
            "areas": [round(float(v), 5) for v in area(values)],
        }
    return told


def area(curves: Floats) -> Floats:
    """Areas under curves [..., labels + 1] from zero labels on, as a mean height [...]."""
    return np.asarray(np.trapezoid(curves, axis=-1) / (curves.shape[-1] - 1))


def half_width(values: Floats) -> Floats:
    """Half of the 95 % confidence interval of the mean over the first axis."""
    count = len(values)
    if count < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(1.96 * values.std(axis=0, ddof=1) / math.sqrt(count))


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Mean of paired differences, and its 95 % half-width."""
    apart = np.asarray(one) - np.asarray(other)
    return float(apart.mean()), float(half_width(apart))
