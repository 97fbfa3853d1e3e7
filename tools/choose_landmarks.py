"""Compare numbers of landmarks: pools of blends of validation rows, small and large, with each number of landmarks.

A large pool should be answered as well as a smaller one of the same rows. For each seed, pool and number of landmarks a
line says how often the most probable class is right: of all unlabelled rows, of those of the smallest pool, of
landmarks and of other rows. With `--real` the pool is the bank itself, without blends, and landmarks are shares of it.

    python tools/choose_landmarks.py work --rows 100000,400000 --landmarks 25000,50000,100000
    python tools/choose_landmarks.py work --real
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from compare_parts import collected
from make_large_pool import make

import sinkshot
from sinkshot import Task, methods, preprocess
from sinkshot.kernels import landmarks
from sinkshot.label.answer_parts import PartedRows
from sinkshot.label.in_parts import pool_of, rows_of_bank
from sinkshot.methods.sinkshot import of_large_pool
from sinkshot.parted.solve import solve
from sinkshot.parted.work_folder import work_folder
from sinkshot.settings.sinkshot import SETTINGS

BANKS = Path(__file__).parents[1] / "data" / "banks"
SHARES = 1.0, 0.75, 0.5, 0.25, 0.125  # of the real rows that are landmarks


def rows_and_codes(path: Path) -> tuple[PartedRows, np.ndarray]:
    """Return the rows of a pool that `make_large_pool.py` made, and the true classes by their numbers in `label`."""
    rows = rows_of_bank(str(path))
    truth = np.load(path.with_name(f"{path.name}-classes.npy"))
    return rows, np.array([rows.classes.index(name) for name in rows.features.index.class_names])[truth]


def answered(rows: PartedRows, cache: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return of each row its class probabilities, that of belonging to none, and whether it is a landmark."""
    marks = np.zeros(len(rows.labels), bool)
    with work_folder(cache, None, None) as work:
        pool = pool_of(rows, methods.get("sinkshot"), work)
        scores, _ = solve(pool, methods.get("sinkshot"), {}, work)
        found = [collected(array, pool, len(marks)) for array in (scores.probabilities, scores.unknown)]
        for part in pool.layout.of_landmarks:
            marks[pool.files.bank_numbers(part)] = True
    return found[0], found[1], marks


def right_rows(rows: PartedRows, codes: np.ndarray, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return of each row whether its most probable class is right, and whether it is a landmark."""
    probabilities, _, marks = answered(rows, cache)
    return probabilities.argmax(axis=1) == codes, marks


def measured(path: Path, most: int, first: int) -> dict[str, Any]:
    """Return accuracies in percent."""
    began = time.monotonic()
    landmarks.LANDMARKS = most
    rows, codes = rows_and_codes(path)
    right, marks = right_rows(rows, codes, path.parent / "cache")
    free = rows.labels < 0
    groups = {
        "all": free,
        "first": free & (np.arange(len(free)) < first),
        "marks": free & marks,
        "others": free & ~marks,
    }
    shares = {name: round(100 * float(right[some].mean()), 2) for name, some in groups.items() if some.any()}
    return {**shares, "seconds": round(time.monotonic() - began, 1)}


def of_real_rows(bank: sinkshot.FeatureBank, shots: int, seed: int) -> dict[str, float]:
    """Return accuracies in percent of a whole bank as a pool in memory, by the share of its rows that are landmarks."""
    way, drawn = int(bank.labels.max()) + 1, np.random.default_rng(seed).permutation(len(bank.labels))
    labels = bank.labels[drawn]
    first = np.concatenate([np.flatnonzero(labels == code)[:shots] for code in range(way)])
    order = np.concatenate([first, np.setdiff1d(np.arange(len(labels)), first)])
    own, truth = labels[order][: len(first)], labels[order][len(first) :]
    rows = bank.features[drawn][order]
    x = preprocess.run(rows, preprocess.parse("PEMcE"), supports=len(own), labels=own).x
    task, found = Task(x[None, : len(own)], own[None], x[None, len(own) :], way), {}
    for share in SHARES:
        landmarks.LANDMARKS, landmarks.CLASSES = round(share * len(rows)), way
        scores = of_large_pool(task, SETTINGS)
        found[str(share)] = round(100 * float(np.mean(scores.probabilities[0].argmax(axis=1) == truth)), 2)
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep pools and files of the runs")
    parser.add_argument("--bank", default=str(BANKS / "cifar-fs_wrn-28-10_validation.safetensors"))
    parser.add_argument("--rows", default="100000,400000")
    parser.add_argument("--landmarks", default="25000,50000,100000")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="the bank itself, in memory, without blends")
    asked = parser.parse_args()
    if asked.real:
        for seed, shots in product(range(asked.seeds), (1, 5)):
            found = of_real_rows(sinkshot.load(asked.bank), shots, seed)
            print(json.dumps({"seed": seed, "shots": shots, **found}), flush=True)
        return
    sizes = sorted(int(number) for number in asked.rows.split(","))
    bank = sinkshot.load(asked.bank)
    for seed in range(asked.seeds):
        for rows in sizes:
            path = asked.folder.resolve() / f"{Path(asked.bank).stem}-{seed}-{rows}"
            if not path.exists():
                make(bank, path, rows, 5, 50_000, seed)
            for most in (int(number) for number in asked.landmarks.split(",")):
                found = measured(path, most, sizes[0])
                print(json.dumps({"seed": seed, "rows": rows, "landmarks": min(most, rows), **found}), flush=True)


if __name__ == "__main__":
    main()
