"""Measure how many rows `FewShotClassifier` rejects in pools without and with strangers: docs/strangers.md.

    python tools/measure_unknown.py --text FILE --pools 4000                     validation and base classes
    python tools/measure_unknown.py --text FILE --pools 500 --rows 2400
    python tools/measure_unknown.py --text OTHER --pools 4000 --novel            novel classes, at the end

Pools are drawn at random: bank, ways, shots, class sizes, chain, share and classes of strangers. The table has the mean
share of rows above one half, percent, by features, class sizes, labels per class and true share of strangers.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from choose_unknown import BANKS, ROOT, Source, base_of, counts, file_of, made
from numpy.typing import NDArray

from sinkshot import load, methods
from sinkshot.estimators.outsiders import scores_of
from sinkshot.estimators.unknown_head import trusted_by_labels
from sinkshot.methods.sinkshot import sinkshot_of_pool
from sinkshot.preprocess import apply
from sinkshot.task import Task

Floats = NDArray[Any]
SHARES = (0.0, 0.2, 0.35, 0.5)  # of strangers
SHOTS = {"1": (1,), "2, 3": (2, 3), "5": (5,), "10": (10,)}
NOVEL = tuple(path.stem for path in sorted((ROOT / "data" / "banks").glob("*_novel.safetensors")))
OF_BANKS = ("PEMcE", "PEMcEWE", "PEMbE", "PEMbEWbE")
CHAINS = {bank: OF_BANKS if bank.endswith(("WRN", "12", "18")) else ("PEMcE",) for bank in BANKS} | {
    "made 64": ("EMcE",),
    "made 384": ("EMcE",),
    "made uneven": ("EMcE",),
    "made gamma": ("PEMcE",),
    "digits": ("EMcE", "PEMcE"),
    "text": ("EMcE",),
}
CHAINS |= {name.replace("_novel", ""): ("PEMcE", "PEMcEWE") for name in NOVEL}


@dataclass(frozen=True)
class Kind:
    """A kind of pool."""

    bank: str
    chain: str
    way: int
    shot: int
    rows: int
    sizes: str  # "balanced", "long tail" or the alpha of a Dirichlet
    share: float
    strange: int  # classes of strangers

    @property
    def cell(self) -> tuple[str, str, str, float]:
        """What is averaged over: features, class sizes, shots, share."""
        features = self.bank.split(",")[0].split()[0]
        return features, "balanced" if self.sizes == "balanced" else "skewed", *self.any_cell[2:]

    @property
    def any_cell(self) -> tuple[str, str, str, float]:
        """The same for all features and class sizes."""
        return "all", "all", next(name for name, shots in SHOTS.items() if self.shot in shots), self.share


def kinds(banks: dict[str, Source], rows: list[int], rng: np.random.Generator) -> Iterator[Kind]:
    """Draw kinds of pool for which the banks have enough rows."""
    while True:
        name = str(rng.choice(list(banks)))
        bank = banks[name].bank
        least, classes = int(np.bincount(bank.labels).min()), len(bank.class_names)
        share = float(rng.choice([*SHARES[:1] * 3, *SHARES[1:2], *SHARES[1:]]))
        kind = Kind(
            name,
            str(rng.choice(CHAINS[name])),
            int(rng.choice([2, 3, 5, 5, 5, 8, 10, 15, 20, 30])),
            int(rng.choice([1, 1, 2, 3, 5, 5, 10])),
            int(rng.choice(rows)),
            str(rng.choice(["balanced", "2", "0.7", "0.7", "long tail"])),
            share,
            int(rng.choice([1, 2, 3, 5, 5, 8, 10])) if share else 0,
        )
        room = 1.0 if kind.sizes == "balanced" else 1.3
        fits = kind.way * (least - kind.shot) >= room * (1 - share) * kind.rows
        if fits and kind.strange * least >= share * kind.rows and kind.way + kind.strange <= classes:
            yield kind


def drawn(kind: Kind, source: Source, rng: np.random.Generator) -> Task:
    """Draw a pool: labelled rows are its supports."""
    bank = source.bank
    chosen = [rng.permutation(np.flatnonzero(bank.labels == label)) for label in rng.permutation(len(bank.class_names))]
    known, strange = chosen[: kind.way], chosen[kind.way : kind.way + kind.strange]
    outside = round(kind.share * kind.rows)
    room = np.array([len(each) - kind.shot for each in known])
    inside = counts(rng, kind.sizes, kind.rows - outside, room)
    query = [each[kind.shot : kind.shot + count] for each, count in zip(known, inside, strict=True)]
    if outside:
        sizes = "balanced" if kind.sizes == "balanced" else "2"
        parts = counts(rng, sizes, outside, np.array([len(each) for each in strange]))
        query += [each[:count] for each, count in zip(strange, parts, strict=True)]
    support = np.concatenate([each[: kind.shot] for each in known])
    labels = np.repeat(np.arange(kind.way), kind.shot)
    features = bank.features
    task = Task(features[None, support], labels[None], features[None, np.concatenate(query)], kind.way, source.base)
    return apply(task, kind.chain, bank.base)


def rejected(task: Task, by_network: bool) -> float:
    """Share of the unlabelled rows above one half, percent, as `FewShotClassifier` has it."""
    sinkshot = methods.get("sinkshot")
    scores = scores_of(sinkshot, task, {}) if by_network else sinkshot_of_pool(task)
    assert scores.unknown is not None
    rows = np.concatenate([task.support[0], task.query[0]])
    labelled = np.arange(len(rows)) < task.supports
    unknown = np.concatenate([np.zeros(task.supports), np.asarray(scores.unknown[0])])
    return 100 * float((trusted_by_labels(rows, unknown, labelled)[~labelled] > 0.5).mean())


def table(pools: list[Kind], found: Floats) -> str:
    """Mean share of rejected rows, percent, for all pools and each kind; in brackets how many pools."""
    lines = []
    for features in ("all", *sorted({kind.cell[0] for kind in pools})):
        for sizes in ("balanced", "skewed") if features != "all" else ("all",):
            for shots in SHOTS:
                line = [features, sizes, shots]
                for share in SHARES:
                    cells = [(features, sizes, shots, share) in (kind.cell, kind.any_cell) for kind in pools]
                    some = found[np.array(cells)]
                    line.append(f"{some.mean():.1f} ({len(some)})" if len(some) else "")
                lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def sources(text: Path | None, novel: bool) -> dict[str, Source]:
    """Banks, made clusters, digits and, where given, sentences."""
    if novel:
        found = {name.replace("_novel", ""): Source(load(file_of(name))) for name in NOVEL}
    else:
        found = {name: Source(load(file_of(stem)), base_of(name)) for name, stem in BANKS.items()}
    found |= {name: Source(made(name)) for name in ("made 64", "made 384", "made uneven", "made gamma", "digits")}
    return found | ({"text": Source(load(text))} if text else {})


def main() -> None:
    """Draw pools and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=4_000, help="to be drawn; some 15 a second")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 200, 300, 400, 600], help="of a pool")
    parser.add_argument("--banks", nargs="+", metavar="NAME", help="of these features alone, as the table names them")
    parser.add_argument("--novel", action="store_true", help="read novel classes: at the end, when nothing is chosen")
    parser.add_argument("--without-network", action="store_true", help="the method's own scale")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(given.seed)
    banks = {
        name: source
        for name, source in sources(given.text, given.novel).items()
        if given.banks is None or name.split(",")[0].split()[0] in given.banks
    }
    if not banks:
        parser.error(f"no features are called {', '.join(given.banks)}")
    pools = list(islice(kinds(banks, given.rows, rng), given.pools))
    found = np.array([rejected(drawn(kind, banks[kind.bank], rng), not given.without_network) for kind in pools])
    heads = "".join(f" {share:.0%} strangers |" for share in SHARES)
    print(f"{len(pools):,} pools\n\n| features | class sizes | labels |{heads}\n" + "|---" * 7 + "|")
    print(table(pools, found))


if __name__ == "__main__":
    main()
