"""Choose the default of what to label next on validation classes, and its constants; write docs/next-labels-choice.md.

    python tools/choose_next_labels.py --draws 48 --workers 2

No novel class is read. Each line is the area under the accuracy from 0 to 10 labels a class, as in the study
`next-labels`, on the same draws for all lines. With `--save FILE` the areas are written to a file instead of a page, on
another machine say, and `--areas FILE` writes the page from it. 48 draws take about 20 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sinkshot import FeatureBank, load
from sinkshot.selection import DEFAULT, STRATEGIES, Pool, expected_gain, herding
from sinkshot.studies.label_curves import CLASSIFIERS, POOLS, area, curve, draw_pool, half_width
from sinkshot.studies.merge import selection_seed

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "next-labels-choice.md"
BANKS = {"CIFAR-FS": "cifar-fs_wrn-28-10_validation", "CUB": "cub_wrn-28-10_validation"}
WALKS_AND_SPREADS = ((0.0, 0.9), (0.5, 0.97), (0.5, 0.99), (1.0, 0.97))  # tried beside those in use
NEIGHBOURS = (5, 25)  # ranks that give herding its width, likewise
SEED = 1_000


class Job(NamedTuple):
    """All lines on one draw of one kind of pool, behind one classifier."""

    bank: str
    pool: str
    classifier: str
    draw: int


def lines() -> Iterator[tuple[str, Callable[[Pool, int], list[int]]]]:
    """Yield every strategy as it is, and some with another constant."""
    for name, strategy in STRATEGIES.items():
        yield name, strategy.choose
    for walks, spread in WALKS_AND_SPREADS:
        with_spread = f", spread {spread}" if walks else ""
        yield (
            f"expected-gain, {walks:.0%} walks{with_spread}",
            _with(expected_gain, "expected-gain", WALKS=walks, SPREAD=spread),
        )
    for rank in NEIGHBOURS:
        yield f"uherding, width of neighbour {rank}", _with(herding, "uherding", NEIGHBOUR=rank)


def _with(module: ModuleType, name: str, **constants: float) -> Callable[[Pool, int], list[int]]:
    """A strategy with other constants."""

    def choose(pool: Pool, count: int) -> list[int]:
        kept = {constant: getattr(module, constant) for constant in constants}
        try:
            vars(module).update(constants)
            return STRATEGIES[name].choose(pool, count)
        finally:
            vars(module).update(kept)

    return choose


Areas = dict[str, NDArray[np.float64]]  # of every line


@cache
def bank_of(name: str) -> FeatureBank:
    """Load a bank once in each process."""
    return load(ROOT / "data" / "banks" / f"{BANKS[name]}.safetensors")


def measure(job: Job) -> Areas:
    """Areas [metrics] of every line."""
    drawn = draw_pool(bank_of(job.bank), job.pool, 5, 60, selection_seed(SEED, job.draw))
    with threadpool_limits(1):
        return {name: area(curve(drawn, choose, CLASSIFIERS[job.classifier], 10).T) for name, choose in lines()}


def page(jobs: list[Job], results: list[Areas], draws: int) -> str:
    """Write the page."""
    names = [name for name, _ in lines()]
    accuracy = {name: np.array([found[name][0] for found in results]) for name in names}  # [jobs]
    ranked = sorted(names, key=lambda name: -accuracy[name].mean())
    best = next(name for name in ranked if name in STRATEGIES)
    heads = ["strategy", "all", "over random", *CLASSIFIERS, *POOLS, "macro accuracy", "classes found"]
    text = [
        "# How the default of what to label next was chosen\n",
        "On validation classes only: CIFAR-FS and CUB, WRN-28-10, the pools and classifiers of the study `next-labels`",
        f"([What to label next](next-labels.md)), {draws} draws of each, the same for every line. Percent: the area",
        "under the accuracy from 0 to 10 labels a class, and the paired difference to random with its 95 % half-width.",
        f"`python tools/choose_next_labels.py --draws {draws}` writes this page.\n",
        f"The strategy with the largest area is `{best}`; the default is `{DEFAULT}`. Its constants are the share of",
        f"walks in the similarity ({expected_gain.WALKS:.0%} as it is) and the spread, the probability to walk on",
        f"({expected_gain.SPREAD}). The width of herding's kernel is the median distance to a near neighbour, the",
        f"{herding.NEIGHBOUR}th as it is. The optimum is flat: the best lines differ by less than their intervals.\n",
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
    ]
    for name in ranked:
        apart = accuracy[name] - accuracy["random"]
        cells = [
            f"{100 * accuracy[name].mean():.2f}",
            f"{100 * apart.mean():+.2f} ± {100 * float(half_width(apart)):.2f}",
        ]
        for field, values in (("classifier", CLASSIFIERS), ("pool", POOLS)):
            chosen = [[i for i, job in enumerate(jobs) if getattr(job, field) == value] for value in values]
            cells += [f"{100 * accuracy[name][rows].mean():.2f}" for rows in chosen]
        cells += [f"{100 * np.mean([found[name][i] for found in results]):.2f}" for i in (1, 2)]
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=48)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--save", type=Path, help="write the areas to this file instead of the page")
    parser.add_argument("--areas", type=Path, help="write the page from this file")
    given = parser.parse_args()
    if given.areas:
        told = json.loads(given.areas.read_text())
        jobs = [Job(*one) for one in told["jobs"]]
        results = [{name: np.array(found) for name, found in one.items()} for one in told["areas"]]
    else:
        kinds = [(bank, pool, name) for name in reversed(CLASSIFIERS) for bank in BANKS for pool in POOLS]
        jobs = [Job(*kind, draw) for kind in kinds for draw in range(given.draws)]
        with ProcessPoolExecutor(given.workers) as workers:
            results = list(workers.map(measure, jobs, chunksize=4))
    if given.save:
        areas = [{name: found.round(6).tolist() for name, found in one.items()} for one in results]
        given.save.write_text(json.dumps({"jobs": jobs, "areas": areas}))
        return
    PAGE.write_text(page(jobs, results, 1 + max(job.draw for job in jobs)))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
