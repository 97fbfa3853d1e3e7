"""Figures of the page of `label`: the histogram of the confidence, and a map of the pool in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.label.classifier import Answers
from sinkshot.report.figures.svg import INK, SERIES, Key, Panel, marker_sign, panel, printable

_MOST_POINTS = 4_000
_REJECTED = SERIES[4]  # colour of rejected items on the map
_MOST_COLOURS = 8  # classes that the eye tells apart; beyond, colours tell how sure an item is
_MOST_NAMES = 24  # classes whose names stand on the map
_SURE, _DOUBTFUL = 0.8, 0.5  # confidence from which an item is drawn as sure, and below which as doubtful


def panels(kind: str, features: NDArray[Any], answers: Answers, predicted: NDArray[np.bool_]) -> list[Panel]:
    """Return the histogram and the map of labelled items."""

    def confidence(axes: Any) -> None:
        axes.hist(answers.confidence[predicted], bins=np.linspace(0, 1, 21), color=SERIES[0], rwidth=0.92)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.yaxis.get_major_locator().set_params(integer=True)  # items come in whole numbers
        axes.set_xlabel("confidence")
        axes.set_ylabel(kind)
        axes.grid(axis="y")

    rows = np.arange(0, len(features), -(-len(features) // _MOST_POINTS))
    weights = None if answers.model is None else answers.model.label_distributions_[rows]
    points = _plane(features[rows], weights)
    size = f"{int(predicted.sum()):,} predicted {kind}"
    return [
        panel("confidence", "Confidence", f"Histogram of the confidence of {size}", confidence),
        panel(
            "map",
            "Map of the pool",
            "The pool in two dimensions, by predicted class; rejected items are crosses",
            lambda axes: _paint_map(axes, points, rows, answers),
        ),
    ]


def _paint_map(axes: Any, points: NDArray[Any], rows: NDArray[np.int64], answers: Answers) -> None:
    best = answers.probabilities.argmax(axis=1)[rows]
    rejected = np.array([not answers.labels[row] for row in rows])
    for mask, (marker, colour) in _groups(answers, rows, best):
        shown = mask & ~rejected
        axes.scatter(*points[shown].T, s=9, marker=marker, c=colour, linewidths=0, alpha=0.6)
    axes.scatter(*points[rejected].T, s=12, marker="x", c=_REJECTED, linewidths=0.8)
    given = np.array([answers.sources[row] != "predicted" for row in rows]) & ~rejected
    axes.scatter(*points[given].T, s=20, marker="o", facecolors="none", edgecolors=INK, linewidths=0.7)
    _bare(axes)
    for name, place in _names(points, np.where(rejected, -1, best), answers.classes):
        axes.text(*place, name, fontsize=9, ha="center", va="center", color=INK)


def _names(
    points: NDArray[Any], codes: NDArray[np.int64], classes: Sequence[str]
) -> list[tuple[str, NDArray[np.float64]]]:
    """Names of the largest classes and their places on the map, as far as they do not cover each other."""
    extent = np.maximum(np.ptp(points, axis=0), 1e-12)
    sizes = np.bincount(codes[codes >= 0], minlength=len(classes))
    placed: list[tuple[str, NDArray[np.float64]]] = []
    for number in np.argsort(-sizes, kind="stable")[:_MOST_NAMES]:
        name = _short(classes[number])
        place = np.median(points[codes == number], axis=0) if sizes[number] else None
        if place is not None and not any(_overlap(name, place, other, at, extent) for other, at in placed):
            placed.append((name, place))
    return placed


def _overlap(name: str, place: NDArray[Any], other: str, at: NDArray[Any], extent: NDArray[Any]) -> bool:
    """Whether two names would cover each other: a letter takes about 1.8 % of the width, a line 6 % of the height."""
    across, up = np.abs(place - at) / extent
    return bool(up < 0.06 and across < 0.009 * (len(name) + len(other)))


def _groups(
    answers: Answers, rows: NDArray[np.int64], best: NDArray[np.int64]
) -> list[tuple[NDArray[np.bool_], tuple[str, str]]]:
    """Which points get which marker and colour: one for each class, or where these are many, by confidence."""
    if len(answers.classes) <= _MOST_COLOURS:
        return [(best == number, _mark(number)) for number in range(len(answers.classes))]
    confidence = answers.confidence[rows]
    sure, doubtful = confidence >= _SURE, confidence < _DOUBTFUL
    return [(doubtful, ("o", SERIES[1])), (~sure & ~doubtful, ("o", SERIES[0])), (sure, ("o", SERIES[2]))]


def key(answers: Answers) -> list[Key]:
    """Return the legend of the map."""
    if len(answers.classes) <= _MOST_COLOURS:
        found = [Key(marker_sign(*_mark(number)), name) for number, name in enumerate(answers.classes)]
    else:
        names = (f"confidence from {_SURE:.0%}", f"{_DOUBTFUL:.0%} to {_SURE:.0%}", f"below {_DOUBTFUL:.0%}")
        colours = (SERIES[2], SERIES[0], SERIES[1])
        found = [Key(marker_sign("o", colour), name) for name, colour in zip(names, colours, strict=True)]
    found.append(Key(marker_sign("o", INK, hollow=True), "label given"))
    rejected = any(not label for label in answers.labels)
    return [*found, Key(marker_sign("x", _REJECTED, hollow=True), "none of these")] if rejected else found


def pool_map(kind: str, features: NDArray[Any], marked: Sequence[int]) -> Panel:
    """Return a map of a pool without labels, some of its items marked."""
    rows = np.unique(np.r_[np.arange(0, len(features), -(-len(features) // _MOST_POINTS)), list(marked)]).astype(int)
    points, chosen = _plane(features[rows], None), np.isin(rows, list(marked))

    def paint(axes: Any) -> None:
        axes.scatter(*points[~chosen].T, s=9, c=SERIES[4], linewidths=0, alpha=0.5)
        axes.scatter(*points[chosen].T, s=42, c=SERIES[1], linewidths=0)
        _bare(axes)

    return panel("map", "Map of the pool", f"The pool in two dimensions; {kind} to label first are marked", paint)


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _short(name: str) -> str:
    return printable(name if len(name) <= 20 else f"{name[:19]}…")


def _mark(number: int) -> tuple[str, str]:
    """Return the marker and the colour of a class on the map."""
    return "osv^DPX"[number // len(SERIES) % 7], SERIES[number % len(SERIES)]


def _plane(features: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[np.float64]:
    """Rows [n, d] in two dimensions [n, 2]: where the class means differ most, or else where the rows do."""
    x = np.asarray(features, dtype=np.float64)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    x = x - x.mean(axis=0)
    spread = x
    if weights is not None and weights.shape[1] > 2:
        means = (weights.T.astype(np.float64) @ x) / np.maximum(weights.sum(axis=0)[:, None], 1e-12)
        spread = means - means.mean(axis=0)
    if len(spread) > spread.shape[1]:  # the directions of the covariance are the same, and cheaper
        directions = np.linalg.eigh(spread.T @ spread)[1].T[::-1]
    else:
        directions = np.linalg.svd(spread, full_matrices=False)[2]
    plane = x @ directions[:2].T
    return plane if plane.shape[1] == 2 else np.column_stack([plane, np.zeros((len(plane), 2 - plane.shape[1]))])
