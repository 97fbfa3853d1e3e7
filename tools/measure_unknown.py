"""Measure how many rows `FewShotClassifier` rejects in pools without and with strangers: docs/strangers.md.

    python tools/measure_unknown.py --text FILE --pools 4000                     validation and base classes
    python tools/measure_unknown.py --text FILE --pools 500 --rows 2400
    python tools/measure_unknown.py --text OTHER --pools 4000 --novel            novel classes, at the end

Pools are drawn at random: features, with or without those of the base classes, ways, shots, class sizes, share and
classes of strangers. Each is given to `FewShotClassifier(unknown=0.5)` with the chain that it chooses, or `label` does.
The table has the mean share of rows above one half, percent, by features, class sizes, labels per class and true share
of strangers; below it the cells are counted that are safe without strangers, and near the truth with them.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from choose_unknown import BANKS, ROOT, Source, counts, file_of, made
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sinkshot import FewShotClassifier, load, methods
from sinkshot.estimators.auto_chain import auto_chain

Floats = NDArray[Any]
SHARES = (0.0, 0.2, 0.35, 0.5)  # of strangers
SHOTS = {"1": (1,), "2, 3": (2, 3), "5": (5,), "10": (10,)}
MADE = ("made 64", "made 384", "made uneven", "made gamma", "digits")
WITH_BASE = ", with base"  # ends the name of features for which those of the base classes are given
SAFE, NEAR, FEW = 3.0, 10.0, 10  # percent rejected without strangers, points from the truth with them, pools of a cell


@dataclass(frozen=True)
class Kind:
    """A kind of pool."""

    features: str
    way: int
    shot: int
    rows: int
    sizes: str  # "balanced", "long tail" or the alpha of a Dirichlet
    share: float
    strange: int  # classes of strangers
    as_label: bool  # whether the chain is that of `label`, which whitens from three labels per class on

    @property
    def cell(self) -> tuple[str, str, str, float]:
        """What is averaged over: features, class sizes, shots, share."""
        return self.features, "balanced" if self.sizes == "balanced" else "skewed", *self.any_cell[2:]

    @property
    def any_cell(self) -> tuple[str, str, str, float]:
        """The same for all features and class sizes."""
        return "all", "all", next(name for name, shots in SHOTS.items() if self.shot in shots), self.share


def kinds(sources: dict[str, Source], rows: list[int], rng: np.random.Generator) -> Iterator[Kind]:
    """Draw kinds of pool for which the features have enough rows."""
    while True:
        name = str(rng.choice(list(sources)))
        bank = sources[name].bank
        least, classes = int(np.bincount(bank.labels).min()), len(bank.class_names)
        share = float(rng.choice([*SHARES[:1] * 3, *SHARES[1:2], *SHARES[1:]]))
        kind = Kind(
            name,
            int(rng.choice([2, 3, 5, 5, 5, 8, 10, 15, 20, 30])),
            int(rng.choice([1, 1, 2, 3, 5, 5, 10])),
            int(rng.choice(rows)),
            str(rng.choice(["balanced", "2", "0.7", "0.7", "long tail"])),
            share,
            int(rng.choice([1, 2, 3, 5, 5, 8, 10])) if share else 0,
            bool(rng.random() < 0.5) and sources[name].base is None,
        )
        room = 1.0 if kind.sizes == "balanced" else 1.3
        fits = kind.way * (least - kind.shot) >= room * (1 - share) * kind.rows
        if fits and kind.strange * least >= share * kind.rows and kind.way + kind.strange <= classes:
            yield kind


def drawn(kind: Kind, labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Draw a pool: numbers of its rows, labelled ones first, and their classes, -1 where unlabelled."""
    classes = int(labels.max()) + 1
    chosen = [rng.permutation(np.flatnonzero(labels == label)) for label in rng.permutation(classes)]
    known, strange = chosen[: kind.way], chosen[kind.way : kind.way + kind.strange]
    outside = round(kind.share * kind.rows)
    room = np.array([len(each) - kind.shot for each in known])
    inside = counts(rng, kind.sizes, kind.rows - outside, room)
    found = [each[: kind.shot] for each in known]
    found += [each[kind.shot : kind.shot + count] for each, count in zip(known, inside, strict=True)]
    if outside:
        sizes = "balanced" if kind.sizes == "balanced" else "2"
        parts = counts(rng, sizes, outside, np.array([len(each) for each in strange]))
        found += [each[:count] for each, count in zip(strange, parts, strict=True)]
    codes = np.full(sum(map(len, found)), -1)
    codes[: kind.way * kind.shot] = np.repeat(np.arange(kind.way), kind.shot)
    return np.concatenate(found), codes


def rejected(kind: Kind, source: Source, rng: np.random.Generator) -> float:
    """Share of the unlabelled rows of a pool that `FewShotClassifier` rejects, percent."""
    numbers, codes = drawn(kind, source.bank.labels, rng)
    x, base = source.bank.features[numbers], None if source.base is None else source.base.features
    chain = auto_chain(methods.get("sinkshot"), x, False, kind.shot) if kind.as_label else "auto"
    model = FewShotClassifier(preprocess=chain, unknown=0.5, base=base).fit(x, codes)
    return 100 * float((model.transduction_[codes < 0] < 0).mean())


def lines(pools: list[Kind], found: Floats) -> list[tuple[tuple[str, str, str], list[Floats]]]:
    """Return features, class sizes and labels, and what was found in each pool of every share."""
    numbers = defaultdict[Any, list[int]](list)
    for number, kind in enumerate(pools):
        numbers[kind.cell].append(number)
        numbers[kind.any_cell].append(number)
    names = [
        (features, sizes, shots)
        for features in ("all", *sorted({kind.features for kind in pools}))
        for sizes in (("balanced", "skewed") if features != "all" else ("all",))
        for shots in SHOTS
    ]
    return [(name, [found[np.array(numbers[*name, share], np.int64)] for share in SHARES]) for name in names]


def table(pools: list[Kind], found: Floats) -> str:
    """Mean share of rejected rows, percent, for all pools and each kind; in brackets how many pools."""
    return "\n".join(
        "| " + " | ".join([*name, *(f"{each.mean():.1f} ({len(each)})" if len(each) else "" for each in cells)]) + " |"
        for name, cells in lines(pools, found)
    )


def verdicts(pools: list[Kind], found: Floats) -> str:
    """How many cells of ten pools or more are safe without strangers, and near the truth with them; names of others."""
    good, bad = [0] * len(SHARES), [list[str]() for _ in SHARES]
    for name, cells in lines(pools, found):
        for place, (share, values) in enumerate(zip(SHARES, cells, strict=True)):
            if name[0] == "all" or len(values) < FEW:
                continue
            mean = float(values.mean())
            if mean <= SAFE if share == 0 else abs(mean - 100 * share) <= NEAR:
                good[place] += 1
            else:
                bad[place].append(f"{', '.join(name)} labels: {mean:.1f}")
    return "\n".join(
        f"{share:.0%} strangers: {right} of {right + len(others)} cells hold"
        + "".join(f"\n    {each}" for each in others)
        for share, right, others in zip(SHARES, good, bad, strict=True)
    )


def sources(text: Path | None, novel: bool) -> dict[str, Source]:
    """Banks, those of four networks also with features of the base classes, made clusters, digits and sentences."""
    files = sorted((ROOT / "data" / "banks").glob("*_novel.safetensors")) if novel else map(file_of, BANKS.values())
    found = {}
    for file in files:
        name, split = file.stem.rsplit("_", 1)
        found[f"{name}, base classes" if split == "base" else name] = Source(load(file))
        base = file_of(f"{name}_base")
        if split != "base" and base.exists():
            found[name + WITH_BASE] = Source(load(file), load(base))
    found |= {name: Source(made(name)) for name in MADE}
    return found | ({"text": Source(load(text))} if text else {})


_sources: dict[str, Source] = {}  # of a worker


def _start(text: Path | None, novel: bool) -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    _sources.update(sources(text, novel))


def _measure(kind: Kind, seed: int, number: int) -> float:
    return rejected(kind, _sources[kind.features], np.random.default_rng([seed, number]))


def main() -> None:
    """Draw pools and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=4_000, help="to be drawn; some 12 a second on two cores")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 200, 300, 400, 600], help="of a pool")
    parser.add_argument("--features", nargs="+", metavar="NAME", help="these alone, by how their names begin")
    parser.add_argument("--novel", action="store_true", help="read novel classes: at the end, when nothing is chosen")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    known = sources(given.text, given.novel)
    if given.features:
        known = {name: source for name, source in known.items() if name.startswith(tuple(given.features))}
    if not known:
        parser.error(f"no features are called {', '.join(given.features)}")
    pools = list(islice(kinds(known, given.rows, np.random.default_rng(given.seed)), given.pools))
    with ProcessPoolExecutor(given.workers, initializer=_start, initargs=(given.text, given.novel)) as workers:
        seeds = [given.seed] * len(pools)
        found = np.array(list(workers.map(_measure, pools, seeds, range(len(pools)), chunksize=8)))
    heads = "".join(f" {share:.0%} strangers |" for share in SHARES)
    print(f"{len(pools):,} pools\n\n| features | class sizes | labels |{heads}\n" + "|---" * 7 + "|")
    print(f"{table(pools, found)}\n\n{verdicts(pools, found)}")


if __name__ == "__main__":
    main()
