"""Measure how many rows `FewShotClassifier` rejects in pools without and with strangers, and how many it could.

    python tools/measure_unknown.py shares --text FILE --pools 4000     by the doubt of labelled rows that is allowed
    python tools/measure_unknown.py bound --text FILE --pools 5000     by boosted trees that have seen such pools

Pools of 200 to 600 rows, drawn at random: bank, ways, shots, class sizes, chain, share and classes of strangers. The
table has the mean share of rows above one half, in percent, by shots and true share, and in brackets how many kinds of
pool (features, class sizes, shots) are more than 3 points off without strangers, or more than 10 with them.

`bound` asks whether a better estimate of the share is possible. Boosted trees are given everything that was found to
tell pools with strangers from others: how near labelled and other rows are to their classes, the spread and tails of
that, closeness to neighbours, eigenvalues of the neighbour graph and of what class means leave, and k-means clusters
beside the classes. They have seen other pools of the same banks, or only pools of other features (CIFAR-FS, CUB, made
clusters, digits, sentences). Their estimate counts above a limit at which 2 % are rejected without strangers, chosen
afterwards, so the table flatters them. No novel class is read; docs/unknown-shares.md has both tables.
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
from choose_unknown import BANKS, Source, base_of, counts, file_of, made
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import eigsh
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, LeaveOneGroupOut, cross_val_predict

from sinkshot import load
from sinkshot.estimators.unknown_head import MOST_DOUBT, trusted_by_labels
from sinkshot.methods import sinkshot as method
from sinkshot.preprocess import apply
from sinkshot.settings.sinkshot import POOL_SETTINGS
from sinkshot.task import Task

Floats = NDArray[Any]
SHARES = (0.0, 0.2, 0.35, 0.5)  # of strangers
SHOTS = {"1": (1,), "2, 3": (2, 3), "5": (5,), "10": (10,)}
LIMITS = (0.15, 0.25, 0.33, MOST_DOUBT, 1.0)  # of the doubt about labelled rows; 1 doubts no scale
OF_BANKS = ("PEMcE", "PEMcEWE", "PEMbE", "PEMbEWbE")
CHAINS = {bank: OF_BANKS if bank.endswith(("WRN", "12", "18")) else ("PEMcE",) for bank in BANKS} | {
    "made 64": ("EMcE",),
    "made 384": ("EMcE",),
    "made uneven": ("EMcE",),
    "made gamma": ("PEMcE",),
    "digits": ("EMcE", "PEMcE"),
    "text": ("EMcE",),
}


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
        skew = {"balanced": "balanced", "0.7": "0.7"}.get(self.sizes, "mild")
        return features, skew, next(name for name, shots in SHOTS.items() if self.shot in shots), self.share


def kinds(banks: dict[str, Source], rng: np.random.Generator) -> Iterator[Kind]:
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
            int(rng.choice([200, 200, 300, 400, 600])),
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


@dataclass(frozen=True)
class Solved:
    """A pool, and what the method says of it."""

    rows: Floats  # [n, d], labelled ones first
    labels: NDArray[np.int64]  # [l]
    probabilities: Floats  # [q, way]
    unknown: Floats  # [q]

    def rejected(self, most_doubt: float) -> float:
        """Share of the unlabelled rows above one half, in percent, as `FewShotClassifier` has it."""
        labelled = np.arange(len(self.rows)) < len(self.labels)
        unknown = np.concatenate([np.zeros(len(self.labels)), self.unknown])
        trusted = trusted_by_labels(self.rows, unknown, labelled, most_doubt=most_doubt)
        return 100 * float((trusted[~labelled] > 0.5).mean())


def solved(task: Task) -> Solved:
    """Run the method as estimators do."""
    scores = method.solve(task, POOL_SETTINGS)
    rows = np.concatenate([task.support[0], task.query[0]])
    assert scores.unknown is not None
    return Solved(rows, np.asarray(task.labels[0]), np.asarray(scores.probabilities[0]), np.asarray(scores.unknown[0]))


# --- what may tell pools with strangers from others -----------------------------------------------------------------


def statistics(pool: Solved) -> list[float]:
    """Return what boosted trees may know of a pool."""
    x, y, p = pool.rows.astype(np.float64), pool.labels, pool.probabilities
    way, labelled, count = p.shape[1], len(y), len(x)
    member = np.zeros((way, count))
    member[y, np.arange(labelled)] = 1.0
    member[:, labelled:] = p.T
    gram = x @ x.T
    cosine = to_others(member**2, gram)  # [way, n]
    near, second = cosine.max(axis=0), np.sort(cosine, axis=0)[-2]
    size, shots = p.mean(axis=0), np.bincount(y, minlength=way)
    by_class = np.array([near[:labelled][y == k].mean() for k in range(way)])
    gap = max(near.mean() - second.mean(), 1e-3)
    of_queries = near[labelled:]
    tails = np.quantile(of_queries, [0.1, 0.5, 0.9])
    found = [(size @ by_class - of_queries.mean()) / gap, (by_class.mean() - of_queries.mean()) / gap, gap]
    found += [of_queries.mean(), of_queries.std() / gap, (tails[2] - tails[0]) / gap]
    found += [(tails[2] + tails[0] - 2 * tails[1]) / gap, 1 - (p * p).sum() / len(p), (size**2 / shots).sum()]
    found += [near[:labelled].std() / gap, way * (size @ size), np.log(way), labelled / way, np.log(len(p))]
    for neighbours in (6, 12):
        found += of_graph(gram, near, neighbours, way, gap)
    found += of_residuals(member, gram, labelled, size)
    for extra in (3, max(2, min(way, 8))):
        found += of_clusters(x, y, member, gram, extra)
    logits = np.log(np.clip(pool.unknown, 1e-9, 1 - 1e-6) / (1 - np.clip(pool.unknown, 1e-9, 1 - 1e-6)))
    return [*found, float(logits.std()), float(pool.unknown.mean()), float((pool.unknown > 0.5).mean())]


def to_others(weights: Floats, gram: Floats) -> Floats:
    """Cosines [way, n] of rows to weighted means of the other rows."""
    scores, squares = weights @ gram, np.diag(gram)
    length = np.maximum((weights * scores).sum(axis=1, keepdims=True), 1e-12)
    rest = np.maximum(length - 2 * weights * scores + weights * weights * squares, 1e-6 * length)
    return np.asarray((scores - weights * squares) / np.sqrt(rest))


def of_graph(gram: Floats, near: Floats, neighbours: int, way: int, gap: float) -> list[float]:
    """Eigenvalues of the neighbour graph, and how much closer rows are to neighbours than to their class."""
    others = gram.copy()
    np.fill_diagonal(others, -2.0)
    numbers = np.argpartition(-others, neighbours - 1, axis=1)[:, :neighbours]
    closeness = np.maximum(np.take_along_axis(others, numbers, axis=1), 0.0)
    weight = np.zeros_like(gram)
    np.put_along_axis(weight, numbers, closeness**4, axis=1)
    weight = 0.5 * (weight + weight.T)
    degree = np.maximum(weight.sum(axis=1), 1e-12)
    normal = csr_matrix(weight / np.sqrt(np.outer(degree, degree)))
    values = eigsh(normal, k=min(way + 25, len(gram) - 2), which="LA", return_eigenvectors=False, tol=1e-3)[::-1]
    found = [values[1:way].mean(), values[way], values[way : way + 5].mean(), values[way + 5 : way + 15].mean()]
    found += [values[way + 15 :].mean(), *((np.maximum(values, 0) ** t).sum() / way for t in (8, 32))]
    excess = np.sqrt(closeness.mean(axis=1)) - near
    smooth = excess
    for _ in range(3):
        smooth = 0.3 * excess + 0.7 * (weight @ smooth) / degree
    spread = np.quantile(smooth, [0.3, 0.9])
    return [*found, closeness.mean(), excess.mean() / gap, smooth.std() / gap, (spread[1] - spread[0]) / gap]


def of_residuals(member: Floats, gram: Floats, labelled: int, size: Floats) -> list[float]:
    """Largest variances of what class means leave, over their mean and over that between classes."""
    means = member**2 / (member**2).sum(axis=1, keepdims=True)
    left = np.eye(len(gram)) - member.T @ means
    residual = (left @ gram @ left.T)[labelled:, labelled:]
    values = eigsh(residual, k=15, which="LA", return_eigenvectors=False, tol=1e-3)[::-1]
    between = len(residual) * float((size * np.diag(means @ gram @ means.T)).sum())
    total = float(np.trace(residual))
    return [values[0] / total, values[:5].sum() / total, values[:5].mean() / values[10:].mean(), total / between]


def of_clusters(x: Floats, y: Floats, member: Floats, gram: Floats, extra: int) -> list[float]:
    """K-means with further clusters beside the classes: their rows, and how distinct they are, over that of classes."""
    way, labelled, count = len(member), len(y), len(x)
    centres = member**2 @ x
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    nearest = (x @ centres.T).max(axis=1)
    nearest[:labelled] = 2.0
    for _ in range(extra):
        around = np.argsort(-gram[nearest.argmin()])[:7]
        centre = x[around].mean(axis=0)
        centres = np.vstack([centres, centre / max(np.linalg.norm(centre), 1e-12)])
        nearest = np.maximum(nearest, x @ centres[-1])
        nearest[around] = 2.0
    for _ in range(12):
        where = (x @ centres.T).argmax(axis=1)
        where[:labelled] = y
        one_hot = np.eye(len(centres))[:, where]
        centres = one_hot @ x
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    cosine = to_others(one_hot, gram)
    own = cosine[where, np.arange(count)]
    cosine[where, np.arange(count)] = -2.0
    apart = own - cosine[:way].max(axis=0)  # from the nearest other class
    in_class = where < way
    usual = max(float(apart[in_class].mean()), 1e-3)
    rows = [(where == j).sum() for j in range(way, len(centres))]
    distinct = [float(apart[where == j].mean()) / usual if n > 1 else 0.0 for j, n in enumerate(rows, way)]
    sums = [float(np.sum(np.array(rows) * (np.array(distinct) > limit))) / count for limit in (0.3, 0.5, 0.7, 0.9)]
    torn = float((cosine[way:, :labelled].max(axis=0) > own[:labelled]).mean())  # labelled rows nearer to a further one
    return [*sums, sum(rows) / count, float(np.average(distinct, weights=np.array(rows) + 1e-9)), max(distinct), torn]


# --- tables ---------------------------------------------------------------------------------------------------------


def table(pools: list[Kind], rejected: Floats, title: str) -> str:
    """One line for each number of shots: mean share rejected, percent, and in brackets kinds of pool that are off."""
    cells: dict[tuple[str, str, str, float], list[float]] = {}
    for kind, value in zip(pools, rejected, strict=True):
        cells.setdefault(kind.cell, []).append(float(value))
    lines = []
    for shots in SHOTS:
        line = [title, shots]
        for share in SHARES:
            means = [np.mean(values) for cell, values in cells.items() if cell[2:] == (shots, share)]
            values = [value for cell, found in cells.items() if cell[2:] == (shots, share) for value in found]
            off = sum(abs(mean - 100 * share) > (10 if share else 3) for mean in means)
            line.append(f"{np.mean(values):.1f} ({off} of {len(means)})" if values else "")
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def sources(text: Path | None) -> dict[str, Source]:
    """Banks of validation and base classes, made clusters, digits and, where given, sentences of validation intents."""
    found = {name: Source(load(file_of(stem)), base_of(name)) for name, stem in BANKS.items()}
    found |= {name: Source(made(name)) for name in ("made 64", "made 384", "made uneven", "made gamma", "digits")}
    return found | ({"text": Source(load(text))} if text else {})


def best_possible(pools: list[Kind], known: list[list[float]], folds: Any) -> tuple[Floats, Floats]:
    """Cross-validated share of strangers by boosted trees [n], and what is rejected by it, percent."""
    shares = np.array([kind.share for kind in pools])
    trees = HistGradientBoostingRegressor(max_iter=250, learning_rate=0.05, max_leaf_nodes=12, l2_regularization=5.0)
    features = np.unique([kind.cell[0] for kind in pools], return_inverse=True)[1]
    found = cross_val_predict(trees, np.nan_to_num(np.array(known)), shares, groups=features, cv=folds)
    estimate = np.maximum(found, 0.0)
    rejected = np.zeros(len(pools))
    for shots in SHOTS.values():
        chosen = np.array([kind.shot in shots for kind in pools])
        closed = np.sort([0.0, *estimate[chosen & (shares == 0)]])[::-1]
        limit = closed[min(np.searchsorted(np.cumsum(closed) / len(closed), 0.02), len(closed) - 1)]
        rejected[chosen] = 100 * np.where(estimate[chosen] > limit, estimate[chosen], 0.0)
    return estimate, rejected


def main() -> None:
    """Draw pools and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("shares", "bound"))
    parser.add_argument("--text", type=Path, help="a bank of signed features")
    parser.add_argument("--pools", type=int, default=4_000, help="to be drawn; some 15 a second")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    banks, rng = sources(given.text), np.random.default_rng(given.seed)
    pools: list[Kind] = []
    found: list[list[float]] = []
    for kind in islice(kinds(banks, rng), given.pools):
        pool = solved(drawn(kind, banks[kind.bank], rng))
        found.append([pool.rejected(limit) for limit in LIMITS] if given.what == "shares" else statistics(pool))
        pools.append(kind)
    print(f"{len(pools):,} pools\n")
    print("| | shots | " + " | ".join(f"{share:.0%} strangers" for share in SHARES) + " |\n" + "|---" * 6 + "|")
    if given.what == "shares":
        for number, limit in enumerate(LIMITS):
            print(table(pools, np.array(found)[:, number], f"doubt up to {limit:g}"))
        return
    shares = np.array([kind.share for kind in pools])
    told = []
    seen = {"the same banks": KFold(5, shuffle=True, random_state=0), "other features": LeaveOneGroupOut()}
    for title, folds in seen.items():
        estimate, rejected = best_possible(pools, found, folds)
        print(table(pools, rejected, f"trees, {title}"))
        for name, shots in SHOTS.items():
            chosen = np.array([kind.shot in shots for kind in pools])
            pairs = [chosen & ((shares == 0) | (shares == share)) for share in SHARES[1:]]
            areas = [f"{100 * roc_auc_score(shares[pair] > 0, estimate[pair]):.1f}" for pair in pairs]
            told.append(f"trees, {title}, {name} shots, AUROC of 20, 35, 50 % against none: " + ", ".join(areas))
    print("\n" + "\n".join(told))


if __name__ == "__main__":
    main()
