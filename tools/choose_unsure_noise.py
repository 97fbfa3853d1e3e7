"""Choose how far `sinkshot` believes in unequal class sizes where probabilities are unsure: docs/noise-choice.md.

    sinkshot train LEARNED --recipe cifar-fs_conv64 --validation VALIDATION --fit-seconds 660 --seed 1 --out RUN
        --set validation.every=100 --set validation.episodes=200
    sinkshot extract LEARNED --weights RUN/best.safetensors --out learned.safetensors --store float32
    sinkshot extract OTHERS --weights RUN/best.safetensors --base-means learned.safetensors --out others.safetensors
    python tools/choose_unsure_noise.py others.safetensors

LEARNED holds the first 44 base classes of CIFAR-FS in alphabetical order, VALIDATION the 16 validation classes, OTHERS
the 20 other base classes and VALIDATION: features of a weak network, of classes that it has not learned from, and more
of them than there are validation classes. It is validated once, at the end, so that nothing chooses among its weights.
No novel class is read. All constants see the same episodes. Of those with which no cell of the weak network with equal
class sizes is significantly below nearest class means, the best in the mean over all groups of tasks wins.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product, repeat
from pathlib import Path
from typing import Any

import numpy as np
from choose_sinkshot import BANKS, ROOT, Kind, tasks_of
from choose_weights import accuracies
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sinkshot import FeatureBank, load, methods
from sinkshot.settings.sinkshot import SETTINGS

Floats = NDArray[Any]
PAGE = ROOT / "docs" / "noise-choice.md"
WEAK = "weak network"
GRID = [(0.0, 0.55), *product((2.0, 5.0, 10.0, 20.0), (0.45, 0.5, 0.55, 0.6))]  # noise, from
GROUPS = (
    "weak, equal sizes",
    "weak, Dirichlet 2",
    "weak, Dirichlet 0.7",
    "equal sizes",
    "Dirichlet 2",
    "Dirichlet 0.7",
)
SIZES = (((), "balanced"), ((("alpha", 2.0),), "dirichlet"), ((("alpha", 0.7),), "dirichlet"))
TEXT = """# How far class sizes are believed where probabilities are unsure

`sinkshot` counts class sizes and believes in unequal ones as far as their spread exceeds the noise of counting. With
many classes that features hardly tell apart, some classes attract rows of others. Their counts are wrong by more than
the noise, and each step believes in them more. The noise is taken to fall with the number of labels, as it does where
rows are allocated with confidence; so at five and ten labels it was too low here. On 20 classes of ConvNet64 of equal
size, which earlier comparisons had left out, that cost more than all that the method gains: 0.96 and 0.30 points below
nearest class means, on novel classes.

So noise is added, `sinkshot.methods.priors.shrunken_shares`: with u = 1 - the mean over rows of sum p^2, and labels the
mean number per class, it is N (1 - 1 / labels) max(u - from, 0) / way. That is 0 at one label, and with two classes,
where u is at most 0.5. This form was set by hand; N and `from` were compared.

That novel classes showed it is all that they were read for. Afterwards the differences of these two cells are 0.00 and
+0.08 (standard errors 0.09 and 0.08), and of all 1,240 [cells of novel classes](sinkshot-choice.md) none is below after
Holm's correction. N and `from` were chosen on the validation classes of three of our networks, and on 36 classes of
CIFAR-FS that a weak network has not learned from (`tools/choose_unsure_noise.py` says how it is made: 851 steps, eight
epochs, ten minutes on two cores). Of the constants with which no cell of the weak network with equal
sizes is significantly below nearest class means (last column: the difference in standard errors, the lowest of {cells}
cells; at least {least:.2f}, not corrected for their number), N = {noise:g} from {start:g} is best in the mean over
the groups. Several others are within 0.01 of it.

It costs accuracy where sizes are very unequal: see Dirichlet 0.7. All tasks here have 15 queries per class; in larger
pools the cost may be larger, since this noise does not fall with the rows. A factor that is 0 at two labels, too, was
not tried.

Differences in accuracy to no such noise, points, means over the cells of a group; {episodes} episodes of each cell, the
same for all. `python tools/choose_unsure_noise.py others.safetensors --episodes {episodes}` writes this page.

| N | from | {heads} | mean | to nearest class means |
|{rules}|
{table}

N = {noise:g} from {start:g} by task, the same episodes; ± is the 95 % CI half-width of the difference.

| features | task | accuracy | difference |
|---|---|---|---|
{lines}
"""


@dataclass(frozen=True)
class Cell:
    """What all constants reach in one kind of task."""

    kind: Kind
    found: Floats  # accuracies, percent, [constants, episodes]
    nearest: Floats  # those of nearest class means [episodes]

    @property
    def group(self) -> str:
        """Column of the table."""
        sizes = f"Dirichlet {dict(self.kind.options)['alpha']:g}" if self.kind.options else "equal sizes"
        return f"weak, {sizes}" if self.kind.bank == WEAK else sizes

    @property
    def apart(self) -> Floats:
        """Mean differences to the first constants, [constants]."""
        return np.asarray((self.found - self.found[0]).mean(axis=1))

    @property
    def above_nearest(self) -> Floats:
        """Mean differences to nearest class means over their standard errors, [constants]."""
        apart = self.found - self.nearest
        return np.asarray(apart.mean(axis=1) / (apart.std(axis=1, ddof=1) / math.sqrt(apart.shape[1])))


def kinds() -> Iterator[Kind]:
    """Kinds of task that the constants are judged on."""
    for options, protocol in SIZES:
        for way, shot in product((5, 10, 20, 30), (2, 5, 10)):
            yield Kind(WEAK, protocol, shot, way, options=options, chain="PEMbE")
        for name in list(BANKS)[:3]:
            for way, shot in product((5, 10, 15), (2, 5, 10)):
                if not options or name.startswith("CIFAR-FS") or way == 5:  # a class may get most queries
                    yield Kind(name, protocol, shot, way, options=options, chain="PEMbE")


_banks: dict[str, FeatureBank] = {}  # of a worker


def _start(weak: Path) -> None:
    threadpool_limits(1)
    _banks[WEAK] = load(weak)
    _banks.update(
        {name: load(ROOT / "data" / "banks" / f"{stem}_validation.safetensors") for name, stem in BANKS.items()}
    )


def _measure(kind: Kind, episodes: int) -> Cell:
    tasks = tasks_of(kind, _banks[kind.bank], None, episodes, np.asarray)
    found = [accuracies(tasks, replace(SETTINGS, unsure_noise=noise, unsure_from=start)) for noise, start in GRID]
    nearest = methods.get("ncm").function
    near = [100 * (nearest(task).probabilities.argmax(-1) == truth).mean(1) for task, truth in tasks.parts]
    return Cell(kind, np.array(found), np.concatenate(near))


def line(cell: Cell, number: int) -> str:
    """Line of the table of one kind of task."""
    kind, apart = cell.kind, cell.found[number] - cell.found[0]
    half = 1.96 * apart.std(ddof=1) / math.sqrt(len(apart))
    sizes = cell.group.removeprefix("weak, ")
    task = f"{sizes}, {kind.way}-way {kind.shot}-shot"
    return f"| {kind.bank} | {task} | {cell.found[number].mean():.2f} | {apart.mean():+.2f} ± {half:.2f} |"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weak", type=Path, help="features of classes that a weak network has not learned from")
    parser.add_argument("--episodes", type=int, default=100, help="of each kind of task; 100 take ten minutes")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    cells = []
    with ProcessPoolExecutor(given.workers, initializer=_start, initargs=(given.weak,)) as workers:
        for cell in workers.map(_measure, kinds(), repeat(given.episodes)):
            cells.append(cell)
            print(f"{cell.kind.bank}, {cell.group}, {cell.kind.way}-way {cell.kind.shot}-shot", flush=True)
    equal = [cell for cell in cells if cell.group == GROUPS[0]]
    lowest = np.min([cell.above_nearest for cell in equal], axis=0)
    least = -1.96  # standard errors
    groups = np.array([np.mean([cell.apart for cell in cells if cell.group == name], axis=0) for name in GROUPS])
    means = groups.mean(axis=0)
    best = int(np.argmax(np.where(lowest >= least, means, -np.inf)))
    rows = [
        f"| {noise:g} | {start:g} | " + " | ".join(f"{gain:+.2f}" for gain in groups[:, n])
        + f" | {means[n]:+.3f} | {lowest[n]:+.1f} |"
        for n, (noise, start) in enumerate(GRID)
    ]  # fmt: skip
    noise, start = GRID[best]
    page = TEXT.format(cells=len(equal), least=least, noise=noise, start=start, episodes=given.episodes,
                       heads=" | ".join(GROUPS), rules="|".join(["---"] * (len(GROUPS) + 4)), table="\n".join(rows),
                       lines="\n".join(line(cell, best) for cell in cells))  # fmt: skip
    PAGE.write_text(page, encoding="utf-8")
    print(f"\n{noise:g} from {start:g}")


if __name__ == "__main__":
    main()
