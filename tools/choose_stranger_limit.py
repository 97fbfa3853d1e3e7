"""Choose from which log odds on strangers are believed in: docs/strangers.md.

    python tools/choose_stranger_limit.py --text FILE --seed 7 21

Pools are drawn as `measure_unknown.py` draws them, from validation and base classes, made clusters, digits and
sentences; no novel class is read. Most false alarms come from skewed pools with few labels, so more pools of that kind
are drawn, without strangers. All constants of a grid are tried on the network's answers. A choice is safe where no cell
(features, class sizes, labels per class) of a hundred pools or more loses above 2.5 % of its rows without strangers: a
sixth less than what is asked for on novel classes, since the network has learned from other pools of these. Among the
safe ones, the choice whose mean shares are nearest to the truth wins, in the mean over the cells of fifteen pools or
more with strangers. Two more tables show what other limits would do with skewed pools that have one label per class,
the hardest ones.
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from choose_unknown import Source
from measure_unknown import NEAR, SAFE, SHARES, Kind, drawn, kinds, lines, sources
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
    "limit": np.arange(0.8, 2.01, 0.1),
    "few_labels": np.arange(0.0, 0.81, 0.2),
    "in_pieces": np.arange(2.0, 3.51, 0.5),
    "stretch": np.array([0.5]),
}
MOST_LOST = 2.5  # percent without strangers
POOLS = {True: 15, False: 100}  # of a cell that counts, with strangers and without
FEW_LABELS = 3  # per class, of the pools without strangers that are drawn besides


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
    def of(cls, pools: list[Kind], answers: Floats) -> Told:
        """Sort pools by cell."""
        cells = [
            (share, numbers)
            for name, by_share in lines(pools, np.arange(len(pools)))
            for share, numbers in zip(SHARES, by_share, strict=True)
            if name[0] != "all" and len(numbers) >= POOLS[share > 0]
        ]
        return cls(answers, cells)


def shares(found: Floats, pools: list[Kind], features: str = "") -> str:
    """Cells of a table: mean shares of skewed pools with one label, by share of strangers; in brackets how many."""
    means = []
    for wanted in SHARES:
        hard = [
            number
            for number, kind in enumerate(pools)
            if (kind.shot, kind.share) == (1, wanted) and kind.sizes != "balanced" and features in ("", kind.features)
        ]
        means.append(f"{found[hard].mean():.1f} ({len(hard)})" if hard else "")
    return " | ".join(means) + " |"


def trade(pools: list[Kind], answers: Floats) -> str:
    """Table of what other limits would do with one label and skewed classes."""
    rows = []
    for limit in np.arange(0.0, 2.51, 0.5):
        found = 100 * replace(BELIEF, limit=float(limit), few_labels=0).share(*answers)
        rows.append(f"| {limit:.1f} | {shares(found, pools)}")
    return "\n".join(rows)


def own_limits(pools: list[Kind], answers: Floats) -> str:
    """Table of the same if each kind of features had the lowest limit at which it loses no more than is asked for."""
    rows = []
    for features in sorted({kind.features for kind in pools}):
        hard = [
            n for n, kind in enumerate(pools) if may_be_false(kind) and kind.shot == 1 and kind.features == features
        ]
        limit, lost = -2.0, 100.0
        while len(hard) and lost > SAFE:
            limit += 0.05
            found = 100 * replace(BELIEF, limit=limit, few_labels=0).share(*answers)
            lost = float(found[hard].mean())
        if len(hard):
            rows.append(f"| {features} | {limit:.2f} | {shares(found, pools, features)}")
    return "\n".join(rows)


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


def _ask(kind: Kind, seed: int, number: int) -> tuple[float, ...]:
    return what_counts(asked(kind, _sources[kind.features], np.random.default_rng([seed, number])))


def may_be_false(kind: Kind) -> bool:
    """Whether a pool is of the kind that most false alarms come from."""
    return not kind.share and kind.shot <= FEW_LABELS and kind.sizes != "balanced"


def main() -> None:
    """Ask the network about many pools, try all constants and print the best of each limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=12_000, help="pools of all kinds; some 55 a second on two cores")
    parser.add_argument("--closed", type=int, default=14_000, help="pools with few labels, skewed, without strangers")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 200, 300, 400, 600], help="of a pool")
    parser.add_argument("--seed", type=int, nargs=2, default=[7, 21], help="of the draws of the former and the latter")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    known = sources(given.text, novel=False)
    first, second = (kinds(known, given.rows, np.random.default_rng(seed)) for seed in given.seed)
    pools = [*islice(first, given.pools), *islice(filter(may_be_false, second), given.closed)]
    seeds, numbers = np.repeat(given.seed, [given.pools, given.closed]), [*range(given.pools), *range(given.closed)]
    with ProcessPoolExecutor(given.workers, initializer=_start, initargs=(given.text,)) as workers:
        answers = np.array(list(workers.map(_ask, pools, seeds, numbers, chunksize=8))).T
    told = Told.of(pools, answers)
    if {share > 0 for share, _ in told.cells} != {False, True}:
        parser.error(f"no cell has {POOLS[True]} pools with strangers, or {POOLS[False]} without; draw more.")
    tried = [choice(told, Belief(*map(float, each))) for each in product(*GRID.values())]
    open_cells = sum(share > 0 for share, _ in told.cells)
    print(f"{len(pools):,} pools; {len(told.cells) - open_cells} cells without strangers, {open_cells} with them\n")
    heads = ("limit", "few labels", "in pieces", "stretch", "most without strangers", f"above {MOST_LOST:g} %")
    print(f"| {' | '.join(heads)} | near the truth | mean miss |")
    print("|---" * 8 + "|")
    for limit in GRID["limit"]:
        same = [each for each in tried if each.belief.limit == limit]
        print(min(same, key=lambda each: (each.unsafe, each.miss)).line())
    heads = "".join(f" {share:.0%} strangers |" for share in SHARES)
    print(f"\nSkewed pools with one label, at other limits:\n\n| limit |{heads}\n{'|---' * 5}|")
    print(trade(pools, answers))
    print(f"\nEach with a limit of its own, that loses {SAFE:g} %:\n\n| features | limit |{heads}\n{'|---' * 6}|")
    print(own_limits(pools, answers))
    print("\nThe best of all, and the constants as they are:\n")
    print(min(tried, key=lambda each: (each.unsafe, each.miss)).line())
    print(choice(told, BELIEF).line())


if __name__ == "__main__":
    main()
