"""Figures that explain the method: accuracy over episodes, the power transform, and one episode in the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.evaluate import Result
from sinkshot.report.figures import charts
from sinkshot.report.figures.svg import INK, MUTED, Key, Panel, class_sign, line_sign, marker_sign, panel
from sinkshot.report.page import number, percent
from sinkshot.statistics import principal_components, skewness
from sinkshot.studies.measures import ENOUGH, looks_gaussian
from sinkshot.task import Task

Float = NDArray[np.float64]

BIN = 0.04  # width of a bin of accuracies, about


@dataclass(frozen=True)
class Spread:
    """Accuracy of two methods episode by episode."""

    panels: tuple[Panel, Panel]
    key: tuple[Key, Key]
    better: float  # share of episodes in which the second is above the first
    level: float


def spread(first: Result, second: Result, labels: tuple[str, str]) -> Spread:
    """Histograms of the accuracies of two methods, and of their difference on the same episodes."""
    queries = first.recipe.way * first.recipe.query
    same = min(first.episodes, second.episodes)
    a, b = first.per_episode[:same], second.per_episode[:same]
    better, level = float((b > a).mean()), float((b == a).mean())
    edges = 100 * accuracy_edges(min(a.min(), b.min()), queries)
    gap_bins = 100 * gap_edges(b - a, queries)
    apart = f"{labels[1]} minus {labels[0]}"
    told = [f"{label} has mean {percent(x.mean())} %" for label, x in zip(labels, (a, b), strict=True)]
    return Spread(
        panels=(
            panel(
                "spread",
                "Accuracy of each episode",
                f"Histograms of accuracy over {same} episodes: {'; '.join(told)}.",
                lambda axes: charts.distributions(axes, [100 * a, 100 * b], edges, "accuracy, %", "episodes"),
            ),
            panel(
                "gap",
                f"{apart}, same episodes",
                f"Histogram of {apart} over the same episodes: above in {percent(better, 1)} %.",
                lambda axes: _gaps(axes, 100 * (b - a), gap_bins),
            ),
        ),
        key=(Key(line_sign(0), labels[0]), Key(line_sign(1), labels[1])),
        better=better,
        level=level,
    )


def _bin(queries: int) -> int:
    """Queries in a bin: an odd number, so that the bin at zero of a difference has equal sides."""
    return 2 * round((BIN * queries - 1) / 2) + 1 if BIN * queries > 1 else 1


def accuracy_edges(least: float, queries: int) -> Float:
    """Edges of bins from `least` up to one. Accuracies are multiples of 1 / queries; edges lie between two of them."""
    step = _bin(queries)
    bins = max(1, -(-round((1 - least) * queries + 1) // step))
    return (queries + 0.5 - step * np.arange(bins, -1, -1)) / queries


def gap_edges(gaps: Float, queries: int) -> Float:
    """Edges of bins over differences of accuracies, one bin centred on zero."""
    step = _bin(queries)
    low, high = (int(np.round(x * queries / step)) for x in (min(gaps.min(), 0.0), max(gaps.max(), 0.0)))
    return (np.arange(low, high + 2) - 0.5) * step / queries


def _gaps(axes: Any, values: NDArray[Any], edges: NDArray[Any]) -> None:
    charts.distributions(axes, [values], edges, "difference, points", "episodes", colour=4)
    axes.axvline(0, color=MUTED, linewidth=1)


@dataclass(frozen=True)
class Feature:
    """One feature of a few classes, before and after the power transform."""

    column: int
    panels: tuple[Panel, Panel]
    skewness: tuple[tuple[float, float], ...]  # before and after, by class


@dataclass(frozen=True)
class Power:
    """What the power transform does to the features of each class."""

    step: str
    classes: tuple[str, ...]
    key: tuple[Key, ...]
    symmetric: Feature
    typical: Feature
    mean_skewness: tuple[float, float]  # before and after, over all classes and features
    gaussian: tuple[float, float] | None  # share of all classes and features that pass the test


def power(bank: FeatureBank, shown: int = 3) -> Power:
    """Figure 2 of the paper: a feature of three classes before and after.

    The classes are the first of the bank. Two features are shown, each by a rule: the one that the transform leaves
    most symmetric, and the one with the median fall in skewness, so that half of all features change more.
    """
    step = "P" if bank.features.min() >= 0 else "Ps"
    chain = preprocess.parse(step)
    skews, passes = [], []
    for c in range(bank.classes):
        before = bank.features[bank.labels == c].astype(np.float64)
        both = before, preprocess.run(before, chain).x
        skews.append([skewness(x) for x in both])
        passes.append([looks_gaussian(x) for x in both])
    skew, passed = np.array(skews), np.array(passes)  # [classes, 2, d]
    of_shown = skew[:shown]
    left = np.where((of_shown[:, 0] == 0).any(axis=0), np.inf, np.abs(of_shown[:, 1]).mean(axis=0))
    fall = (of_shown[:, 0] - of_shown[:, 1]).mean(axis=0)
    names = bank.class_names[:shown]

    def feature(column: int) -> Feature:
        raw = [bank.features[bank.labels == c, column].astype(np.float64) for c in range(len(names))]
        done = [preprocess.run(x[:, None], chain).x[:, 0] for x in raw]
        told = tuple((float(s[0]), float(s[1])) for s in of_shown[:, :, column])
        panels = (
            _histograms(f"Feature {column}, before", raw, [before for before, _ in told]),
            _histograms(f"Feature {column}, after", done, [after for _, after in told]),
        )
        return Feature(column, panels, told)

    return Power(
        step=step,
        classes=names,
        key=tuple(Key(line_sign(i), name) for i, name in enumerate(names)),
        symmetric=feature(int(left.argmin())),
        typical=feature(int(np.argsort(fall, kind="stable")[len(fall) // 2])),
        mean_skewness=(float(skew[:, 0].mean()), float(skew[:, 1].mean())),
        gaussian=(float(passed[:, 0].mean()), float(passed[:, 1].mean())) if bank.counts.min() >= ENOUGH else None,
    )


def _histograms(title: str, samples: list[Float], skews: list[float]) -> Panel:
    low, high = min(x.min() for x in samples), max(x.max() for x in samples)
    edges = np.linspace(low, high if high > low else low + 1, 31)
    told = ", ".join(number(skew) for skew in skews)
    return panel(
        title.lower().replace(", ", "-").replace(" ", "-"),
        title,
        f"Histograms for {len(samples)} classes. {title}; skewness by class: {told}.",
        lambda axes: charts.distributions(axes, samples, edges, "value", "rows"),
        height=2.7,
    )


@dataclass(frozen=True)
class Example:
    """One episode in the plane."""

    number: int
    panels: tuple[Panel, Panel]
    key: tuple[Key, ...]
    raw: float  # share of queries that the nearest class mean of raw features labels right
    right: float  # share that the method labels right


def example(bank: FeatureBank, result: Result, label: str) -> Example:
    """The first episode in which the method's accuracy is its median, before and after preprocessing."""
    middle = np.sort(result.per_episode)[result.episodes // 2]
    number = int(np.argmax(result.per_episode == middle))
    drawn = result.recipe.draw(bank.labels, number, 1, bank.class_names)
    way, truth = result.recipe.way, drawn.query_labels[0]
    before = Task(bank.features[drawn.support], drawn.support_labels, bank.features[drawn.query], way)
    after = preprocess.apply(before, result.preprocess, bank.base)
    wrong_before = methods.get("ncm")(before).probabilities[0].argmax(axis=-1) != truth
    wrong_after = methods.get(result.method)(after, **result.hyper).probabilities[0].argmax(axis=-1) != truth
    rows = [drawn.support[0][np.argmax(drawn.support_labels[0] == c)] for c in range(way)]
    names = [bank.class_names[bank.labels[row]] for row in rows]
    return Example(
        number=number,
        panels=(
            _plane("raw", "Raw features, nearest class mean", before, truth, wrong_before),
            _plane("done", f"After {result.preprocess or 'no preprocessing'}, {label}", after, truth, wrong_after),
        ),
        key=(
            *(Key(class_sign(c), name) for c, name in enumerate(names)),
            Key(marker_sign("*", INK, 17), "labelled example"),
            Key(marker_sign("o", INK, 13, hollow=True), "query labelled wrong"),
        ),
        raw=1 - float(wrong_before.mean()),
        right=1 - float(wrong_after.mean()),
    )


def _plane(name: str, title: str, task: Task, truth: NDArray[np.int32], wrong: NDArray[np.bool_]) -> Panel:
    rows, shares = principal_components(np.vstack([task.support[0], task.query[0]]).astype(np.float64), 2)
    cut = task.support.shape[1]
    points = charts.Points(rows[:cut], rows[cut:], task.labels[0], truth, wrong)
    labels = [f"component {i}, {100 * share:.0f} % of variance" for i, share in enumerate(shares, start=1)]
    right = len(wrong) - int(wrong.sum())
    return panel(
        f"episode-{name}",
        title,
        f"{title}: the episode's rows on their first two principal components; {right} of {len(wrong)} queries right.",
        lambda axes: charts.episode(axes, points, labels),
        height=4.2,
    )
