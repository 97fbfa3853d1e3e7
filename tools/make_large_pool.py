"""Make a pool of any number of rows from a bank: blends of two rows of one class, in a bank in parts.

A blend is t x + (1 - t) y of two rows of the same class, t uniform in [0.5, 1]. Row i is a function of the seed and of
i alone. The first rows of each class carry labels, as many as asked for; all others are -1. The true classes are
written beside the bank, for measuring.

    python tools/make_large_pool.py pool --rows 5000000 --shots 5
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import sinkshot
from sinkshot.foreign.folders import folder_at
from sinkshot.formats.part_files import write_part
from sinkshot.formats.parts import part_name, write_index
from sinkshot.progress import ProgressReporter

BLOCK = 10_000  # rows made at once, each with a generator of its own


def blends(bank: sinkshot.FeatureBank, number: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a block, float32 [count, d], and their classes."""
    draw = np.random.default_rng([seed, number])
    way = int(bank.labels.max()) + 1
    classes = draw.integers(way, size=count)
    order = np.argsort(bank.labels, kind="stable")
    starts = np.searchsorted(bank.labels[order], np.arange(way + 1))
    sizes = np.diff(starts)[classes]
    first = order[starts[classes] + draw.integers(sizes)]
    second = order[starts[classes] + draw.integers(sizes)]
    share = draw.uniform(0.5, 1.0, size=(count, 1)).astype(np.float32)
    return share * bank.features[first] + (1 - share) * bank.features[second], classes


def make(bank: sinkshot.FeatureBank, out: Path, rows: int, shots: int, part_rows: int, seed: int) -> None:
    """Write the pool, and true classes to `out` with -classes.npy at its end."""
    folder = folder_at(out)
    truth = np.empty(rows, np.int16)
    given = np.zeros(int(bank.labels.max()) + 1, np.int64)
    parts = []
    with ProgressReporter() as progress:
        bar = progress.bar("making rows")
        for begin in range(0, rows, part_rows):
            count = min(part_rows, rows - begin)
            made = [blends(bank, at // BLOCK, min(BLOCK, rows - at), seed) for at in range(begin, begin + count, BLOCK)]
            classes = np.concatenate([found[1] for found in made])
            truth[begin : begin + count] = classes
            labels = np.full(count, -1)
            for row in np.flatnonzero(given[classes] < shots):
                if given[classes[row]] < shots:
                    labels[row] = classes[row]
                    given[classes[row]] += 1
            features = np.concatenate([found[0] for found in made])
            parts.append(write_part(folder, part_name(len(parts)), features, labels, "float16"))
            bar(begin + count, rows)
    names = bank.class_names or tuple(str(number) for number in range(len(given)))
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
