"""Make large pools from a bank by blending its rows, for benchmarks of one pool of 50,000 rows and more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import sinkshot

BUNDLED = "cifar-fs_wrn-28-10_novel"


def blended_rows(
    rows: int, *, name: str = BUNDLED, ways: int | None = None, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return features [rows, d] and their classes [rows].

    Each row is a random blend of two rows of one class of a bank, so rows are as many as wanted, all different, and lie
    where real ones do. Classes have equal sizes and come in random order.
    """
    bank = sinkshot.load(name)
    rng = np.random.default_rng(seed)
    features, labels = np.asarray(bank.features), np.asarray(bank.labels)
    classes = ways or len(bank.class_names)
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
