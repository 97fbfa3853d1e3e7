"""Compare constants of `label`'s second opinion (`sinkshot.label.second_opinion`) on classes for choosing.

    python tools/choose_second_opinion.py birds VALIDATION --features DIR [--draws 200]
    python tools/choose_second_opinion.py texts data_full.json --features DIR
    python tools/choose_second_opinion.py hard-texts data_full.json --features DIR --draws 10
    python tools/choose_second_opinion.py bank data/banks/cifar-fs_wrn-28-10_validation.safetensors

Pools are drawn as by `tools/measure_label.py`, whose tables on other classes are made afterwards. Sentences of 20 of
the first 75 intents are so easy that no choice shows; `hard-texts` makes harder tasks of the same intents: confusable
ones, three labels, words left out, five words of each sentence, noise. Percent, means over draws: accuracy and macro
accuracy of logistic regression, of the method and of both combined, by the power of class sizes that is taken out and
by the weight of the regression; AUROC of strangers by the method and ranked again, by the spread of class sizes from
which the method's own rank is left out. Differences to logistic regression are paired by draw, with their 95 %
interval.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure_label import SHOTS, Data, Draw, draw, images_of, sentences_of, texts_of, vectors_of
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import sinkshot
from sinkshot.estimators.few_shot import FewShotClassifier
from sinkshot.label.classifier import chain_for
from sinkshot.label.second_opinion import combined, decision_values, ranked_again


@dataclass(frozen=True)
class Plan:
    """A kind of task: classes, unlabelled rows of each (None: all), strangers, share of --draws, labels per class."""

    ways: int
    sizes: Sequence[int] | None
    strangers: int
    share: float = 1.0
    shots: int = SHOTS
    alike: bool = False  # classes that are near to each other

    def draw(self, data: Data, seed: int) -> Draw:
        """Draw a task."""
        return draw(data, self.ways, self.sizes, self.strangers, seed, self.shots, self.alike)


PLANS = {
    "unequal classes": Plan(5, (48, 24, 12, 6, 3), 12),
    "equal classes, few strangers": Plan(10, (40,) * 10, 50, 0.1),
    "equal classes, half strangers": Plan(5, (15,) * 5, 75, 0.2),
}
TWENTY = Plan(20, None, 200)
ALIKE = Plan(20, None, 200, alike=True)
POWERS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 1.0)
WEIGHTS = (0.25, 0.5, 0.75, 1.5)
SPREADS = (0.125, 0.25, 0.5, 1.0)
Tasks = Iterator[tuple[str, Plan, Data]]


def hard_texts(path: Path, features: Path) -> Tasks:
    """Yield harder tasks of the first 75 intents."""
    sentences, codes = sentences_of(path)
    first = np.flatnonzero((codes >= 0) & (codes < 75))
    codes, rng = codes[first], np.random.default_rng(0)

    def with_some(share: float) -> Callable[[str], str]:
        def change(sentence: str) -> str:
            words = sentence.split()
            return " ".join(word for word in words if rng.random() < share) or words[0]

        return change

    def data(change: Callable[[str], str]) -> Data:
        return Data(vectors_of([change(sentences[i]) for i in first], features), codes)

    whole = data(str)
    yield "20 intents", TWENTY, whole
    yield "20 confusable intents", ALIKE, whole
    yield "20 confusable intents, 3 labels", Plan(20, None, 200, shots=3, alike=True), whole
    yield "20 intents, half of the words", TWENTY, data(with_some(0.5))
    yield "20 confusable intents, 70 % of the words", ALIKE, data(with_some(0.7))
    yield "20 intents, the first five words", TWENTY, data(lambda sentence: " ".join(sentence.split()[:5]))
    yield "20 intents, noise", TWENTY, Data(whole.features + rng.normal(0, 0.08, whole.features.shape), codes)
    yield "75 intents, 3 labels", Plan(75, (40,) * 75, 0, shots=3), whole
    unequal = (100, 70, 50, 35, 25, 18, 12, 8, 6, 4)
    yield "10 confusable intents, unequal", Plan(10, unequal, 50, alike=True), whole


def tasks_of(kind: str, source: Path, features: Path | None) -> Tasks:
    """Yield title, plan and data of the tasks of a kind."""
    if kind == "bank":
        bank = sinkshot.load(source)
        data = Data(np.asarray(bank.features, np.float32), np.asarray(bank.labels))
    elif features is None:
        raise SystemExit("give --features, a folder that keeps features")
    elif kind == "hard-texts":
        yield from hard_texts(source, features)
        return
    else:
        data = images_of(source, features) if kind == "birds" else texts_of(source, features)[0]
    yield from ((title, plan, data) for title, plan in PLANS.items())


def measured(trial: Draw) -> dict[str, float]:
    """Return what each candidate reaches in one draw."""
    member, pool = trial.truth >= 0, trial.codes == -1
    labels = [None if code == -1 else f"{code:03}" for code in trial.codes]
    chain = chain_for("sinkshot", trial.features, labels)
    model = FewShotClassifier(preprocess=chain, unknown=0.5).fit(trial.features, labels)
    own, given = model.label_distributions_, (trial.features, trial.codes)
    decisions = decision_values(*given)
    found: dict[str, float] = {}

    def note(name: str, values: NDArray[Any]) -> None:
        right = values[pool][member].argmax(axis=1) == trial.truth[member]
        by_class = [right[trial.truth[member] == code].mean() for code in np.unique(trial.truth[member])]
        found[f"accuracy: {name}"], found[f"macro accuracy: {name}"] = float(right.mean()), float(np.mean(by_class))

    note("logistic regression", decisions)
    note("method", own)
    for power in POWERS:
        note(f"both, power {power:g}", combined(own, decisions, *given, chain, by_size=power))
    for weight in WEIGHTS:
        note(f"both, weight {weight:g}", combined(own, decisions, *given, chain, weight=weight))
    if not (~member).any():
        return found
    found["AUROC: method"] = float(roc_auc_score(~member, model.unknown_[pool]))
    for spread in SPREADS:
        again = ranked_again(model.unknown_, own, decisions, *given, most_spread=spread)
        found[f"AUROC: ranked again, spread {spread:g}"] = float(roc_auc_score(~member, again[pool]))
    return found


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kind", choices=("birds", "texts", "hard-texts", "bank"))
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--features", type=Path, help="folder that keeps features")
    arguments.add_argument("--draws", type=int, default=200)
    given = arguments.parse_args()
    everywhere = defaultdict(list)  # means over the draws of each task
    for title, plan, data in tasks_of(given.kind, given.source, given.features):
        rows = defaultdict(list)
        seeds = range(max(1, round(plan.share * given.draws)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in seeds:
                for name, value in measured(plan.draw(data, seed)).items():
                    rows[name].append(100 * value)
        print(f"{title}, {len(seeds)} draws")
        for name, values in sorted(rows.items()):
            what = name.split(":")[0]
            gaps = np.subtract(values, rows.get(f"{what}: logistic regression", values))
            half = 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
            print(f"  {name:45} {np.mean(values):6.2f} {gaps.mean():+6.2f} ± {half:.2f}", flush=True)
            everywhere[name].append(np.mean(values))
    print("mean over tasks")
    for name, values in sorted(everywhere.items()):
        print(f"  {name:45} {np.mean(values):6.2f}")


if __name__ == "__main__":
    main()
