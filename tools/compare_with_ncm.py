"""Compare `sinkshot` with nearest class means wherever class sizes may be unequal: it should never be below.

Every column of the study `imbalance` (balanced, Dirichlet 5 to 0.2, long tails), on every bank given, at 1, 2, 5 and 10
shots and 2, 5, 10 and 20 ways, wherever every class has the rows. Episodes are the same for both. A cell is below where
the paired difference is negative and its two-sided p-value, adjusted by Holm for all cells, is under 0.05. The exit
status is 1 if any is.

    python tools/compare_with_ncm.py data/banks/*_novel.safetensors --episodes 1000 --workers 2 --out cells.csv

Features of base classes that stand beside a bank are used, as `sinkshot eval` does.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import sinkshot
from sinkshot.cli.evaluate import base_beside
from sinkshot.progress import ProgressReporter
from sinkshot.studies.compare import holm

SHOTS, WAYS = (1, 2, 5, 10), (2, 5, 10, 20)
COLUMNS = {
    "balanced": {"protocol": "balanced"},
    **{f"Dirichlet {alpha:g}": {"protocol": "dirichlet", "alpha": alpha} for alpha in (5.0, 2.0, 1.0, 0.7, 0.5, 0.2)},
    **{f"long tail {ratio:g}": {"protocol": "long-tail", "ratio": ratio} for ratio in (10.0, 30.0)},
}


@dataclass(frozen=True)
class Compared:
    """One cell."""

    bank: str
    column: str
    way: int
    shot: int
    query: int
    ours: float
    ncm: float
    difference: float  # points
    error: float  # its standard error

    @property
    def p_value(self) -> float:
        """Two-sided, by the normal distribution."""
        return math.erfc(abs(self.difference) / (self.error * math.sqrt(2))) if self.error > 0 else 1.0


def recipes(bank: sinkshot.FeatureBank, episodes: int, query: int) -> Iterator[tuple[str, sinkshot.Recipe]]:
    """Yield the columns that the classes of a bank have the rows for."""
    sizes = np.bincount(bank.labels)
    for way in (way for way in WAYS if way <= len(sizes)):
        for shot in SHOTS:
            for column, settings in COLUMNS.items():
                most = query if column == "balanced" else way * query  # a class may get all queries
                if sizes.min() >= shot + most:
                    yield column, sinkshot.Recipe(way=way, shot=shot, query=query, episodes=episodes, **settings)  # type: ignore[arg-type]


@cache
def opened(path: Path) -> tuple[sinkshot.FeatureBank, sinkshot.FeatureBank | None]:
    """Load a bank and the base classes beside it."""
    bank = sinkshot.load(path)
    return bank, base_beside(str(path), bank)


def compared(path: Path, column: str, recipe: sinkshot.Recipe) -> Compared:
    """Evaluate both methods on the same episodes."""
    (bank, base), name = opened(path), path.stem
    ours = 100 * sinkshot.evaluate(bank, recipe, method="sinkshot", base=base).per_episode
    ncm = 100 * sinkshot.evaluate(bank, recipe, method="ncm").per_episode
    difference = ours - ncm
    error = float(difference.std(ddof=1) / math.sqrt(len(difference)))
    return Compared(name, column, recipe.way, recipe.shot, recipe.query, float(ours.mean()), float(ncm.mean()),
                    float(difference.mean()), error)  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("banks", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--query", default="15", help="queries per class, such as 15 or 15,100")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, help="CSV file of all cells")
    asked = parser.parse_args()
    work = []
    for path in asked.banks:
        for query in map(int, asked.query.split(",")):
            work += [(path, *cell) for cell in recipes(opened(path)[0], asked.episodes, query)]
    cells = []
    os.environ["NUMBA_NUM_THREADS"] = "1"  # of each process that is started
    with ProgressReporter() as progress, ProcessPoolExecutor(asked.workers) as pool:
        bar = progress.bar("cells")
        for done, cell in enumerate(pool.map(compared, *zip(*work, strict=True)), 1):
            cells.append(cell)
            bar(done, len(work))
    adjusted = holm([cell.p_value for cell in cells])
    if asked.out:
        with asked.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*cells[0].__dataclass_fields__, "p_holm"])
            writer.writerows([*vars(cell).values(), p] for cell, p in zip(cells, adjusted, strict=True))
    below = [(cell, p) for cell, p in zip(cells, adjusted, strict=True) if cell.difference < 0 and p < 0.05]
    lower = sum(cell.difference < 0 for cell in cells)
    print(f"{len(cells)} cells: {lower} with a negative mean difference, {len(below)} of them below after Holm")
    for cell, p in sorted(below, key=lambda pair: pair[0].difference):
        where = f"{cell.bank}, {cell.column}, {cell.way}-way {cell.shot}-shot, {cell.query} queries a class"
        gap = f"{cell.difference:+.2f} +- {1.96 * cell.error:.2f}, p {p:.1g}"
        print(f"  {where}: {cell.ours:.2f} against {cell.ncm:.2f} ({gap})")
    sys.exit(1 if below else 0)


if __name__ == "__main__":
    main()
