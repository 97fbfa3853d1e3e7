"""Choose and check the scale of `unknown` of `sinkshot`, in pools without and with strangers: docs/unknown-choice.md.

    python tools/choose_unknown.py --text FILE            the table: which share of the rows is rejected at one half
    python tools/choose_unknown.py --search 5             look for better constants for 5 minutes, and print them

No novel class is read: banks of validation and base classes, made clusters and, with `--text FILE`, a bank of sentence
vectors of validation intents. Digits are in the table, but not in the search.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import FeatureBank, load, open_set
from sinkshot.methods import sinkshot as method
from sinkshot.methods._graph import neighbour_graph
from sinkshot.methods.algebra import Rows, rows_of, softmax
from sinkshot.methods.bms import unit
from sinkshot.methods.priors import shrunken_shares
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import SETTINGS, SinkShotSettings
from sinkshot.task import Task

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "unknown-choice.md"
CIFAR, BIRDS = "cifar-fs_wrn-28-10_validation", "cub_wrn-28-10_validation"
BANKS = {
    "CIFAR-FS WRN": CIFAR,
    "CUB WRN": BIRDS,
    "CIFAR-FS ResNet12": "cifar-fs_resnet12_validation",
    "CIFAR-FS ResNet18": "cifar-fs_resnet18_validation",
    "CIFAR-FS WRN, base": "cifar-fs_wrn-28-10_base",
    "CUB WRN, base": "cub_wrn-28-10_base",
}
WHITENED = ("CIFAR-FS WRN", "CUB WRN", "CIFAR-FS ResNet12", "CIFAR-FS ResNet18")  # behind Wb, by their base classes
SHARES = (0.0, 0.2, 0.35, 0.5)  # of strangers
CLOSED_LIMIT, OPEN_LIMIT = 0.02, 0.06  # differences below these do not count in the search


@dataclass(frozen=True)
class Pool:
    """A kind of pool: known classes with a few labels, in all way x query other rows."""

    bank: str
    way: int = 5
    query: int = 15  # rows a class on average, strangers included
    sizes: str = "balanced"  # or the alpha of a Dirichlet, or "long tail"
    chain: str = "PEMbEWbE"
    strange: int = 5  # classes of strangers
    draws: int = 24

    @property
    def name(self) -> str:
        """Name in the table."""
        sizes = self.sizes if self.sizes in ("balanced", "long tail") else f"Dirichlet {self.sizes}"
        return f"{self.bank} | {self.way} | {self.way * self.query:,} | {sizes} | {self.chain}"


def pools(with_text: bool) -> list[Pool]:
    """Kinds of pool in the table."""
    wrn, cub, base = "CIFAR-FS WRN", "CUB WRN", "CUB WRN, base"
    found = [Pool(bank) for bank in list(BANKS)[:4]]
    found += [
        Pool(wrn, chain="PEMbE"),
        Pool(wrn, chain="PEMcE"),
        Pool(wrn, sizes="0.7"),
        Pool(cub, sizes="2"),
        Pool(wrn, way=2),
    ]
    found += [Pool(cub, 20, strange=10, draws=6), Pool(cub, 10, chain="PEMcE", strange=10, draws=10)]
    found += [Pool(wrn, query=100, sizes=sizes, draws=20) for sizes in ("balanced", "2", "0.7", "long tail")]
    found += [Pool(wrn, query=100, sizes="0.7", chain="PEMbE", draws=20), Pool(wrn, 2, 100, "0.7", draws=20)]
    found += [Pool(wrn, query=250, draws=6), Pool(wrn, 10, 100, chain="PEMcE", draws=4)]
    found += [Pool(wrn, 2, 100, "0.7", "PEMcE", draws=20), Pool(base, 50, 12, chain="PEMbE", strange=20, draws=3)]
    found += [Pool("CIFAR-FS WRN, base", sizes="0.7", chain="PEMbE")]
    for kind in ("made 64", "made 384", "made uneven"):
        found += [Pool(kind, query=20, chain="EMcE", draws=10)]
    found += [Pool("made 384", 20, 30, "2", "EMcE", draws=3), Pool("made gamma", 5, 40, "0.7", "PEMcE", draws=10)]
    if with_text:
        found += [Pool("text", chain="EMcE"), Pool("text", sizes="long tail", chain="EMcE")]
        found += [Pool("text", 20, 20, "balanced", "EMcE", 10, 6), Pool("text", 50, 12, "balanced", "EMcE", 20, 3)]
    return [*found, Pool("digits", 5, 60, chain="PEMcE", draws=10), Pool("digits", 10, 60, "0.7", "PEMcE", 0, 10)]


@cache
def made(kind: str) -> FeatureBank:
    """Clusters of 100 rows in 30 classes, or the digits of scikit-learn."""
    if kind == "digits":
        from sklearn.datasets import load_digits

        x, labels = load_digits(return_X_y=True)
    else:
        rng = np.random.default_rng(5)
        labels = np.repeat(np.arange(30), 100)
        if kind == "made gamma":
            x = rng.gamma(1 + 2 * (rng.random((30, 64)) < 0.2)[labels])
        else:
            width, apart = (384, 0.3) if kind == "made 384" else (64, 0.5 if kind == "made 64" else 0.4)
            spread = rng.uniform(0.6, 1.4, 30) if kind == "made uneven" else np.ones(30)
            x = apart * rng.normal(size=(30, width))[labels]
            x = x + spread[labels][:, None] * rng.normal(size=(len(labels), width))
    return FeatureBank(x.astype(np.float32), labels, tuple(map(str, range(labels.max() + 1))))


def counts(rng: np.random.Generator, sizes: str, total: int, room: NDArray[Any]) -> NDArray[Any]:
    """Rows of each class: by the kind of sizes, as far as a class has them; the rest goes to the others."""
    way = len(room)
    if sizes == "balanced":
        weight = np.ones(way)
    elif sizes == "long tail":
        weight = 10.0 ** (-rng.permutation(way) / max(way - 1, 1))
    else:
        weight = rng.dirichlet([float(sizes)] * way)
    wanted = weight / weight.sum() * total
    found = np.minimum(np.floor(wanted).astype(np.int64), room)
    while found.sum() < min(total, room.sum()):
        found[np.where(found < room, wanted - found, -np.inf).argmax()] += 1
    return np.asarray(found)


@dataclass(frozen=True)
class Source:
    """Features that pools are drawn from, and those of the base classes where the chain needs them."""

    bank: FeatureBank
    base: FeatureBank | None = None


def tasks(pool: Pool, source: Source, shot: int, share: float, seed: int) -> Iterator[tuple[Task, NDArray[Any]]]:
    """Draw tasks, one at a time, with the classes of the queries [q], -1 for strangers; each cell draws its own."""
    bank, cell = source.bank, zlib.crc32(f"{pool.name} {shot} {share}".encode())
    rows = [np.flatnonzero(bank.labels == label) for label in range(len(bank.class_names))]
    for draw in range(pool.draws):
        rng = np.random.default_rng([seed, cell, draw])
        chosen = [rng.permutation(rows[label]) for label in rng.permutation(len(rows))]
        known, strange = chosen[: pool.way], chosen[pool.way : pool.way + pool.strange]
        outside = round(share * pool.way * pool.query)
        room = np.array([len(each) - shot for each in known])
        inside = counts(rng, pool.sizes, pool.way * pool.query - outside, room)
        query = [each[shot : shot + count] for each, count in zip(known, inside, strict=True)]
        if outside:
            parts = counts(rng, "balanced", outside, np.array([len(each) for each in strange]))
            query += [each[:count] for each, count in zip(strange, parts, strict=True)]
        numbers = np.concatenate(query)
        truth = np.full(len(numbers), -1)
        truth[: inside.sum()] = np.repeat(np.arange(pool.way), inside)
        support = np.concatenate([each[:shot] for each in known])
        labels = np.repeat(np.arange(pool.way), shot)
        task = Task(bank.features[None, support], labels[None], bank.features[None, numbers], pool.way, source.base)
        yield apply(task, pool.chain, bank.base), truth


@dataclass(frozen=True)
class Rejected:
    """Rejected rows of one kind of pool at one number of shots and share of strangers; percent."""

    mean: float
    most: float
    auroc: float | None

    def __str__(self) -> str:
        """Cell of the table."""
        return f"{self.mean:.1f} ({self.most:.0f})" + (f" {self.auroc:.1f}" if self.auroc is not None else "")


def measure(pool: Pool, source: Source, shot: int, share: float, seed: int) -> Rejected:
    """Run the method on all tasks of a kind."""
    rejected, auroc = [], []
    for task, truth in tasks(pool, source, shot, share, seed):
        unknown = np.asarray(method.solve(task, SETTINGS).unknown)
        rejected.append(100 * float((unknown > 0.5).mean()))
        if share:
            auroc.append(100 * float(open_set.auroc(unknown, truth[None] < 0).mean()))
    return Rejected(float(np.mean(rejected)), max(rejected), float(np.mean(auroc)) if auroc else None)


def table(kinds: list[Pool], banks: dict[str, Source], seed: int) -> str:
    """One line for each kind of pool and number of shots."""
    heads = ["bank", "ways", "rows", "class sizes", "chain", "shots", *(f"{share:.0%} strangers" for share in SHARES)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for pool in kinds:
        for shot in (1, 2, 5, 10):
            if shot in (2, 10) and (pool.query != 15 or pool.way != 5):
                continue
            shares = SHARES if pool.strange else SHARES[:1]
            cells = [str(measure(pool, banks[pool.bank], shot, share, seed)) for share in shares]
            lines.append("| " + " | ".join([pool.name, str(shot), *cells, *[""] * (len(SHARES) - len(cells))]) + " |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


@dataclass(frozen=True)
class Collected:
    """What the share of strangers and the mixture are computed from, for one task."""

    belongs: NDArray[Any]
    evidence: NDArray[Any]
    near: NDArray[Any]
    left_out: NDArray[Any]
    rows: Rows


def collect(task: Task, s: SinkShotSettings) -> Collected:
    """Run the steps before strangers are looked for."""
    rows = rows_of(task)
    graph = neighbour_graph(rows, s.neighbours, s.sharpness)
    spreading = method.spreading_over(graph, s)
    share = np.full_like(rows.member[..., :1], 1.0 / task.way)
    _, scores = unit(rows.means(), rows)
    for step in range(s.stranger_step + 1):
        belongs = softmax(s.lam_at(step) * scores[..., rows.supports :] + np.log(share), axis=-2)
        belongs = method.smoothed(belongs, rows, spreading, s.power)
        if step == s.stranger_step:
            break
        known = np.ones_like(belongs[..., :1, :])
        share = shrunken_shares(belongs, known, *s.doubts(task.way, rows.supports / task.way))
        belongs = method.allocated(belongs, share, known, s.passes)
        _, scores = unit(rows.with_queries(s.support_weight * rows.member, belongs * belongs), rows)
    small = replace(rows, product=lambda a: a, squares=rows.squares[..., :0])  # the Gram matrix is not needed any more
    return Collected(belongs, *method.evidence_of(belongs, rows, graph, s), small)


SEARCHED = (
    "depth",
    "offset",
    "offset_unsure",
    "offset_few",
    "offset_torn",
    "few_strangers",
    "most_strangers",
)


def loss(cells: dict[float, list[list[Collected]]], s: SinkShotSettings) -> float:
    """Mean over kinds of pool: rows rejected without strangers, 25-fold, and the error of the share with them."""
    total, count = 0.0, 0
    for share, kinds in cells.items():
        for kind in kinds:
            found = []
            for each in kind:
                short = method.shortfall(each.belongs, each.near, each.left_out, each.rows)
                part = method.share_of_strangers(each.belongs, each.near, *short, each.rows, s)
                found.append((method.rejected(each.evidence, part, s) > 0.5).mean())
            mean = float(np.mean(found))
            total += max(0.0, abs(mean - share) - OPEN_LIMIT) if share else 25 * max(0.0, mean - CLOSED_LIMIT)
            count += 1
    return total / count


def search(kinds: list[Pool], banks: dict[str, Source], minutes: float, seed: int) -> None:
    """Random search for constants; print each improvement."""
    cells: dict[float, list[list[Collected]]] = {share: [] for share in (0.0, 0.2, 0.5)}
    for pool in (pool for pool in kinds if pool.bank != "digits"):
        for share, found in cells.items():
            for shot in (1, 5):
                drawn = tasks(pool, banks[pool.bank], shot, share, seed)
                found.append([collect(task, SETTINGS) for task, _ in drawn])
    rng = np.random.default_rng(0)
    least, best = loss(cells, SETTINGS), SETTINGS
    print(f"{least:.4f} the constants as they are", flush=True)
    deadline = time.monotonic() + 60 * minutes
    while time.monotonic() < deadline:
        names = rng.choice(SEARCHED, size=2, replace=False)
        change: dict[str, Any] = {name: float(getattr(best, name) * np.exp(0.3 * rng.normal())) for name in names}
        change["most_strangers"] = min(change.get("most_strangers", best.most_strangers), 0.95)
        found_loss = loss(cells, new := replace(best, **change))
        if found_loss < least:
            least, best = found_loss, new
            print(f"{least:.4f}", {name: round(getattr(best, name), 3) for name in SEARCHED}, flush=True)


TEXT = """# How the scale of unknown was chosen

`sinkshot` gives each row a probability of belonging to no class. This page has the share of rows for which it is above
one half, in pools with no strangers, where it should be 0, and with 20, 35 and 50 % of them.

Labelled rows are no strangers. So the share of strangers is estimated from how near the labelled and the other rows are
to their classes, each row compared with the mean of the *other* rows (`sinkshot.methods.sinkshot.share_of_strangers`).
The mean of the labelled rows is weighted by class sizes, and in a skewed pool it depends on the few labels of one large
class. So what is taken as normal has its standard error, and a part that falls with the number of labels that count.

How the form was chosen, on draws of seeds 1 to 3, 11 to 13 and 21 of nearly these pools, before and behind Wb, some
9,000 in all: a random search for the constants on some of the seeds, looked at on the others, then rounded. What was
asked for: without strangers no kind of pool above 3 %, then the share with 35 and 50 % strangers at five shots, pool by
pool as well as in the mean, then one shot. Draws of one seed used to share their classes in all cells, which made
chance look like progress; now each cell draws its own. Tried and left out, since they separated pools with strangers
from pools without them no better than the labelled rows do:

- two kinds of evidence: the gain in likelihood of two normal distributions over one, and how far they are apart. Pools
  without strangers are as often bimodal as those with them, since one class is tighter than another;
- the spread of evidence, and of nearness, where the next class stands at one. With it, 35 % strangers at one shot were
  found in 24 % of the pools of seed 1, without it in 10 %, both with 2 % of false alarms; on other draws, most of them
  skewed, in 12 % with it and 12 % without it;
- its skewness, coherence over neighbours, the shortfall of each class, its smallest and its median; a regression on all
  of them gains little over the form that stands.

Nothing of this read a novel class. Digits were looked at on the way and are no unseen test.

What does not hold. With one label a class there is no other label to compare with, only the rows that the label itself
has attracted. Strangers keep their rank (AUROC) then, but hardly any is above one half. With 20 % strangers, fewer are
rejected than there are. A pool is mostly judged right or not at all: shares are means of pools in which most strangers
are rejected and pools in which none is.

Novel classes were looked at after the choice: `sinkshot eval BANK --method sinkshot --protocol open-set --shot N
--episodes 1000`, one and five shots. CIFAR-FS WRN: AUROC 86.95 / 93.21, false positives at 95 % 48.5 / 33.7, accuracy
of known queries 84.65 / 90.60; CUB WRN: 89.71 / 96.42, 35.2 / 16.3, 86.31 / 93.84. Without strangers, fifteen novel
banks, 1, 5 and 10 shots, pools of 75 to 1,000 rows in four kinds (10, 10, 6 and 1 draws): 0 to 1.5 % of the rows in 177
of 180 cells; the others 3.6 %, 8.1 % and 50 %. The last, 20 ways at 10 shots on CIFAR-FS to CUB, showed that pools in
which most rows are torn between classes had been forgotten. The part for these was then chosen on made clusters and
validation classes, and the cell is 0 now; the other two were not run again.

Estimators count the strangers of a pool in another way: [Counting strangers](strangers.md).

## The method alone

Without the estimator's check. Cells: percent of rejected rows, mean over draws (largest of a draw), and AUROC. Seed
{seed}, which chose nothing where it is 5. `python tools/choose_unknown.py --text FILE --seed {seed}` writes this
page.

{table}
"""


def file_of(stem: str) -> Path:
    """Path of a bank of this repository."""
    return ROOT / "data" / "banks" / f"{stem}.safetensors"


def base_of(name: str) -> FeatureBank | None:
    """Features of the base classes of a bank of validation classes."""
    return load(file_of(BANKS[name].replace("_validation", "_base"))) if name in WHITENED else None


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", type=float, metavar="MINUTES", help="search for better constants")
    parser.add_argument("--seed", type=int, default=5, help="of the draws")
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    given = parser.parse_args()
    banks = {name: Source(load(file_of(stem)), base_of(name)) for name, stem in BANKS.items()}
    banks |= {name: Source(made(name)) for name in ("made 64", "made 384", "made uneven", "made gamma", "digits")}
    if given.text:
        banks["text"] = Source(load(given.text))
    kinds = pools(given.text is not None)
    if given.search:
        search(kinds, banks, given.search, given.seed)
    else:
        PAGE.write_text(TEXT.format(seed=given.seed, table=table(kinds, banks, given.seed)), encoding="utf-8")


if __name__ == "__main__":
    main()
