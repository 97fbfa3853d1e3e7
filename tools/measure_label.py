"""Compare `label`'s classifier with scikit-learn's on texts and images: the tables of docs/label.md.

    python tools/measure_label.py texts data_full.json --features DIR            # CLINC150
    python tools/measure_label.py images NOVEL --choose VALIDATION --features DIR  # folders with a folder per class

Each draw takes some classes and five labels of each. The pool holds the other items of those classes and strangers of
other classes (texts: out-of-scope sentences). Rivals get the same vectors at unit length; their constants are the best
on other classes: the first 75 intents, or the folder of `--choose`. Percent; differences are paired by draw, with their
95 % interval.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestCentroid
from sklearn.semi_supervised import LabelSpreading

from sinkshot import __version__
from sinkshot.calibration import Confidence
from sinkshot.encoders import load
from sinkshot.label.cache import NAME, FeatureCache
from sinkshot.label.classifier import classify
from sinkshot.label.encode import encode
from sinkshot.label.inputs import images
from sinkshot.label.items import Items, unlabelled
from sinkshot.settings.sinkshot import SETTINGS

SHOTS = 5
Array = NDArray[Any]
Fit = Callable[[Array, Array], tuple[Array, Array]]  # features, codes (-1: pool) -> probabilities, unknown of the pool


@dataclass(frozen=True)
class Data:
    """Vectors, their classes, and which classes are strangers only (code -1)."""

    features: Array  # [n, d]
    classes: Array  # [n]


@dataclass(frozen=True)
class Draw:
    """One trial: features and codes of labelled rows and the pool, and the truth of the pool (-1: a stranger)."""

    features: Array
    codes: Array
    truth: Array


def ours(x: Array, codes: Array) -> tuple[Array, Array]:
    """Fit the classifier of `label`."""
    labels = tuple(None if code == -1 else f"{code:03}" for code in codes)
    names, accepted = tuple(map(str, range(len(x)))), np.zeros(len(x), dtype=bool)
    answers = classify(Items("embeddings", names, labels, accepted, features=x), x, next_count=0)
    pool = codes == -1
    return answers.probabilities[pool], answers.unknown[pool]


def rival(make: Callable[[], Any]) -> Fit:
    """Return a function that fits a scikit-learn classifier; its unknown score is 1 - the largest probability."""

    def fit(x: Array, codes: Array) -> tuple[Array, Array]:
        unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        model, pool = make(), codes == -1
        model.fit(unit, codes) if isinstance(model, LabelSpreading) else model.fit(unit[~pool], codes[~pool])
        found = model.predict_proba(unit[pool])
        found = np.nan_to_num(found, nan=1 / found.shape[1])  # LabelSpreading divides 0 by 0 for rows far from all
        return found, 1 - found.max(axis=1)

    return fit


RIVALS: dict[str, dict[str, Callable[[], Any]]] = {
    "LogisticRegression": {f"C={c}": lambda c=c: LogisticRegression(C=c, max_iter=2000) for c in (1, 10, 100, 1000)},
    "LabelSpreading": {
        f"gamma={g}, alpha={a}": lambda g=g, a=a: LabelSpreading(gamma=g, alpha=a, max_iter=200)
        for g in (2, 5, 20, 50, 100)
        for a in (0.2, 0.8)
    }
    | {
        f"knn, {k} neighbours, alpha={a}": lambda k=k, a=a: LabelSpreading("knn", n_neighbors=k, alpha=a, max_iter=200)
        for k in (7, 20)
        for a in (0.2, 0.8)
    },
    "NearestCentroid": {"": NearestCentroid},
}


def draw(
    data: Data,
    ways: int,
    pool_sizes: Sequence[int] | None,
    strangers: int,
    seed: int,
    shots: int = SHOTS,
    alike: bool = False,
) -> Draw:
    """Choose classes, labels, pool and strangers; `pool_sizes` gives the unlabelled items of each class, if not all.

    The classes are random ones or, if `alike`, those that are nearest to a random one.
    """
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(data.classes[data.classes >= 0]))
    if alike:
        means = np.stack([data.features[data.classes == name].mean(axis=0) for name in names])
        names = names[np.argsort(-(means @ means[0]) / np.linalg.norm(means, axis=1), kind="stable")]
    outside = np.flatnonzero(data.classes == -1)
    if not len(outside):
        outside = np.flatnonzero(np.isin(data.classes, names[ways:]))
    rows, codes, truth = [], [], []
    for code, name in enumerate(names[:ways]):
        members = rng.permutation(np.flatnonzero(data.classes == name))
        most = None if pool_sizes is None else shots + pool_sizes[code]
        rows.append(members[:most])
        codes.append(np.where(np.arange(len(rows[-1])) < shots, code, -1))
        truth.append(np.full(len(rows[-1]), code))
    rows.append(rng.permutation(outside)[:strangers])
    codes.append(np.full(len(rows[-1]), -1))
    truth.append(codes[-1])
    all_codes, all_truth = np.concatenate(codes), np.concatenate(truth)
    return Draw(data.features[np.concatenate(rows)], all_codes, all_truth[all_codes == -1])


@dataclass(frozen=True)
class Score:
    """What one method reached in one draw."""

    accuracy: float
    macro: float
    auroc: float
    confidence: Confidence


def score(trial: Draw, fit: Fit) -> Score:
    """Fit and compare with the truth; accuracy is over members, whether or not they were rejected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probabilities, unknown = fit(trial.features, trial.codes)
    member = trial.truth >= 0
    right = probabilities[member].argmax(axis=1) == trial.truth[member]
    macro = np.mean([right[trial.truth[member] == code].mean() for code in np.unique(trial.truth[member])])
    confidence = Confidence.of(probabilities[None, member], trial.truth[None, member])
    return Score(float(right.mean()), float(macro), float(roc_auc_score(~member, unknown)), confidence)


def measured(trials: Sequence[Draw], fits: Mapping[str, Fit]) -> dict[str, list[Score]]:
    """Score every method on every draw."""
    return {name: [score(trial, fit) for trial in trials] for name, fit in fits.items()}


def chosen(trials: Sequence[Draw]) -> dict[str, Fit]:
    """Return the rivals with the constants that are best on these draws, and print which."""
    fits: dict[str, Fit] = {}
    for name, options in RIVALS.items():
        means = {}
        for spelled, make in options.items():
            scores = [score(trial, rival(make)) for trial in trials] if len(options) > 1 else []
            means[spelled] = float(np.mean([one.accuracy for one in scores])) if scores else 0.0
        best = max(means, key=lambda spelled: means[spelled])
        fits[f"{name} ({best})" if best else name] = rival(options[best])
    return fits


def table(found: Mapping[str, list[Score]]) -> str:
    """Return a Markdown table; differences are ours minus theirs."""
    own = next(iter(found.values()))
    lines = [
        "| | accuracy | ours minus it | macro accuracy | ours minus it | AUROC of the unknown | ECE |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, scores in found.items():
        cells = [name]
        for what in ("accuracy", "macro"):
            values = np.array([getattr(one, what) for one in scores])
            gaps = np.array([getattr(one, what) for one in own]) - values
            half = 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps))
            cells += [
                f"{100 * values.mean():.2f}",
                "" if scores is own else f"{100 * gaps.mean():+.2f} ± {100 * half:.2f}",
            ]
        ece = sum((one.confidence for one in scores[1:]), scores[0].confidence).ece
        cells += [f"{100 * np.mean([one.auroc for one in scores]):.1f}", f"{100 * ece:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sentences_of(path: Path) -> tuple[list[str], Array]:
    """Return CLINC150's sentences, and the numbers of their intents in alphabetical order, -1 out of scope."""
    content = json.loads(path.read_text(encoding="utf-8"))
    pairs = [tuple(pair) for part in ("train", "val", "test") for pair in content[part]]
    outside = [pair[0] for part in ("oos_train", "oos_val", "oos_test") for pair in content[part]]
    intents = sorted({pair[1] for pair in pairs})
    codes = np.array([intents.index(pair[1]) for pair in pairs] + [-1] * len(outside))
    return [pair[0] for pair in pairs] + outside, codes


def vectors_of(sentences: Sequence[str], features: Path) -> Array:
    """Return the vectors of sentences, kept in a folder."""
    names = tuple(map(str, range(len(sentences))))
    accepted = np.zeros(len(sentences), dtype=bool)
    items = Items("texts", names, unlabelled(len(names)), accepted, texts=tuple(sentences))
    return encoded(items, "minilm", features)


def texts_of(path: Path, features: Path) -> tuple[Data, Data]:
    """Return CLINC150's first 75 intents in alphabetical order, and the others with the sentences out of scope."""
    sentences, codes = sentences_of(path)
    vectors = vectors_of(sentences, features)
    first = (codes < 75) & (codes >= 0)  # strangers while choosing: other intents of the first 75
    last = ~first
    return Data(vectors[first], codes[first]), Data(vectors[last], codes[last])


def images_of(folder: Path, features: Path) -> Data:
    """Return the images of a folder with a folder per class."""
    items = images.read(folder)
    classes = np.unique([str(label) for label in items.labels], return_inverse=True)[1]
    return Data(encoded(items, "efficientnet-lite0", features), classes)


def encoded(items: Items, encoder: str, features: Path) -> Array:
    """Return the features of items, kept in a folder."""
    chosen_encoder = load(encoder, "text" if items.kind == "texts" else "image")
    with FeatureCache(features / NAME, chosen_encoder.digest, chosen_encoder.width) as cache:
        rest, found = encode(items, chosen_encoder, cache)
    if len(rest) < len(items):
        raise SystemExit(f"{len(items) - len(rest)} items cannot be read")
    return found


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kind", choices=("texts", "images"))
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--choose", type=Path, help="folder of other classes, for the rivals' constants")
    arguments.add_argument("--features", type=Path, required=True, help="folder that keeps features")
    arguments.add_argument("--draws", type=int, default=20)
    arguments.add_argument("--on-first", action="store_true", help="measure on the classes for choosing instead")
    given = arguments.parse_args()
    plans: dict[str, tuple[int, Sequence[int] | None, int]]
    if given.kind == "texts":
        other, data = texts_of(given.source, given.features)
        plans = {"20 intents, 200 sentences out of scope": (20, None, 200)}
    else:
        if given.choose is None:
            raise SystemExit("images need --choose, a folder of other classes")
        other, data = images_of(given.choose, given.features), images_of(given.source, given.features)
        plans = {
            "15 classes, all their images, 100 strangers": (15, None, 100),
            "5 classes with 48, 24, 12, 6, 3 unlabelled images, 12 strangers": (5, (48, 24, 12, 6, 3), 12),
        }
    for title, (ways, sizes, strangers) in plans.items():
        trials = [draw(other, ways, sizes, strangers, seed) for seed in range(1_000, 1_005)]
        fits = {"ours": ours, **chosen(trials)}
        source = other if given.on_first else data
        draws = given.draws if sizes is None else 5 * given.draws  # small pools vary more, and cost little
        found = measured([draw(source, ways, sizes, strangers, seed) for seed in range(draws)], fits)
        settings = hashlib.sha256(repr(SETTINGS).encode()).hexdigest()[:8]
        print(
            f"{title}, {draws} draws, sinkshot {__version__}, its settings {settings}\n\n{table(found)}\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
