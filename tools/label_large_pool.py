"""Label a pool that `make_large_pool.py` made, and print what it took: seconds, memory of all processes, accuracy.

Memory is the proportional set size of the command and all its workers together, looked at once a second. Accuracy is
that of the most probable class, of all unlabelled rows and of those among the first rows.

    python tools/make_large_pool.py pool --rows 5000000
    python tools/label_large_pool.py pool --workers 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pyarrow import parquet

from sinkshot.label.answer_parts import ANSWERS
from sinkshot.label.in_parts import rows_of_bank

EVERY = 1.0  # seconds between looks at memory


def memory_of(process: psutil.Process) -> int:
    """Return the proportional set size of a process and of all below it, in bytes."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue  # it has just ended
    return total


def labelled(pool: Path, out: Path, options: list[str]) -> dict[str, Any]:
    """Run the command; return seconds and the most memory."""
    command = [sys.executable, "-m", "sinkshot", "label", str(pool), "--out", str(out), *options]
    before, began, most = os.times(), time.monotonic(), 0
    with subprocess.Popen(command) as running:
        watched = psutil.Process(running.pid)
        while running.poll() is None:
            try:
                most = max(most, memory_of(watched))
            except psutil.Error:
                continue
            time.sleep(EVERY)
    if running.returncode:
        sys.exit(running.returncode)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall": round(time.monotonic() - began, 1), "cpu": round(spent, 1), "mebibytes": most >> 20}


def accuracy(pool: Path, out: Path, first: int) -> dict[str, float]:
    """Return how often the most probable class is right, in percent, and how many rows are rejected."""
    rows = rows_of_bank(str(pool))
    truth = np.load(pool.with_name(f"{pool.name}-classes.npy"))
    names = rows.features.index.class_names
    codes = np.array([rows.classes.index(name) for name in names])[truth]
    right, rejected = np.zeros(len(truth), bool), np.zeros(len(truth), bool)
    begin = 0
    for path in sorted((out / ANSWERS).glob("*.parquet")):
        table = parquet.read_table(path, columns=["label", "probabilities"])
        probabilities = table["probabilities"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        end = begin + len(table)
        right[begin:end] = probabilities.argmax(axis=1) == codes[begin:end]
        rejected[begin:end] = table["label"].to_numpy(zero_copy_only=False) == ""
        begin = end
    free = rows.labels < 0
    return {
        "accuracy": _percent(right[free]),
        f"accuracy_of_first_{first}": _percent(right[:first][free[:first]]),
        "rejected": _percent(rejected[free]),
    }


def _percent(there: np.ndarray) -> float:
    return round(100 * float(there.mean()), 3)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path)
    parser.add_argument("--workers", type=int, help="processes; none: threads")
    parser.add_argument("--out", type=Path, help="folder of the answers; else beside the pool")
    parser.add_argument("--first", type=int, default=100_000, help="rows whose accuracy is also told alone")
    asked = parser.parse_args()
    out = asked.out or asked.pool.with_name(f"{asked.pool.name}-labels")
    found = labelled(asked.pool, out, [] if asked.workers is None else ["--workers", str(asked.workers)])
    steps = json.loads((out / "summary.json").read_text(encoding="utf-8"))["seconds"]
    print(json.dumps({**found, "seconds": steps, **accuracy(asked.pool, out, asked.first)}))


if __name__ == "__main__":
    main()
