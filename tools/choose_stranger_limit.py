"""Choose from which log odds on strangers are believed in: docs/strangers.md.

    python tools/choose_stranger_limit.py --text FILE

Pools are drawn as `measure_unknown.py` draws them, from validation and base classes, made clusters, digits and
sentences; no novel class is read. Most false alarms come from skewed pools with few labels, so more pools of that kind
are drawn, without strangers. All constants of a grid are tried on the network's answers. A choice is safe where no cell
(features, class sizes, labels per class) of a hundred pools or more loses above 2.5 % of its rows without strangers: a
sixth less than what is asked for on novel classes, since the network has learned from other pools of these. Among the
safe ones, the choice whose mean shares are nearest to the truth wins, in the mean over the cells of fifteen pools or
more with strangers. Two tables show what other limits would do with skewed pools that have one label per class,
the hardest ones, and one more which kinds of strangers are found.
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
    "few_labels": np.arange(0.0, 1.41, 0.2),
    "in_pieces": np.arange(1.0, 3.01, 0.5),
    "stretch": np.array([0.5]),
}
MOST_LOST = 2.5  # percent without strangers
POOLS = {True: 15, False: 100}  # of a cell that counts, with strangers and without
FEW_LABELS = 3  # per class, of the pools without strangers that are drawn besides
LIMITS = np.arange(-8.0, 4.01, 0.05)  # to choose from for each kind of features alone
BELIEVED = 0.03  # share of rejected rows above which strangers are said to be found


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


def skewed_with_few_labels(kind: Kind, most: int = FEW_LABELS) -> bool:
    """Whether a pool is skewed and has so few labels per class: most false alarms come from such pools."""
    return kind.shot <= most and kind.sizes != "balanced"


def mean_shares(found: Floats, pools: list[Kind]) -> str:
    """Cells of a table: the mean of `found` by share of strangers; in brackets how many pools."""
    cells = []
    for wanted in SHARES:
        those = found[[kind.share == wanted for kind in pools]]
        cells.append(f"{those.mean():.1f} ({len(those)})" if len(those) else "")
    return " | ".join(cells) + " |"


def at_limit(limit: float, answers: Floats) -> Floats:
    """Percent rejected of pools with one label, if strangers were believed in from these log odds."""
    return 100 * replace(BELIEF, limit=limit, few_labels=0).share(*answers)


def other_limits(pools: list[Kind], answers: Floats) -> str:
    """Lines of a table of what other limits would do with pools that have one label."""
    limits = np.arange(0.0, 2.51, 0.5)
    return "\n".join(f"| {limit:.1f} | {mean_shares(at_limit(limit, answers), pools)}" for limit in limits)


def own_limits(pools: list[Kind], answers: Floats) -> str:
    """Lines of the same if each kind of features had the lowest limit at which it loses no more than is asked for."""
    rows = []
    for features in sorted({kind.features for kind in pools}):
        own = np.array([kind.features == features for kind in pools])
        closed = own & [not kind.share for kind in pools]
        if not closed.any():
            continue
        safe = (limit for limit in LIMITS if at_limit(limit, answers[:, closed]).mean() <= SAFE)
        limit = next(safe, LIMITS[-1])
        kept = [kind for kind in pools if kind.features == features]
        rows.append(f"| {features} | {limit:.2f} | {mean_shares(at_limit(limit, answers[:, own]), kept)}")
    return "\n".join(rows)


def by_strange_classes(pools: list[Kind], answers: Floats) -> str:
    """Lines of a table: in how many pools with strangers these are believed in, by how many classes they are of."""
    believed = BELIEF.share(*answers) > BELIEVED
    rows = []
    for number in sorted({kind.strange for kind in pools if kind.strange}):
        those = believed[[kind.strange == number for kind in pools]]
        rows.append(f"| {number} | {100 * those.mean():.0f} ({len(those)}) |")
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


def main() -> None:
    """Ask the network about many pools, try all constants and print the best of each limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=12_000, help="pools of all kinds; some 40 a second on two cores")
    parser.add_argument("--closed", type=int, default=14_000, help="pools with few labels, skewed, without strangers")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 200, 300, 400, 600], help="of a pool")
    parser.add_argument("--seed", type=int, default=7, help="of the draws of pools of all kinds")
    parser.add_argument("--closed-seed", type=int, default=21, help="of the draws of the others")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    known = sources(given.text, novel=False)
    all_kinds, more = (
        kinds(known, given.rows, np.random.default_rng(seed)) for seed in (given.seed, given.closed_seed)
    )
    closed = (kind for kind in more if skewed_with_few_labels(kind) and not kind.share)
    pools = [*islice(all_kinds, given.pools), *islice(closed, given.closed)]
    seeds = np.repeat([given.seed, given.closed_seed], [given.pools, given.closed])
    numbers = [*range(given.pools), *range(given.closed)]
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
    hard = [skewed_with_few_labels(kind, most=1) for kind in pools]
    skewed, theirs = [kind for kind, one in zip(pools, hard, strict=True) if one], answers[:, hard]
    shares = "".join(f" {share:.0%} strangers |" for share in SHARES)
    print(f"\nSkewed pools with one label, at other limits:\n\n| limit |{shares}\n{'|---' * 5}|")
    print(other_limits(skewed, theirs))
    print(f"\nEach with the lowest limit that loses at most {SAFE:g} %:\n\n| features | limit |{shares}\n{'|---' * 6}|")
    print(own_limits(skewed, theirs))
    print("\nHow many of them have strangers that are found:\n\n| classes of strangers | percent |\n|---|---|")
    print(by_strange_classes(skewed, theirs))
    print("\nThe best of all, and the constants as they are:\n")
    print(min(tried, key=lambda each: (each.unsafe, each.miss)).line())
    print(choice(told, BELIEF).line())


if __name__ == "__main__":
    main()
