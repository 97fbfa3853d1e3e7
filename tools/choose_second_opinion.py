"""Compare constants of `label`'s second opinion (`sinkshot.label.second_opinion`) on classes for choosing.

    python tools/choose_second_opinion.py birds VALIDATION --features DIR [--draws 200]
    python tools/choose_second_opinion.py texts data_full.json --features DIR
    python tools/choose_second_opinion.py bank data/banks/cifar-fs_wrn-28-10_validation.safetensors

Pools are drawn as by `tools/measure_label.py`, whose tables on other classes are made afterwards. Percent, means over
draws: accuracy and macro accuracy of logistic regression, of the method and of both combined, by the power of class
sizes that is taken out; AUROC of strangers by the method and ranked again, by the spread of class sizes from which the
method's own rank is left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from measure_label import Data, Draw, draw, images_of, texts_of
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import sinkshot
from sinkshot.estimators.few_shot import FewShotClassifier
from sinkshot.label.classifier import chain_for
from sinkshot.label.second_opinion import combined, decision_values, ranked_again

PLANS = {  # classes, unlabelled rows of each (None: all), strangers, share of --draws
    "unequal classes": (5, (48, 24, 12, 6, 3), 12, 1.0),
    "equal classes, few strangers": (10, (40,) * 10, 50, 0.1),
    "equal classes, half strangers": (5, (15,) * 5, 75, 0.2),
}
POWERS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 1.0)
SPREADS = (0.125, 0.25, 0.5, 1.0)


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
    for power in POWERS if "W" in chain else ():
        note(f"both, power {power:g}", combined(own, decisions, *given, chain, by_size=power))
    found["AUROC: method"] = float(roc_auc_score(~member, model.unknown_[pool]))
    for spread in SPREADS:
        again = ranked_again(model.unknown_, own, decisions, *given, most_spread=spread)
        found[f"AUROC: ranked again, spread {spread:g}"] = float(roc_auc_score(~member, again[pool]))
    return found


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kind", choices=("birds", "texts", "bank"))
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--features", type=Path, help="folder that keeps features")
    arguments.add_argument("--draws", type=int, default=200)
    given = arguments.parse_args()
    if given.kind == "bank":
        bank = sinkshot.load(given.source)
        data = Data(np.asarray(bank.features, np.float32), np.asarray(bank.labels))
    elif given.features is None:
        raise SystemExit("give --features, a folder that keeps features")
    else:
        data = (
            images_of(given.source, given.features)
            if given.kind == "birds"
            else texts_of(given.source, given.features)[0]
        )
    for title, (ways, sizes, strangers, share) in PLANS.items():
        rows = defaultdict(list)
        seeds = range(max(1, round(share * given.draws)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in seeds:
                for name, value in measured(draw(data, ways, sizes, strangers, seed)).items():
                    rows[name].append(100 * value)
        print(f"{title}, {len(seeds)} draws")
        for name, values in sorted(rows.items()):
            print(f"  {name:45} {np.mean(values):6.2f}")


if __name__ == "__main__":
    main()
