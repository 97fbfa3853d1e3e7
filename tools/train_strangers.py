"""Train the network that tells how many rows of a pool are strangers, and which, from the clues of its rows.

    python tools/train_strangers.py pools-*.pt --minutes 4.5 --out FIRST.npz
    python tools/train_strangers.py pools-*.pt --minutes 3 --batch 256 --start FIRST.npz --rounds 3 --out SECOND.npz
    python tools/train_strangers.py pools-*.pt --minutes 2 --without cub      how it does on features it has not seen

The pools are those of `draw_stranger_pools.py`: validation and base classes, sentences of validation intents, made
clusters and letters. Every twelfth batch of pools, as a GPU draws them, is kept for the table. It has the mean share of
rejected rows, percent, by kind of features, labels per class and true share, at a limit of the log odds above which
strangers are believed in. What estimators add for classes in pieces is not in it: `measure_unknown.py` measures that.
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
from draw_stranger_pools import KINDS, META, SUPPORTS
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from sinkshot.estimators.stranger_network import BELIEF, SHARES

Floats = NDArray[Any]
LEAST_ROWS = 150  # of pools in the table; smaller ones are learned from
SHOTS = {"1": (1,), "2, 3": (2, 3), "5": (5,), "10": (10,)}
OPEN = (0.2, 0.35, 0.5)
MOST_CLASSES = 64
RATE = 2e-3  # of learning, at most
ALIKE = 2_000  # pools of about one size, from which batches are drawn
SMOOTH = 0.04  # width of the target around the true share
BLOCKS = {"row1": 0, "row2": 1, "seen": 7, "moved": 1, "compared": 1, "values": 1}
BLOCKS |= {"classes": 2, "stranger": 1, "pool1": 5, "pool2": 1}
"""How often a layer reads all units; the rest of what it reads are clues."""
HEADS, KEY = 4, 16  # of each round's attention, and how many numbers the rows are compared by
SHARPNESS = (0.3, 0.7, 1.2, 0.0)  # of the heads, at the start: the first looks far, the last not by closeness


class Network(nn.Module):
    """`sinkshot.estimators.stranger_network` in torch, for batches of pools whose missing rows have class -1."""

    def __init__(self, of_rows: int, of_pool: int, width: int, rounds: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.row1, self.row2 = nn.Linear(of_rows + of_pool, width), nn.Linear(width, width)
        seen = [nn.Linear(7 * width, width) for _ in range(rounds)]
        self.compared = nn.ModuleList(nn.Linear(width, 2 * HEADS * KEY) for _ in range(rounds))
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.by_closeness = nn.ParameterList(torch.tensor(SHARPNESS) for _ in range(rounds))
        self.by_class = nn.ParameterList(torch.zeros(HEADS) for _ in range(rounds))
        self.seen, self.moved = nn.ModuleList(seen), nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.classes, self.stranger = nn.Linear(2 * width, width), nn.Linear(width, 1)
        self.pool1, self.pool2 = nn.Linear(5 * width + of_pool, width), nn.Linear(width, len(SHARES))
        self.dropout = nn.Dropout(dropout)
        for name, size in (("row", of_rows), ("pool", of_pool)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_spread", torch.ones(size))

    def forward(self, given: tuple[Tensor, ...], supports: int) -> tuple[Tensor, Tensor]:
        """Return logits of the shares [B, 14] and of each row being a stranger [B, N]; labelled rows are the first."""
        rows, classes, pool, links, weights, closeness = given
        count = rows.shape[1]
        there = (classes >= 0).float()
        first = (torch.arange(count, device=rows.device) < supports).float()
        labelled, free = there * first, there * (1 - first)
        of_rows = ((rows.float() - self.row_mean) / self.row_spread).clamp(-4, 4)
        of_pool = ((pool - self.pool_mean) / self.pool_spread).clamp(-4, 4)
        h = self.row1(torch.cat([of_rows, of_pool[:, None].expand(-1, count, -1)], dim=2)).relu()
        h = self.row2(h).relu()
        member = nn.functional.one_hot(classes.long().clamp(min=0), MOST_CLASSES).to(h.dtype)
        of_free, of_labelled = member * free[..., None].to(h.dtype), member * labelled[..., None].to(h.dtype)
        sizes = of_free.sum(dim=1)[..., None] + 1, of_labelled.sum(dim=1)[..., None].clamp(min=1)
        walk = walks_to(links, weights, h.dtype)
        near, same = closeness.to(h.dtype)[:, None] / 10, (member @ member.mT)[:, None]
        hidden = ~(there.bool()[:, None, :] & ~torch.eye(count, dtype=torch.bool, device=rows.device))[:, None]

        def means_of_classes() -> Tensor:  # [B, classes, 2 width]
            return torch.cat([of_free.mT @ h / sizes[0], of_labelled.mT @ h / sizes[1]], dim=2)

        def attended(turn: int) -> Tensor:
            query, key = self.compared[turn](h).unflatten(2, (2, HEADS, KEY)).permute(2, 0, 3, 1, 4)
            logits = query @ key.mT / math.sqrt(KEY)
            logits = logits + self.by_closeness[turn].to(h.dtype)[:, None, None] * near
            logits = logits + self.by_class[turn].to(h.dtype)[:, None, None] * same
            chance = logits.masked_fill(hidden, -1e4).softmax(dim=3)  # [B, HEADS, N, N]
            value = self.values[turn](h).unflatten(2, (HEADS, -1)).transpose(1, 2)
            return (chance @ value).transpose(1, 2).flatten(2)

        for turn, (seen, moved) in enumerate(zip(self.seen, self.moved, strict=True)):
            whole = torch.cat([mean_of(h, free), mean_of(h, labelled)], dim=1).to(h.dtype)
            parts = [h, member @ means_of_classes(), walk @ h, whole[:, None].expand(-1, count, -1), attended(turn)]
            h = h + moved(seen(torch.cat(parts, dim=2)).relu()).relu()
        logits = self.stranger(h)[..., 0]
        mean = mean_of(h, free)
        spread = (mean_of((h - mean[:, None]) ** 2, free) + 1e-4).sqrt()
        in_pool = (of_labelled.sum(dim=1) > 0).float()
        of_classes = mean_of(self.classes(means_of_classes()).relu(), in_pool)
        likely = mean_of(h, logits.sigmoid() * free)
        told = torch.cat([mean, spread, mean_of(h, labelled), of_classes, likely, of_pool], dim=1)
        return self.pool2(self.pool1(self.dropout(told)).relu()), logits


@dataclass(frozen=True)
class Alike:
    """Pools of about one size, so that a batch of them has few empty places."""

    numbers: Tensor
    supports: int  # labelled rows of the pool that has most
    others: int

    def batch(self, pools: list[Tensor], pick: Tensor) -> Batch:
        """Take some of the pools, without the places that are empty in all of them."""
        rows, classes, strange, of_pool, links, weights, closeness, meta = (each[self.numbers[pick]] for each in pools)

        def kept(values: Tensor, dim: int = 1) -> Tensor:
            parts = values.narrow(dim, 0, self.supports), values.narrow(dim, SUPPORTS, self.others)
            return torch.cat(parts, dim=dim)

        links = torch.where(links >= SUPPORTS, links - SUPPORTS + self.supports, links)
        links = links.long().clamp(max=self.supports + self.others - 1)  # those of weight zero may lead nowhere
        given = kept(rows), kept(classes), of_pool, kept(links), kept(weights), kept(kept(closeness), 2)
        return Batch(given, self.supports, kept(strange), meta[:, META.index("share")])


@dataclass(frozen=True)
class Batch:
    """Pools to learn from together."""

    given: tuple[Tensor, ...]  # what the network takes
    supports: int
    strange: Tensor  # [B, N]
    share: Tensor  # [B]


def walks_to(links: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the matrices [B, N, N] of weights that links to rows have."""
    batch, count, _ = links.shape
    found = torch.zeros(batch, count, count, device=links.device, dtype=dtype)
    return found.scatter_add_(2, links.long(), weights.to(dtype) / 255)


def by_size(pools: list[Tensor], chosen: Tensor, most: int) -> list[Alike]:
    """Sort pools by their sizes, and return up to `most` of about one size at a time."""
    there = pools[1] >= 0
    labelled, others = there[:, :SUPPORTS].sum(dim=1), there[:, SUPPORTS:].sum(dim=1)
    ordered = chosen[torch.argsort(1000 * (labelled + others)[chosen] + labelled[chosen], stable=True)]
    return [Alike(each, int(labelled[each].max()), int(others[each].max())) for each in ordered.split(most)]


def mean_of(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean [B, width] of values [B, n, width]; weights below one in all count as one."""
    return (values * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def joined(parts: tuple[Tensor, ...], device: str) -> Tensor:
    """Join tensors on a device, which need not hold them twice."""
    found = torch.empty(sum(map(len, parts)), *parts[0].shape[1:], dtype=parts[0].dtype, device=device)
    for place, part in zip(found.split([len(each) for each in parts]), parts, strict=True):
        place.copy_(part)
    return found


def new_network(pools: list[Tensor], chosen: Tensor, width: int, rounds: int) -> Network:
    """Return a network without any knowledge, on the scale of the chosen pools."""
    rows, classes, _, of_pool, *_ = pools
    net = Network(rows.shape[2], of_pool.shape[1], width, rounds).to(rows.device)
    some = chosen[torch.randperm(len(chosen), device=rows.device)[:2_000]]
    there = rows[some].float()[classes[some] >= 0]
    net.row_mean.copy_(there.mean(dim=0))
    net.row_spread.copy_(there.std(dim=0) + 1e-3)
    net.pool_mean.copy_(of_pool[chosen].mean(dim=0))
    net.pool_spread.copy_(of_pool[chosen].std(dim=0) + 1e-3)
    return net


def stored_network(path: Path, width: int, rounds: int) -> Network:
    """Read the weights of a network, and let it grow where it has fewer units or rounds."""
    with np.load(path) as file:
        weights = {name: torch.tensor(np.float32(file[name])) for name in file.files}
    return network_of(grown(weights, width, rounds))


def grown(weights: dict[str, Tensor], width: int, rounds: int) -> dict[str, Tensor]:
    """Return weights of a network with more units and rounds that says nearly the same.

    What was there hardly reads the new units, and new rounds add little.
    """
    before = len(weights["row2.bias"])
    net = Network(len(weights["row_mean"]), len(weights["pool_mean"]), width, rounds)
    found = {name: value.clone() for name, value in net.state_dict().items()}
    for name, fresh in found.items():
        if name.startswith("moved") and name not in weights:
            fresh *= 0.1
    for name, old in weights.items():
        fresh = found[name][: len(old)]
        if old.ndim == 1:
            found[name].zero_()[: len(old)] = old
            continue
        blocks = BLOCKS[name.split(".")[0]]
        read = min(blocks, old.shape[1] // before)
        for block in range(blocks):
            units = fresh[:, block * width : (block + 1) * width]
            units[:, before if block < read else 0 :] *= 0.03
            if block < read:
                units[:, :before] = old[:, block * before : (block + 1) * before]
        fresh[:, blocks * width :] = old[:, read * before :]
    return found


def network_of(weights: dict[str, Tensor]) -> Network:
    """Return the network that has these weights."""
    width, rounds = len(weights["row1.bias"]), sum(name.startswith("seen.") for name in weights) // 2
    net = Network(len(weights["row_mean"]), len(weights["pool_mean"]), width, rounds)
    net.load_state_dict(weights)
    return net


def trained(
    net: Network, pools: list[Tensor], chosen: Tensor, seconds: float, rate: float, batch: int, out: Path | None
) -> Network:
    """Train on the chosen pools for some time; the weights are written every 30 seconds, and at the end."""
    where = pools[0].device
    shares = torch.tensor(SHARES[1:], device=where)
    optimiser = torch.optim.AdamW(net.parameters(), weight_decay=1e-3, fused=True)
    sizes = by_size(pools, chosen, ALIKE)
    begin, steps, written = time.monotonic(), 0, 0
    while (done := (time.monotonic() - begin) / seconds) < 1:
        optimiser.param_groups[0]["lr"] = rate * min(1, steps / 100) * 0.5 * (1 + math.cos(math.pi * done)) + 1e-6
        alike = sizes[int(torch.randint(len(sizes), (1,)))]
        drawn = alike.batch(pools, torch.randint(len(alike.numbers), (batch,), device=where))
        with torch.autocast(where.type, torch.bfloat16):
            logits, of_rows = (each.float() for each in net(drawn.given, drawn.supports))
        share = drawn.share
        target = torch.exp(-0.5 * ((shares - share[:, None]) / SMOOTH) ** 2)
        target = torch.cat([torch.zeros_like(target[:, :1]), target / target.sum(dim=1, keepdim=True)], dim=1)
        target[share == 0] = torch.eye(len(SHARES), device=where)[0]
        loss = nn.functional.cross_entropy(logits, target)
        free = (drawn.given[1] >= 0) & (torch.arange(of_rows.shape[1], device=where) >= drawn.supports)
        wrong = nn.functional.binary_cross_entropy_with_logits(of_rows, drawn.strange.float(), reduction="none")
        loss = loss + 0.5 * ((wrong * free).sum(dim=1) / free.sum(dim=1)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        steps += 1
        if out and time.monotonic() > begin + 30 * (written + 1):
            written += 1
            write(net, out)
            print(f"{30 * written} s, {steps:,} steps, loss {loss.item():.3f}", flush=True)
    if out:
        write(net, out)
    print(f"{len(chosen):,} pools, {steps:,} steps of {batch}, last loss {loss.item():.3f}", flush=True)
    return net.eval()


def write(net: Network, path: Path) -> None:
    """Write the weights, matrices in half precision."""
    weights = {name: value.cpu().numpy() for name, value in net.state_dict().items()}
    halves = {name: value.astype(np.float16 if value.ndim > 1 else np.float32) for name, value in weights.items()}
    np.savez_compressed(path, **halves)


@torch.no_grad()
def told(net: Network, pools: list[Tensor], chosen: Tensor) -> tuple[Floats, Floats]:
    """Log odds of strangers in each pool, and their share if there are any."""
    logarithm = torch.zeros(len(pools[0]), len(SHARES)).double()
    for alike in by_size(pools, chosen, 128):
        drawn = alike.batch(pools, torch.arange(len(alike.numbers), device=chosen.device))
        logits, _ = net(drawn.given, drawn.supports)
        logarithm[alike.numbers.cpu()] = logits.log_softmax(dim=1).double().cpu()
    logarithm = logarithm[chosen.cpu()]
    share = logarithm[:, 1:].softmax(dim=1) @ torch.tensor(SHARES[1:]).double()
    odds = torch.logsumexp(logarithm[:, 1:], dim=1) - logarithm[:, 0]
    return odds.numpy(), share.numpy()


def table(odds: Floats, share: Floats, meta: Floats, limit: float) -> None:
    """Print one line for each kind of features and number of labels."""
    kind, altered, _, shot, rows, _, truth = meta.T
    rejected = 100 * replace(BELIEF, limit=limit).share(odds, share, np.maximum(shot, 1), 0)
    print("| features | labels | pools | 0% strangers | " + " | ".join(f"{s:.0%} (AUROC)" for s in OPEN) + " |")
    print("|---" * 7 + "|")
    for number, name in enumerate(KINDS):
        for new in (0, 1):
            for title, shots in SHOTS.items():
                here = (kind == number) & (altered == new) & np.isin(shot, shots) & (rows >= LEAST_ROWS)
                closed = here & (truth == 0)
                if closed.sum() < 20:
                    continue
                cells = [f"{rejected[closed].mean():.1f}"]
                for wanted in OPEN:
                    some = here & (np.abs(truth - wanted) < 0.011)
                    both = closed | some
                    area = roc_auc_score(truth[both] > 0, odds[both]) if some.any() else math.nan
                    cells.append(f"{rejected[some].mean():.1f} ({100 * area:.1f})" if some.any() else "")
                words = name + (", altered" if new else "")
                print(f"| {words} | {title} | {here.sum():,} | " + " | ".join(cells) + " |")


def main() -> None:
    """Train, print the table and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--width", type=int, default=96, help="units of each layer")
    parser.add_argument(
        "--rounds", type=int, default=2, help="in which rows look at their class, the rows near to them and the pool"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start", type=Path, help="weights to go on from, at half the rate; they may be of fewer units"
    )
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--without", choices=list(KINDS), help="a kind of features that is only in the table")
    parser.add_argument(
        "--limits", type=float, nargs="+", default=[BELIEF.limit], help="of log odds with many labels, each a table"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    files = [torch.load(path, weights_only=True, mmap=True) for path in given.pools]
    pools = [joined(parts, device) for parts in zip(*files, strict=True)]
    meta = pools[-1].cpu().numpy()
    kinds = list(KINDS)
    unseen = meta[:, 0] == kinds.index("digits")
    if given.without:
        unseen |= meta[:, 0] == kinds.index(given.without)
    kept = np.arange(len(meta)) // 32 % 12 == 0
    learned = torch.tensor(np.flatnonzero(~unseen & ~kept), device=device)
    if given.start:
        net = stored_network(given.start, given.width, given.rounds).to(device)
    else:
        net = new_network(pools, learned, given.width, given.rounds)
    rate = RATE / 2 if given.start else RATE
    net = trained(net, pools, learned, 60 * given.minutes, rate, given.batch, given.out)
    shown = np.flatnonzero(unseen if given.without else kept | unseen)
    odds, share = told(net, pools, torch.tensor(shown, device=device))
    for limit in given.limits:
        print(f"\nLimit of the log odds: {limit:g}\n")
        table(odds, share, meta[shown], limit)


if __name__ == "__main__":
    main()
