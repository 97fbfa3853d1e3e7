"""The classifier behind `label`: features and labels to an answer for every item."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods
from sinkshot.errors import DataWarning
from sinkshot.label.items import OUTSIDER, Items

if TYPE_CHECKING:  # functions import these: they take a second, and the server of a review never needs them
    from sinkshot.estimators.few_shot import FewShotClassifier
    from sinkshot.estimators.fit_report import FitReport
    from sinkshot.estimators.pool_neighbours import PoolNeighbours

Floats = NDArray[np.floating[Any]]
Stage = Callable[[str], None]  # called with what is being done
_MOST_WHITENED = 50_000  # rows; whitening copies them
SURE = 0.995  # a confidence that is shown as 100 %: a label would add little


@dataclass(frozen=True)
class Suspicion:
    """A given label that the rest of the pool contradicts."""

    row: int
    label: str
    suggested: str
    probability: float  # of the suggested class, the item itself left out
    neighbours: tuple[int, ...]  # labelled items of the suggested class that are nearest


@dataclass(frozen=True)
class Answers:
    """The answer for each item."""

    classes: tuple[str, ...]
    probabilities: Floats  # [n, classes], which class, if any
    unknown: Floats  # [n], probability of belonging to no class
    labels: tuple[str, ...]  # "" where the item is rejected, OUTSIDER where it is known to be one
    sources: tuple[str, ...]  # given, accepted or predicted
    suspicious: tuple[Suspicion, ...]
    next_rows: tuple[int, ...]  # what to label next, the most useful first
    model: FewShotClassifier | None
    warnings: tuple[str, ...] = ()
    report: FitReport | None = None
    left_out: Floats | None = None  # [n, classes], what the other items say about each labelled one

    @property
    def confidence(self) -> Floats:
        """Probability of the label: of the class and of being known; of being an outsider where rejected."""
        best = self.probabilities.max(axis=1, initial=0.0)
        predicted = np.array([source == "predicted" for source in self.sources])
        rejected = np.array([not label for label in self.labels])
        own = np.where(rejected, self.unknown, best * (1 - self.unknown))
        return np.where(predicted, own, 1.0)

    @property
    def ranked(self) -> NDArray[np.int64]:
        """Classes of each item, the most probable first, [n, classes]."""
        return np.argsort(-self.probabilities, axis=1, kind="stable")


def classify(
    items: Items,
    features: Floats,
    *,
    method: str = "sinkshot",
    unknown: float | None = 0.5,
    next_count: int = 10,
    stage: Stage = lambda _: None,
    neighbours: PoolNeighbours | None = None,
) -> Answers:
    """Label the items.

    Parameters
    ----------
    items : Items
        With at least one label.
    features : array of shape (n, d)
    method : str
        A registered method.
    unknown : float or None
        Items whose probability of belonging to no class is above this are rejected; None rejects nothing.
    next_count : int
        How many items to suggest for labelling next.
    stage : callable, optional
        Called with the name of each step as it begins.
    neighbours : PoolNeighbours, optional
        Of these features; makes later calls with other labels quicker.
    """
    from sinkshot.estimators.few_shot import FewShotClassifier

    stage(f"fitting {method} to {len(items):,} rows of {features.shape[1]:,} features")
    labels = [label or None for label in items.labels]
    model = FewShotClassifier(method, preprocess=chain_for(method, features, labels), unknown=unknown)
    with data_warnings() as said:
        model.fit(features, labels, neighbours=neighbours)
    known = None if neighbours is None else neighbours.task_rows
    scores = _with_second_opinion(model, features, labels, known)
    return answers_of(items, features, model, scores, unknown, next_count, tuple(said), stage)


def own_scores(model: FewShotClassifier) -> tuple[Floats, Floats]:
    """Return class probabilities [n, classes] and probabilities of no class [n] of a fitted classifier."""
    probabilities = model.label_distributions_
    return probabilities, getattr(model, "unknown_", np.zeros(len(probabilities)))


def _with_second_opinion(
    model: FewShotClassifier, features: Floats, labels: Sequence[str | None], task_rows: Floats | None
) -> tuple[Floats, Floats]:
    """Return what `own_scores` returns, after the second opinion."""
    from sinkshot.estimators.auto_chain import LEAST_SHOTS, WHITENED
    from sinkshot.label.second_opinion import combined, decision_values, ranked_again

    probabilities, unknown = own_scores(model)
    numbers = {str(name): number for number, name in enumerate(model.classes_)}
    codes = np.array([numbers.get(str(label), -1) for label in labels])
    if len(numbers) < 2 or (codes >= 0).all() or _typical_shots(labels) < LEAST_SHOTS:
        return probabilities, unknown
    decisions = decision_values(features, codes)
    if OUTSIDER not in labels:  # known outsiders tell more
        unknown = ranked_again(unknown, probabilities, decisions, features, codes)
    signed = model.method in WHITENED and float(features.min()) < 0  # others are whitened, unless the pool is too large
    if signed or "W" in model.preprocess_:
        probabilities = combined(probabilities, decisions, features, codes, model.preprocess_, task_rows)
    return probabilities, unknown


def _typical_shots(labels: Sequence[str | None]) -> float:
    """Median number of labels per class."""
    shots = Counter(label for label in labels if label not in (None, OUTSIDER))
    return float(np.median(list(shots.values()))) if shots else 0.0


@contextmanager
def data_warnings() -> Iterator[list[str]]:
    """Yield a list that receives the data warnings of the block when it ends."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")
        yield said
    said += [str(one.message) for one in caught if issubclass(one.category, DataWarning)]


def answers_of(
    items: Items,
    features: Floats,
    model: FewShotClassifier,
    scores: tuple[Floats, Floats],
    unknown: float | None,
    next_count: int,
    said: tuple[str, ...],
    stage: Stage,
) -> Answers:
    """Return the answers for items by their scores: probabilities of classes [n, classes] and of no class [n]."""
    probabilities, unknowns = scores
    best = model.classes_[probabilities.argmax(axis=1)]
    found, sources = labels_and_sources(items, best, unknown, unknowns)
    stage("checking the given labels")
    suspicious = suspicious_labels(items, model, features)
    stage("choosing what to label next")
    return Answers(
        classes=tuple(str(name) for name in model.classes_),
        probabilities=probabilities,
        unknown=unknowns,
        labels=found,
        sources=sources,
        suspicious=suspicious,
        next_rows=tuple(what_to_label_next(model, items.labels, next_count, probabilities)),
        model=model,
        warnings=said,
        report=model.report_,
        left_out=model.left_out_distributions_,
    )


def chain_for(method: str, features: Floats, labels: Sequence[str | None]) -> str:
    """Return the preprocessing chain for features [n, d] and labels, None where there is none."""
    from sinkshot.estimators.auto_chain import auto_chain

    shots = _typical_shots(labels) if len(features) <= _MOST_WHITENED else 0.0
    return auto_chain(methods.get(method), features, has_base=False, shots=shots)


def by_model(items: Items, features: Floats, model: FewShotClassifier, unknown: float | None) -> Answers:
    """Label new items with a classifier that was fitted before; items that have a label keep it."""
    probabilities = model.predict_proba(features)
    rejects = unknown is not None and model.can_reject
    unknowns = model.predict_unknown(features) if rejects else np.zeros(len(items))
    best = np.asarray(model.classes_)[probabilities.argmax(axis=1)]
    labels, sources = labels_and_sources(items, best, unknown, unknowns)
    classes = tuple(str(name) for name in model.classes_)
    return Answers(classes, probabilities, unknowns, labels, sources, (), (), None)


def labels_and_sources(
    items: Items, best: NDArray[Any], threshold: float | None, unknown: Floats
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the label of each item, its own or the best class, and where the label is from."""
    rejected = np.zeros(len(items), dtype=bool) if threshold is None else unknown > threshold
    labels, sources = [], []
    for i, given in enumerate(items.labels):
        labels.append(given if given is not None else "" if rejected[i] else str(best[i]))
        sources.append("predicted" if given is None else "accepted" if items.accepted[i] else "given")
    return tuple(labels), tuple(sources)


def suspicious_labels(items: Items, model: FewShotClassifier, features: Floats) -> tuple[Suspicion, ...]:
    """Return the given labels that the rest of the pool contradicts, the clearest first; nothing is changed."""
    rows = np.array([i for i, label in enumerate(items.labels) if label not in (None, OUTSIDER)])
    left_out = model.left_out_distributions_[rows]  # [l, classes]
    names = np.asarray(model.classes_).astype(str)
    found = []
    for row, probabilities in zip(rows, left_out, strict=True):
        best = int(probabilities.argmax())
        if names[best] != items.labels[row] and probabilities[best] > 0.5:
            same = [int(i) for i in rows if items.labels[i] == names[best]]
            near = sorted(same, key=lambda i: float(np.linalg.norm(features[i] - features[row])))[:3]
            label = str(items.labels[row])
            found.append(Suspicion(int(row), label, str(names[best]), float(probabilities[best]), tuple(near)))
    return tuple(sorted(found, key=lambda one: -one.probability))


def what_to_label_next(
    model: FewShotClassifier, labels: Sequence[str | None], count: int, probabilities: Floats | None = None
) -> list[int]:
    """Return the rows whose labels would help most; rows that are sure already come after the others.

    A class that nobody has labelled yet may hide among sure rows, so they are not left out. `probabilities`
    [n, classes] tell which rows are sure, the model's own unless given.
    """
    if count < 1:
        return []
    given = model.label_distributions_ if probabilities is None else probabilities
    unknown = getattr(model, "unknown_", np.zeros(len(labels)))
    sure = np.maximum(given.max(axis=1) * (1 - unknown), unknown) >= SURE  # [n]
    labelled = np.array([label is not None for label in labels])  # some of them perhaps since the fit
    chosen = model.suggest(count, sure=sure | labelled)
    return [int(row) for row in chosen if not labelled[row]]
