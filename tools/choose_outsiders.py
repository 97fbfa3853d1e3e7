"""Measure what known outsiders teach `label`, and compare values of `sinkshot.estimators.outsiders.DOUBT`.

    python tools/choose_outsiders.py birds VALIDATION --features DIR
    python tools/choose_outsiders.py texts data_full.json --features DIR
    python tools/choose_outsiders.py birds NOVEL --features DIR --doubt 2           # shown after the choice
    python tools/choose_outsiders.py texts data_full.json --features DIR --doubt 2 --last

A pool has some classes with a few labels each and strangers of five other classes, two images or sentences of each of
which are known outsiders ("kin" are the strangers of these classes, "others" those of further ones). With `--last`, the
outsiders of texts are sentences out of scope, ten of them known. Percent of each that is rejected at the usual
threshold, means over draws: without any known outsider, and with them by DOUBT.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure_label import Data, images_of, texts_of
from numpy.typing import NDArray

from sinkshot.estimators import outsiders
from sinkshot.label.classifier import classify
from sinkshot.label.items import OUTSIDER, Items

KINDS, KNOWN = 5, 2  # classes of known outsiders, and how many are known of each
MEMBER, KIN, OTHER = 0, 1, 2


@dataclass(frozen=True)
class Plan:
    """Classes, labels of each, unlabelled rows of each (None: all), strangers of known kinds and of others."""

    ways: int
    shots: int
    size: int | None
    kin: int
    others: int


PLANS = {
    "birds": {
        "15 classes, 100 kin": Plan(15, 5, None, 100, 0),
        "15 classes, 40 kin, 40 others": Plan(15, 5, None, 40, 40),
        "15 classes, no strangers": Plan(15, 5, None, 0, 0),
        "15 classes, 3 labels, 100 kin": Plan(15, 3, None, 100, 0),
        "15 classes, 1 label, 100 kin": Plan(15, 1, None, 100, 0),
        "5 classes of 15, 75 kin": Plan(5, 5, 15, 75, 0),
        "5 classes of 15, no strangers": Plan(5, 5, 15, 0, 0),
    },
    "texts": {
        "20 intents, 200 kin": Plan(20, 5, 60, 200, 0),
        "20 intents, 100 kin, 100 others": Plan(20, 5, 60, 100, 100),
        "20 intents, no strangers": Plan(20, 5, 60, 0, 0),
        "20 intents, 1 label, 200 kin": Plan(20, 1, 60, 200, 0),
    },
}


@dataclass(frozen=True)
class Pool:
    """Features, labels (None, a class or OUTSIDER), and what each row is: MEMBER, KIN or OTHER."""

    features: NDArray[Any]
    labels: tuple[str | None, ...]
    what: NDArray[np.int64]


def drawn(data: Data, plan: Plan, seed: int) -> Pool:
    """Draw a pool."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(data.classes[data.classes >= 0]))
    rows: list[int] = []
    labels: list[str | None] = []
    what: list[int] = []

    def add(some: NDArray[np.int64], label: str | None, kind: int) -> None:
        rows.extend(some.tolist())
        labels.extend([label] * len(some))
        what.extend([kind] * len(some))

    for name in names[: plan.ways]:
        members = rng.permutation(np.flatnonzero(data.classes == name))
        add(members[: plan.shots], f"{name:03}", MEMBER)
        add(members[plan.shots : None if plan.size is None else plan.shots + plan.size], None, MEMBER)
    groups = [np.flatnonzero(data.classes == name) for name in names[plan.ways : plan.ways + KINDS]]
    known = KNOWN
    if (data.classes == -1).any():  # out of scope: of all kinds
        groups, known = [np.flatnonzero(data.classes == -1)], KINDS * KNOWN
    groups = [rng.permutation(group) for group in groups]
    for group in groups:
        add(group[:known], OUTSIDER, KIN)
    add(rng.permutation(np.concatenate([group[known:] for group in groups]))[: plan.kin], None, KIN)
    further = np.isin(data.classes, names[plan.ways + KINDS :])
    add(rng.permutation(np.flatnonzero(further))[: plan.others], None, OTHER)
    return Pool(data.features[rows], tuple(labels), np.array(what))


def rejected(pool: Pool, labels: tuple[str | None, ...]) -> Iterator[tuple[str, float]]:
    """Yield the share of each kind of unlabelled row that is rejected."""
    items = Items("embeddings", tuple(map(str, range(len(labels)))), labels, np.zeros(len(labels), bool))
    found = classify(items, pool.features, next_count=0)
    free = np.array([label is None for label in pool.labels])
    for kind, name in ((KIN, "kin"), (OTHER, "others"), (MEMBER, "members")):
        some = free & (pool.what == kind)
        if some.any():
            yield name, float(np.mean(found.unknown[some] > 0.5))


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kind", choices=tuple(PLANS))
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--features", type=Path, required=True, help="folder that keeps features")
    arguments.add_argument("--last", action="store_true", help="the last 75 intents instead of the first")
    arguments.add_argument("--doubt", type=float, nargs="+", default=[0.0, 1.0, 2.0, 3.0])
    arguments.add_argument("--draws", type=int, default=4)
    given = arguments.parse_args()
    if given.kind == "birds":
        data = images_of(given.source, given.features)
    else:
        data = texts_of(given.source, given.features)[given.last]
    warnings.simplefilter("ignore")
    for title, plan in PLANS[given.kind].items():
        rows: dict[tuple[str, str], list[float]] = defaultdict(list)
        for seed in range(given.draws):
            pool = drawn(data, plan, seed)
            unheard = tuple(None if label == OUTSIDER else label for label in pool.labels)
            for name, value in rejected(pool, unheard):
                rows["unheard", name].append(value)
            for doubt in given.doubt:
                outsiders.DOUBT = doubt
                for name, value in rejected(pool, pool.labels):
                    rows[f"DOUBT {doubt:g}", name].append(value)
        print(f"{title}, {given.draws} draws")
        for how in dict.fromkeys(how for how, _ in rows):
            cells = [f"{name} {100 * np.mean(values):5.1f}" for (by, name), values in rows.items() if by == how]
            print(f"  {how:10} {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
