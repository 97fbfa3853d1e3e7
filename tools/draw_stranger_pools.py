"""Draw pools with and without strangers from many kinds of features, and store their clues, to train on.

    python tools/draw_stranger_pools.py SOURCES pools-1.pt --seconds 840 --seed 31

SOURCES is a folder of `make_stranger_sources.py`; no novel class is in it. Half of the pools of a source are drawn from
altered features: fewer columns, more noise, classes nearer together or further apart, another power, principal
components. So a network that learns from them sees far more kinds of features than there are sources. Made clusters
are drawn anew for every batch. A GPU draws some 2,000 pools a second in ten processes, a processor core 20.
docs/strangers.md has the files that the network that we ship learned from.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from choose_unknown import counts
from numpy.typing import NDArray
from torch import Tensor

from sinkshot.estimators.stranger_network import LINKS
from sinkshot.methods.stranger_clues import stranger_clues
from sinkshot.preprocess import apply
from sinkshot.task import Task

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {"cifar": 26, "cub": 13, "litecifar": 9, "litecub": 7, "text": 8, "lsa": 4, "made": 12, "glyph": 5}
KINDS |= {"poor": 2, "digits": 1, "headcifar": 15, "headcub": 12}
"""How often pools are drawn from each kind of features; nothing is learned from digits."""
WAYS = (2, 3, 5, 5, 5, 5, 8, 10, 10, 15, 20, 30)
SIZES = {"balanced": 0.25, "2": 0.15, "0.7": 0.35, "long tail": 0.2, "absent": 0.05}
SUPPORTS, QUERIES = 100, 220  # rows of a pool that are stored, at most
SHRINKAGE = 10.0  # of the step W
META = ("kind", "altered", "way", "shot", "rows", "sizes", "share")


@dataclass(frozen=True)
class Source:
    """Features of one bank, and what Mb and Wb need of base classes."""

    kind: str
    x: Tensor  # [n, d]
    labels: NDArray[np.int64]  # [n]
    base_mean: Tensor | None = None  # [d], behind PE
    whitening: Tensor | None = None  # [d, d], behind PEMbE


@dataclass(frozen=True)
class Plan:
    """The size of the pools of one batch."""

    shots: NDArray[np.int64]  # labels of each class
    rows: int
    sizes: str

    @property
    def way(self) -> int:
        """Classes."""
        return len(self.shots)


def sources(folder: Path) -> list[Source]:
    """Read the sources of a folder; the kind is the first word of the file name."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            mean, whitening = (on_device(file[name]) if name in file else None for name in ("base_mean", "whitening"))
            kind, labels = path.stem.split("_")[0], file["labels"].astype(np.int64)
            found.append(Source(kind, on_device(file["x"]), labels, mean, whitening))
    return found


def on_device(values: NDArray[Any]) -> Tensor:
    """Bring an array to the device, in single precision."""
    return torch.tensor(np.float32(values), device=DEVICE)


def unit_length(x: Tensor) -> Tensor:
    """Scale rows to unit length."""
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def altered(x: Tensor, labels: NDArray[np.int64], rng: np.random.Generator, noise: torch.Generator) -> Tensor:
    """Return features of another kind made from these."""
    sign = bool((x < 0).any())
    least = -math.inf if sign else 0.0
    if rng.random() < 0.35:
        width = int(np.exp(rng.uniform(np.log(24), np.log(max(x.shape[1], 25)))))
        x = x[:, torch.tensor(rng.permutation(x.shape[1])[:width], device=DEVICE)]
    if rng.random() < 0.45:
        codes = torch.tensor(labels, device=DEVICE)
        means = torch.zeros(int(labels.max()) + 1, x.shape[1], device=DEVICE).index_add_(0, codes, x)
        means = means / torch.bincount(codes)[:, None]
        x = (x + rng.uniform(-0.5, 0.5) * (means[codes] - x)).clamp(min=least)
    if rng.random() < 0.35:
        x = x + rng.uniform(0, 0.9) * x.std() * torch.randn(x.shape, device=DEVICE, generator=noise)
        x = x.clamp(min=least)
    if not sign and rng.random() < 0.3:
        x = x ** rng.uniform(0.6, 1.7)
    if rng.random() < 0.15:
        kept = min(int(np.exp(rng.uniform(np.log(8), np.log(128)))), x.shape[1] - 1, len(x) - 1)
        centred = x - x.mean(dim=0)
        x = centred @ torch.svd_lowrank(centred, q=kept, niter=3)[2]
    return x


def merged(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Join classes two by two, so that a class has two kinds of rows."""
    place = np.argsort(rng.permutation(int(labels.max()) + 1))
    return place[labels] // 2


def made_clusters(rng: np.random.Generator, noise: torch.Generator) -> Source:
    """Make classes: of gamma features, or normal ones of unequal spread, in groups, long in some directions."""
    classes = int(rng.choice([20, 30, 40, 60]))
    each = 60 if classes == 60 else int(rng.choice([60, 100, 150]))
    width = int(np.exp(rng.uniform(np.log(12), np.log(512))))
    labels = np.repeat(np.arange(classes), each)
    codes = torch.tensor(labels, device=DEVICE)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE, generator=noise)

    if rng.random() < 0.25:
        some = torch.rand(classes, width, device=DEVICE, generator=noise) < rng.uniform(0.1, 0.4)
        return Source("made", torch._standard_gamma(1 + rng.uniform(1, 4) * some[codes].float()), labels)
    apart = np.exp(rng.uniform(np.log(1.5), np.log(9))) * width ** (rng.uniform(0, 0.25) - 0.5)
    means = apart * normal(classes, width)
    if rng.random() < 0.3:
        group = torch.tensor(rng.integers(0, 5, classes), device=DEVICE)
        means = means + apart * rng.uniform(0.3, 1) * normal(5, width)[group]
    spread = torch.tensor(np.exp(rng.normal(0, rng.choice([0, 0.2, 0.35]), classes)), device=DEVICE).float()
    around = normal(len(labels), width)
    if rng.random() < 0.4:
        directions = int(rng.integers(1, 6))
        long = normal(classes, directions, width) * (3 * rng.uniform(0.5, 2.5) / math.sqrt(directions * width))
        around = around + torch.einsum("nr,nrd->nd", normal(len(labels), directions), long[codes])
    if rng.random() < 0.3:  # heavy tails: Student's distribution of six degrees of freedom
        squares = normal(len(labels), 6).square().mean(dim=1, keepdim=True)
        around = around / squares.sqrt()
    x = means[codes] + spread[codes][:, None] * around
    return Source("made", x.clamp(min=0) if rng.random() < 0.3 else x, labels)


def drawn_plan(rng: np.random.Generator) -> Plan:
    """Draw the size of pools."""
    way = int(rng.choice(WAYS))
    rows = int(rng.choice([75, 100, 150, 200, 200, 300, 300, 400, 600]))
    shots = np.full(way, rng.choice([1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 5, 10]))
    if rng.random() < 0.1:
        shots = rng.integers(1, 11, way)
    return Plan(shots, max(rows, 4 * way), str(rng.choice(list(SIZES), p=list(SIZES.values()))))


def fits(plan: Plan, source: Source) -> bool:
    """Whether the source has enough classes and rows."""
    rows_of = np.bincount(source.labels)
    room = plan.way * rows_of.min() - plan.shots.sum()
    return plan.way < len(rows_of) and room >= {"balanced": 1, "absent": 2}.get(plan.sizes, 1.4) * plan.rows


def known_counts(rng: np.random.Generator, sizes: str, total: int, room: NDArray[Any]) -> NDArray[Any]:
    """Unlabelled rows of each class."""
    if sizes != "absent":
        return counts(rng, sizes, total, room)
    there = np.zeros(len(room), bool)
    there[rng.permutation(len(room))[: max(1, round(0.7 * len(room)))]] = True
    if room[there].sum() < total:
        there[:] = True
    return counts(rng, "2", total, np.where(there, room, 0))


def prepared(source: Source, x: Tensor, same: bool, plan: Plan, rng: np.random.Generator) -> tuple[Tensor, str]:
    """Run the row-wise steps of a chain that estimators use, and return the steps that need the pool."""
    if bool((x < 0).any()) or source.kind in ("glyph", "digits") or (source.kind == "poor" and x.shape[1] == 192):
        rooted = source.kind in ("glyph", "digits") and bool((x >= 0).all()) and rng.random() < 0.3
        return unit_length((x + 1e-6).sqrt() if rooted else x), "McE"
    x = unit_length((x.clamp(min=0) + 1e-6).sqrt())
    steps = str(rng.choice(["McE", "McE", "McEWE", "MbE", "MbEWbE"]))
    if steps.startswith("Mc") or (source.base_mean is None and source.kind not in ("cifar", "cub", "made")):
        return x, "McEWE" if steps == "McEWE" and plan.shots.mean() >= 3 else "McE"
    mean = source.base_mean if same and source.base_mean is not None else x.mean(dim=0)
    x = unit_length(x - mean)
    if steps == "MbEWbE" and same and source.whitening is not None:
        x = unit_length(x @ source.whitening)
    return x, ""


def whitened(x: Tensor) -> Tensor:
    """Run the step W with products of matrices alone (Newton and Schulz), which a GPU does quickly."""
    _, count, width = x.shape
    centred = x - x.mean(dim=1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / count
    level = SHRINKAGE * covariance.diagonal(dim1=1, dim2=2).sum(dim=1) / max(1, min(count - 1, width))
    plain = torch.eye(width, device=DEVICE)[None]
    matrix = plain + covariance / level.clamp(min=1e-12)[:, None, None]
    largest = torch.linalg.matrix_norm(matrix)[:, None, None]
    root, inverse = matrix / largest, plain.expand_as(matrix)
    for _ in range(9):
        step = 0.5 * (3 * plain - inverse @ root)
        root, inverse = root @ step, step @ inverse
    return x @ (inverse / largest.sqrt())


def batch(
    folder: list[Source], pools: int, rng: np.random.Generator, noise: torch.Generator, joined: float = 0.0
) -> list[Any]:
    """Draw pools of one size from one source.

    Returns clues of stored rows [pools, rows, 35], their classes, -1 where there is no row, whether they are strangers,
    clues of the pools, the links of each row [pools, rows, LINKS] and their weights, and one line of META for each.
    """
    chance = np.array(list(KINDS.values())) / sum(KINDS.values())
    fitting: list[Source] = []
    while not fitting:  # size first, or pools of few ways would be rare, as many sources have small classes
        plan, kind = drawn_plan(rng), str(rng.choice(list(KINDS), p=chance))
        own = [made_clusters(rng, noise)] if kind == "made" else [each for each in folder if each.kind == kind]
        same = kind in ("made", "digits") or rng.random() < 0.5
        if joined and not same and rng.random() < joined:
            own = [replace(each, labels=merged(each.labels, rng)) for each in own]
        fitting = [each for each in own if fits(plan, each)]
    source = fitting[rng.integers(len(fitting))]
    x = source.x if same else altered(source.x, source.labels, rng, noise)
    x, steps = prepared(source, x, same, plan, rng)
    drawn = [pool_of(source.labels, plan, rng) for _ in range(pools)]
    numbers, strange = (np.stack(each) for each in zip(*drawn, strict=True))
    supports = int(plan.shots.sum())
    labels = torch.tensor(np.tile(np.repeat(np.arange(plan.way), plan.shots), (pools, 1)), device=DEVICE)
    rows = x[torch.tensor(numbers, device=DEVICE)]
    if steps:
        task = apply(Task(rows[:, :supports], labels, rows[:, supports:], plan.way), "McE")
        rows = torch.cat([task.support, task.query], dim=1)
        rows = unit_length(whitened(rows)) if steps == "McEWE" else rows
    clues = stranger_clues(rows, labels, plan.way)
    stored = np.full(SUPPORTS + QUERIES, -1)
    some = rng.permutation(supports)[:SUPPORTS]
    stored[: len(some)] = some
    some = supports + rng.permutation(plan.rows)[:QUERIES]
    stored[SUPPORTS : SUPPORTS + len(some)] = some
    there = torch.tensor(stored >= 0, device=DEVICE)
    at = torch.tensor(np.maximum(stored, 0), device=DEVICE)
    everywhere = np.concatenate([np.zeros((pools, supports), bool), strange], axis=1)
    classes = torch.where(there, clues.nearest[:, at], -1).to(torch.int8)
    share = strange.mean(axis=1)
    shot = 0 if plan.shots.std() else int(plan.shots[0])
    line = [list(KINDS).index(kind), not same, plan.way, shot, plan.rows, list(SIZES).index(plan.sizes)]
    meta = np.array([[*line, share[i]] for i in range(pools)], np.float32)
    of_strangers = torch.tensor(everywhere, device=DEVICE)[:, at] & there
    weights, links = (clues.walk[:, at][:, :, at] * there).topk(LINKS, dim=2)
    weights = 255 * weights / weights.sum(dim=2, keepdim=True).clamp(min=1e-6)
    linked = [links.to(torch.int16), weights.round().to(torch.uint8)]
    return [clues.rows[:, at].half(), classes, of_strangers.to(torch.int8), clues.pool.float(), *linked, meta]


def pool_of(labels: NDArray[np.int64], plan: Plan, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Draw one pool: numbers of its rows [l + rows], labelled ones first, and which others are strangers [rows]."""
    order = rng.permutation(int(labels.max()) + 1)
    by_class = [rng.permutation(np.flatnonzero(labels == number)) for number in order]
    known, others, outside = by_class[: plan.way], by_class[plan.way :], 0
    if rng.random() < 0.6:
        share = float(rng.choice([0.2, 0.35, 0.5])) if rng.random() < 0.7 else rng.uniform(0.05, 0.65)
        others = others[: int(rng.choice([1, 2, 3, 5, 5, 8, 10, 20]))]
        outside = round(share * plan.rows) if sum(map(len, others)) >= share * plan.rows else 0
    room = np.array([len(numbers) - shot for numbers, shot in zip(known, plan.shots, strict=True)])
    found = [numbers[:shot] for numbers, shot in zip(known, plan.shots, strict=True)]
    inside = known_counts(rng, plan.sizes, plan.rows - outside, room)
    found += [n[shot : shot + count] for n, shot, count in zip(known, plan.shots, inside, strict=True)]
    if outside:
        sizes = "balanced" if plan.sizes == "balanced" else "2"
        parts = counts(rng, sizes, outside, np.array([len(numbers) for numbers in others]))
        found += [numbers[:count] for numbers, count in zip(others, parts, strict=True)]
    return np.concatenate(found), np.arange(plan.rows) >= plan.rows - outside


def main() -> None:
    """Draw pools for some time, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--joined", type=float, default=0.0, help="share of altered batches with classes of two kinds")
    given = parser.parse_args()
    folder, rng = sources(given.sources), np.random.default_rng(given.seed)
    noise = torch.Generator(device=DEVICE).manual_seed(given.seed)
    begin, found = time.monotonic(), []
    while time.monotonic() - begin < given.seconds:
        found.append(batch(folder, 32 if DEVICE == "cuda" else 16, rng, noise, given.joined))
    *tensors, meta = zip(*found, strict=True)
    stored = [torch.cat(each) for each in tensors]
    finite = torch.isfinite(stored[0]).all(dim=2).all(dim=1) & torch.isfinite(stored[3]).all(dim=1)
    stored.append(torch.tensor(np.concatenate(meta), device=DEVICE))
    torch.save([each[finite].cpu() for each in stored], given.out)
    print(f"{len(finite):,} pools, {int((~finite).sum())} with clues that are not finite")


if __name__ == "__main__":
    main()
