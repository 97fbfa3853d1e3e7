"""What is measured on a bank rather than on episodes: Gaussianity, distributions, projections of classes, label curves.

Facts about features are measured raw ("before") and after a chain that acts on each row alone ("after"). All come out
as plain values that JSON can hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError, unknown_name, whole
from sinkshot.statistics import principal_components, skewness
from sinkshot.studies.label_curves import CLASSIFIERS, POOLS, label_curves
from sinkshot.studies.merge import selection_seed, shuffled
from sinkshot.studies.study import Measure

Float = NDArray[np.float64]

P_VALUE = 1e-3  # of the paper's test for a Gaussian
ENOUGH = 20  # rows of a class without which that test means nothing

OPTIONS: dict[str, dict[str, Any]] = {
    "gaussianity": {"chain": "P"},
    "distribution": {"chain": "P", "classes": 3, "bins": 50, "seed": 0},
    "projection": {"chain": "P", "classes": 3, "seed": 0},
    "label-curves": {
        "pool": "balanced",
        "classifier": "sinkshot",
        "draws": 50,
        "classes": 5,
        "rows": 60,
        "labels": 10,
        "seed": 0,
    },
}
"""Options of each kind of measure, and their defaults."""
_LEAST = {"classes": 1, "bins": 1, "seed": 0, "draws": 1, "rows": 8, "labels": 1}


def measure(bank: FeatureBank, what: Measure) -> dict[str, Any]:
    """Measure one fact about a bank."""
    options = settings(what.kind, dict(what.options))
    if what.kind == "label-curves":
        return label_curves(bank, **options)
    chain = _fitting(bank, preprocess.parse(options.pop("chain")))
    return _MEASURES[what.kind](bank, chain, **options)


def settings(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a kind of measure, checked and filled in."""
    if kind not in OPTIONS:
        raise unknown_name("kind of measure", kind, OPTIONS)
    known = OPTIONS[kind]
    for name in given:
        if name not in known:
            raise unknown_name(f"option of {kind}", name, known)
    filled = {**known, **given}
    for name, names in (("pool", POOLS), ("classifier", CLASSIFIERS)):
        if name in filled and filled[name] not in names:
            raise InputError(f"{name} is one of {', '.join(names)}; {filled[name]!r} was given.")
    steps = preprocess.parse(filled.get("chain", ""))
    if any(step.name in ("Mn", "Mb", "Z") for step in steps):
        raise InputError(f"chain must act on each row alone (P, Ps, E); {filled['chain']!r} was given.")
    for name, least in _LEAST.items():
        if name in filled:
            whole(name, filled[name], least)
    return filled


def _fitting(bank: FeatureBank, steps: preprocess.Chain) -> preprocess.Chain:
    """Use the signed power if features are negative."""
    if bank.features.min() >= 0:
        return steps
    return tuple(replace(step, name="Ps") if step.name == "P" else step for step in steps)


def gaussianity(bank: FeatureBank, chain: preprocess.Chain) -> dict[str, Any]:
    """Apply D'Agostino and Pearson's test to each coordinate within each class; count passes at p = 0.001.

    A coordinate that is constant within a class does not pass; classes of fewer than 20 rows are left out.
    """
    large = [c for c in range(bank.classes) if bank.counts[c] >= ENOUGH]
    if not large:
        raise InputError(
            f"the test for a Gaussian needs {ENOUGH} samples per class, and no class of the bank has that many."
        )
    passed, constant = np.zeros(2, int), np.zeros(2, int)
    skew: list[list[float]] = []
    for c in large:
        raw = bank.features[bank.labels == c].astype(np.float64)  # [m, d]
        both = raw, preprocess.run(raw, chain).x
        passed += [int(looks_gaussian(x).sum()) for x in both]
        constant += [int((x.min(axis=0) == x.max(axis=0)).sum()) for x in both]
        skew.append([float(skewness(x).mean()) for x in both])
    tests = len(large) * bank.width
    before, after = (
        {
            "passed": int(passed[i]),
            "rate": int(passed[i]) / tests,
            "constant": int(constant[i]),
            "skewness": float(np.mean(skew, axis=0)[i]),
        }
        for i in range(2)
    )
    left_out = [bank.class_names[c] for c in range(bank.classes) if c not in large]
    rows = [int(min(bank.counts[c] for c in large)), int(max(bank.counts[c] for c in large))]
    counts = {"classes": len(large), "rows": rows, "coordinates": bank.width, "tests": tests, "left_out": left_out}
    return {"chain": preprocess.spell(chain), "level": P_VALUE, **counts, "before": before, "after": after}


def distribution(bank: FeatureBank, chain: preprocess.Chain, classes: int, bins: int, seed: int) -> dict[str, Any]:
    """Histograms of one feature for a few classes; feature and classes are drawn by the seed.

    The feature is drawn among those that vary within each of the classes.
    """
    chosen = _classes(bank, classes, seed)
    raw = [bank.features[bank.labels == c].astype(np.float64) for c in chosen]
    varies = np.all([x.min(axis=0) < x.max(axis=0) for x in raw], axis=0)
    if not varies.any():
        raise InputError("no feature varies within each of the chosen classes, so there is no distribution to show.")
    order = shuffled(bank.width, selection_seed(seed, 1))
    feature = int(order[varies[order]][0])
    names = [bank.class_names[c] for c in chosen]
    done = [preprocess.run(x, chain).x[:, feature] for x in raw]
    return {
        "chain": preprocess.spell(chain),
        "classes": names,
        "feature": feature,
        "before": _histograms(names, [x[:, feature] for x in raw], bins),
        "after": _histograms(names, done, bins),
    }


def _histograms(names: list[str], samples: list[Float], bins: int) -> dict[str, Any]:
    """Count values per class in bins over the common range; x is the left edge of each bin."""
    edges = np.linspace(min(x.min() for x in samples), max(x.max() for x in samples), bins + 1)
    counts = {name: np.histogram(x, edges)[0].tolist() for name, x in zip(names, samples, strict=True)}
    skews = {name: float(skewness(x[:, None])[0]) for name, x in zip(names, samples, strict=True)}
    return {"x": edges[:-1].tolist(), "width": float(edges[1] - edges[0]), "counts": counts, "skewness": skews}


def projection(bank: FeatureBank, chain: preprocess.Chain, classes: int, seed: int) -> dict[str, Any]:
    """Rows of a few classes on their first three principal components; classes are drawn by the seed."""
    chosen = _classes(bank, classes, seed)
    rows = np.concatenate([np.flatnonzero(bank.labels == c) for c in chosen])
    raw, labels = bank.features[rows].astype(np.float64), bank.labels[rows]
    parts = {}
    for name, x in (("before", raw), ("after", preprocess.run(raw, chain).x)):
        points, shares = principal_components(x, 3)
        by_class = {bank.class_names[c]: _rounded(points[labels == c], np.abs(points).max()) for c in chosen}
        parts[name] = {"points": by_class, "variance": [round(float(share), 4) for share in shares]}
    return {"chain": preprocess.spell(chain), "classes": [bank.class_names[c] for c in chosen], **parts}


def _rounded(points: Float, largest: float) -> list[list[float]]:
    """Round to four digits of the largest coordinate, enough for a figure."""
    digits = 3 - math.floor(math.log10(largest)) if largest > 0 else 0
    return [[round(float(v), digits) for v in point] for point in points]


def _classes(bank: FeatureBank, count: int, seed: int) -> list[int]:
    if count > bank.classes:
        raise InputError(f"{count} classes were asked for, but the bank has {bank.classes}; lower `classes`.")
    return [int(c) for c in shuffled(bank.classes, selection_seed(seed, 0))[:count]]


_MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "gaussianity": gaussianity,
    "distribution": distribution,
    "projection": projection,
}


def looks_gaussian(x: Float) -> NDArray[np.bool_]:
    """Return which columns of x [n, d] pass D'Agostino and Pearson's test at p = 0.001."""
    from scipy import stats

    if len(x) < ENOUGH:
        return np.zeros(x.shape[1], dtype=bool)
    varies = x.min(axis=0) < x.max(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that hardly vary
        passed = stats.normaltest(x, axis=0).pvalue > P_VALUE
    return np.asarray(passed & varies)
