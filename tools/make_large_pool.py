"""Make a pool of any number of rows from a bank: blends of two rows of one class, in a bank in parts.

A blend is t x + (1 - t) y of two rows of the same class, t uniform in [0.5, 1]. Row i is a function of the seed and of
i alone. The first rows of each class carry labels, as many as asked for; all others are -1. The true classes are
written beside the bank, for measuring.

    python tools/make_large_pool.py pool --rows 5000000 --shots 5
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import sinkshot
from sinkshot.foreign.folders import folder_at
from sinkshot.formats.part_files import write_part
from sinkshot.formats.parts import part_name, write_index
from sinkshot.progress import ProgressReporter
from sinkshot.threads import in_order

BLOCK = 10_000  # rows made at once, each with a generator of its own


def classes_of(draw: np.random.Generator, way: int, count: int) -> np.ndarray:
    """Return the classes of a block, the first that its generator draws."""
    return draw.integers(way, size=count)


def blends(bank: sinkshot.FeatureBank, number: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a block, float32 [count, d], and their classes."""
    draw = np.random.default_rng([seed, number])
    way = int(bank.labels.max()) + 1
    classes = classes_of(draw, way, count)
    order = np.argsort(bank.labels, kind="stable")
    starts = np.searchsorted(bank.labels[order], np.arange(way + 1))
    sizes = np.diff(starts)[classes]
    first = order[starts[classes] + draw.integers(sizes)]
    second = order[starts[classes] + draw.integers(sizes)]
    share = draw.uniform(0.5, 1.0, size=(count, 1)).astype(np.float32)
    return share * bank.features[first] + (1 - share) * bank.features[second], classes


def make(
    bank: sinkshot.FeatureBank, out: Path, rows: int, shots: int, part_rows: int, seed: int, threads: int = 1
) -> None:
    """Write the pool, and true classes to `out` with -classes.npy at its end; threads change nothing but the time."""
    folder, way = folder_at(out), int(bank.labels.max()) + 1
    truth = np.concatenate(
        [
            classes_of(np.random.default_rng([seed, at // BLOCK]), way, min(BLOCK, rows - at))
            for at in range(0, rows, BLOCK)
        ]
    ).astype(np.int16)
    labels = np.full(rows, -1)
    for code in range(way):
        labels[np.flatnonzero(truth == code)[:shots]] = code

    def written(begin: int) -> Any:
        end = min(begin + part_rows, rows)
        made = [blends(bank, at // BLOCK, min(BLOCK, rows - at), seed)[0] for at in range(begin, end, BLOCK)]
        return write_part(folder, part_name(begin // part_rows), np.concatenate(made), labels[begin:end], "float16")

    parts = []
    with ProgressReporter() as progress:
        bar = progress.bar("making rows")
        for part in in_order(written, range(0, rows, part_rows), threads):
            parts.append(part)
            bar(min(len(parts) * part_rows, rows), rows)
    names = bank.class_names or tuple(str(number) for number in range(way))
    meta = {"made by": f"tools/make_large_pool.py --rows {rows} --shots {shots} --seed {seed}"}
    write_index(folder, parts, width=bank.features.shape[1], store="float16", class_names=names, meta=meta, base={})
    np.save(out.with_name(f"{out.name}-classes.npy"), truth)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the new bank")
    parser.add_argument("--bank", default="cifar-fs_wrn-28-10_novel", help="bank whose rows are blended")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--part-rows", type=int, default=100_000, help=f"a multiple of {BLOCK}")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.part_rows % BLOCK:
        parser.error(f"--part-rows must be a multiple of {BLOCK}")
    bank = sinkshot.load(asked.bank)
    make(bank, asked.out, asked.rows, asked.shots, asked.part_rows, asked.seed)


if __name__ == "__main__":
    main()
