"""Compare ways to draw landmarks: how good are a pool's answers, and how much do they depend on which rows are drawn?

Pools of blends of validation rows, small ones and a large one that contains them, are labelled with several draws of
their landmarks: by chance alone, and evenly from cells of similar rows, as the method does, with several numbers of
small cells in a cell of 256 landmarks. A line for each draw says how many percent are right, of all rows and of the
first 50,000 and 100,000, and how probable it is in the mean that a row belongs to no class, which none does; then mean
and standard deviation of each way.

    python tools/compare_landmark_draws.py work --rows 50000,100000,400000 --draws 3 --small chance,1,4,16,48
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from choose_landmarks import BANKS, answered, rows_and_codes
from compare_pool_sizes import percent, some_parts
from make_large_pool import BLOCK, make

import sinkshot
from sinkshot.kernels import cells, landmarks
from sinkshot.parted import pool as pools

FIRST = 50_000, 100_000  # rows that are also looked at alone
CHANCE = "chance"
SHARES, PLACES = landmarks._shares, landmarks.landmark_places


def by_chance(draw: int) -> Callable[[np.ndarray, int], np.ndarray]:
    """Return a function that draws landmarks without regard to cells."""
    return lambda sizes, count: np.sort(np.random.default_rng([draw, count]).choice(sizes.sum(), count, replace=False))


def draw_by(small: str, draw: int) -> None:
    """Let landmarks be drawn by chance or from so many small cells, in one of several draws."""
    landmarks._shares = lambda counters: SHARES(counters + np.uint64(1_000_003 * draw << 40))
    pools.landmark_places = by_chance(draw) if small == CHANCE else PLACES
    cells.SMALL_CELLS = pools.SMALL_CELLS = 1 if small == CHANCE else int(small)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep pools and files of the runs")
    parser.add_argument("--bank", default=str(BANKS / "cifar-fs_resnet12_validation.safetensors"))
    parser.add_argument("--rows", default="100000", help=f"multiples of {BLOCK}")
    parser.add_argument("--small", default="chance,1,4,16,48", help="small cells in a cell; chance: no cells")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the pool")
    asked = parser.parse_args()
    sizes = [int(number) for number in asked.rows.split(",")]
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(asked.bank).stem}-{asked.seed}-{max(sizes)}-by-{BLOCK}"
    if not path.exists():
        make(sinkshot.load(asked.bank), path, max(sizes), 5, BLOCK, asked.seed)
    rows, codes = rows_and_codes(path)
    for size, small in product(sizes, asked.small.split(",")):
        some, numbers = some_parts(rows, np.arange(size // BLOCK))
        free, found = some.labels < 0, []
        for draw in range(asked.draws):
            draw_by(small, draw)
            probabilities, unknown, marks = answered(some, folder / "cache")
            right = probabilities.argmax(axis=1) == codes[numbers]
            of_first = {f"first_{first}": percent(right[:first], free[:first]) for first in FIRST if first < size}
            found.append(percent(right, free))
            of_all = {"of_landmarks": percent(right, free & marks), "mean_unknown": percent(unknown, free)}
            _tell(rows=size, small=small, draw=draw, right=found[-1], **of_first, **of_all)
        if len(found) > 1:
            _tell(rows=size, small=small, mean=np.mean(found).round(3), deviation=np.std(found, ddof=1).round(3))


def _tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
