"""Choose from which log odds on strangers are believed in: docs/strangers.md.

    python tools/choose_stranger_limit.py --text FILE --pools 12000 --seed 7 8

Pools are drawn as `measure_unknown.py` draws them, from validation and base classes, made clusters, digits and
sentences; no novel class is read. All constants of a grid are tried on the network's answers. A choice is safe where no
cell (features, class sizes, labels per class) of thirty pools or more loses above 2 % of its rows without strangers:
a third less than what is asked for on novel classes, since the network has learned from other pools of these. Among
the safe ones, the choice whose mean shares are nearest to the truth wins, in the mean over the cells with strangers.
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from choose_unknown import Source
from measure_unknown import NEAR, SHARES, Kind, drawn, kinds, lines, sources
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sinkshot import methods
from sinkshot.estimators.auto_chain import auto_chain
from sinkshot.estimators.stranger_network import BELIEF, Belief, Opinion
from sinkshot.estimators.stranger_share import opinion, what_counts
from sinkshot.preprocess import apply
from sinkshot.task import Task

Floats = NDArray[Any]
GRID = {
    "limit": np.arange(1.0, 2.21, 0.1),
    "few_labels": np.arange(0.0, 1.01, 0.2),
    "in_pieces": np.arange(2.0, 3.51, 0.5),
    "stretch": np.array([0.5]),
}
MOST_LOST, POOLS = 2.0, 30  # percent without strangers, of cells with so many pools


@dataclass(frozen=True)
class Choice:
    """One set of constants, and what it does."""

    belief: Belief
    worst: float  # percent rejected without strangers, of the cell that loses most
    unsafe: int  # cells above `MOST_LOST`
    near: int  # cells within ten points of the truth
    miss: float  # points from the truth, mean over the cells with strangers

    def line(self) -> str:
        """One line of the table."""
        constants = " | ".join(f"{value:.1f}" for value in vars(self.belief).values())
        return f"| {constants} | {self.worst:.1f} | {self.unsafe} | {self.near} | {self.miss:.2f} |"


def asked(kind: Kind, source: Source, rng: np.random.Generator) -> Opinion:
    """Draw a pool and ask the network."""
    numbers, codes = drawn(kind, source.bank.labels, rng)
    x, labelled = source.bank.features[numbers], codes >= 0
    base = source.base  # its mean is kept from pool to pool
    chain = auto_chain(methods.get("sinkshot"), x, base is not None, kind.shot if kind.as_label else 0)
    task = apply(Task(x[None, labelled], codes[None, labelled], x[None, ~labelled], kind.way, base), chain)
    rows = np.asarray(task.support[0]), np.asarray(task.query[0])
    return opinion(rows[0], codes[labelled], rows[1])


@dataclass(frozen=True)
class Told:
    """What the network says of all pools."""

    answers: Floats  # log odds, share, labels per class, pieces, [4, pools]
    cells: list[tuple[float, NDArray[np.int64]]]  # true share, numbers of pools

    @classmethod
    def of(cls, pools: list[Kind], told: list[Opinion]) -> Told:
        """Sort pools by cell."""
        cells = [
            (share, numbers)
            for name, by_share in lines(pools, np.arange(len(pools)))
            for share, numbers in zip(SHARES, by_share, strict=True)
            if name[0] != "all" and len(numbers) >= POOLS
        ]
        return cls(np.array([what_counts(each) for each in told]).T, cells)


def choice(told: Told, belief: Belief) -> Choice:
    """Return what some constants do."""
    found = 100 * belief.share(*told.answers)
    means = [(share, float(found[numbers].mean())) for share, numbers in told.cells]
    closed = [mean for share, mean in means if not share]
    misses = np.array([abs(mean - 100 * share) for share, mean in means if share])
    unsafe = sum(mean > MOST_LOST for mean in closed)
    return Choice(belief, max(closed), unsafe, int((misses <= NEAR).sum()), float(misses.mean()))


_sources: dict[str, Source] = {}  # of a worker


def _start(text: Path | None) -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    _sources.update(sources(text, novel=False))


def _ask(kind: Kind, seed: int, number: int) -> Opinion:
    return asked(kind, _sources[kind.features], np.random.default_rng([seed, number]))


def main() -> None:
    """Ask the network about many pools, try all constants and print the best of each limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=12_000, help="of each seed; some 50 a second on two cores")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 200, 300, 400, 600], help="of a pool")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="of the draws")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    known = sources(given.text, novel=False)
    pools, seeds = [], np.repeat(given.seed, given.pools)
    for seed in given.seed:
        pools += islice(kinds(known, given.rows, np.random.default_rng(seed)), given.pools)
    with ProcessPoolExecutor(given.workers, initializer=_start, initargs=(given.text,)) as workers:
        numbers = np.tile(np.arange(given.pools), len(given.seed))
        told = Told.of(pools, list(workers.map(_ask, pools, seeds, numbers, chunksize=8)))
    if {share > 0 for share, _ in told.cells} != {False, True}:
        parser.error(f"no cell has {POOLS} pools; draw more with --pools.")
    tried = [choice(told, Belief(*map(float, each))) for each in product(*GRID.values())]
    open_cells = sum(share > 0 for share, _ in told.cells)
    print(f"{len(pools):,} pools; {len(told.cells) - open_cells} cells without strangers, {open_cells} with them\n")
    heads = ("limit", "few labels", "in pieces", "stretch", "most without strangers", f"above {MOST_LOST:g} %")
    print(f"| {' | '.join(heads)} | near the truth | mean miss |")
    print("|---" * 8 + "|")
    for limit in GRID["limit"]:
        same = [each for each in tried if each.belief.limit == limit]
        print(min(same, key=lambda each: (each.unsafe, each.miss)).line())
    print("\nThe best of all, and the constants as they are:\n")
    print(min(tried, key=lambda each: (each.unsafe, each.miss)).line())
    print(choice(told, BELIEF).line())


if __name__ == "__main__":
    main()
