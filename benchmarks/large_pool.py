"""One large pool: make it from a bank by blending rows, and measure a fit of `FewShotClassifier` to it.

    python benchmarks/large_pool.py --rows 50000 --unknown 0.5
    python benchmarks/large_pool.py --rows 50000 --unknown 0.5 --strangers 7 --shots 1

prints one line of JSON: seconds, processor seconds (of all threads), memory beyond the data, accuracy of the rows that
belong to a class, the share of strangers and of rows called unknown, and a checksum of the answers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkshot
from sinkshot import FewShotClassifier
from sinkshot.errors import DataWarning

BUNDLED = "cifar-fs_wrn-28-10_novel"


def blended_rows(rows: int, *, name: str = BUNDLED, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return features [rows, d] and their classes [rows].

    Each row is a random blend of two rows of one class of a bank, so rows are as many as wanted, all different, and lie
    where real ones do. Classes have equal sizes and come in random order.
    """
    bank = sinkshot.load(name)
    rng = np.random.default_rng(seed)
    features, labels = np.asarray(bank.features), np.asarray(bank.labels)
    classes = len(bank.class_names)
    truth = rng.permutation(rows) % classes
    members = [np.flatnonzero(labels == code) for code in range(classes)]
    made = np.empty((rows, features.shape[1]), dtype=np.float32)
    for code, member in enumerate(members):
        where = np.flatnonzero(truth == code)
        first, second = rng.choice(member, size=(2, len(where)))
        share = rng.random(len(where), dtype=np.float32)[:, None]
        for at in range(0, len(where), 4_096):  # so that blending takes no second copy of the pool
            some = slice(at, at + 4_096)
            made[where[some]] = share[some] * features[first[some]] + (1 - share[some]) * features[second[some]]
    return made, truth


def few_labels(truth: NDArray[np.int64], shots: int, seed: int = 0) -> NDArray[np.int64]:
    """Return labels of `shots` random rows of each class; the others are -1."""
    rng = np.random.default_rng(seed)
    labels = np.full(len(truth), -1)
    for code in np.unique(truth):
        chosen = rng.choice(np.flatnonzero(truth == code), size=shots, replace=False)
        labels[chosen] = code
    return labels


def measure_fit(
    rows: int, unknown: float | None, threads: int, *, strangers: int = 0, shots: int = 5, name: str = BUNDLED
) -> dict[str, Any]:
    """Fit a classifier to a pool and return what that took; `checksum` tells whether answers are the same.

    Rows of the last `strangers` classes have no labels.
    """
    os.environ["SINKSHOT_THREADS"] = str(threads)
    features, truth = blended_rows(rows, name=name)
    strange = truth > truth.max() - strangers
    labels = np.where(strange, -1, few_labels(truth, shots))
    FewShotClassifier(unknown=unknown).fit(features[:5_000], labels[:5_000])  # compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, processor = time.perf_counter(), time.process_time()
    model = FewShotClassifier(unknown=unknown).fit(features, labels)
    pool = labels < 0
    right = model.label_distributions_.argmax(axis=1) == truth
    return {
        "rows": rows,
        "width": features.shape[1],
        "threads": threads,
        "unknown": unknown,
        "seconds": round(time.perf_counter() - wall, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "mebibytes": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
        "shots": shots,
        "accuracy": float(np.mean(right[pool & ~strange])),
        "strangers": float(np.mean(strange[pool])),
        "rejected": float(np.mean(model.unknown_[pool] > 0.5)),
        "checksum": zlib.crc32(model.label_distributions_.tobytes() + model.unknown_.tobytes()),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Fit once and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--unknown", type=float)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--strangers", type=int, default=0, metavar="N", help="classes without labels")
    parser.add_argument("--shots", type=int, default=5, help="labels of each other class")
    parser.add_argument("--bank", default=BUNDLED, help="whose rows are blended")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)  # a sample of few labels may contradict the answer
    pool = {"strangers": given.strangers, "shots": given.shots, "name": given.bank}
    print(json.dumps(measure_fit(given.rows, given.unknown, given.threads, **pool)))


if __name__ == "__main__":
    main()
