"""Train the network that tells how many rows of a pool are strangers, and which, from the clues of its rows.

    python tools/train_strangers.py pools-*.pt --minutes 4.5 --out FIRST.npz
    python tools/train_strangers.py pools-*.pt --minutes 12 --batch 256 --start FIRST.npz --out SECOND.npz
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
from dataclasses import replace
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
SMOOTH = 0.04  # width of the target around the true share
BLOCKS = {"row1": 0, "row2": 1, "seen": 6, "moved": 1, "classes": 2, "stranger": 1, "pool1": 5, "pool2": 1}
"""How often a layer reads all units; the rest of what it reads are clues."""


class Network(nn.Module):
    """`sinkshot.estimators.stranger_network` in torch, for batches of pools whose missing rows have class -1."""

    def __init__(self, of_rows: int, of_pool: int, width: int, rounds: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.row1, self.row2 = nn.Linear(of_rows + of_pool, width), nn.Linear(width, width)
        seen = [nn.Linear(6 * width, width) for _ in range(rounds)]
        self.seen, self.moved = nn.ModuleList(seen), nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.classes, self.stranger = nn.Linear(2 * width, width), nn.Linear(width, 1)
        self.pool1, self.pool2 = nn.Linear(5 * width + of_pool, width), nn.Linear(width, len(SHARES))
        self.dropout = nn.Dropout(dropout)
        for name, size in (("row", of_rows), ("pool", of_pool)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_spread", torch.ones(size))

    def forward(
        self, rows: Tensor, classes: Tensor, pool: Tensor, links: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits of the shares [B, 14] and of each row being a stranger [B, N]."""
        count = rows.shape[1]
        there = (classes >= 0).float()
        first = (torch.arange(count, device=rows.device) < SUPPORTS).float()
        labelled, free = there * first, there * (1 - first)
        of_rows = ((rows.float() - self.row_mean) / self.row_spread).clamp(-4, 4)
        of_pool = ((pool - self.pool_mean) / self.pool_spread).clamp(-4, 4)
        h = self.row1(torch.cat([of_rows, of_pool[:, None].expand(-1, count, -1)], dim=2)).relu()
        h = self.row2(h).relu()
        member = nn.functional.one_hot(classes.long().clamp(min=0), MOST_CLASSES).to(h.dtype)
        of_free, of_labelled = member * free[..., None].to(h.dtype), member * labelled[..., None].to(h.dtype)
        sizes = of_free.sum(dim=1)[..., None] + 1, of_labelled.sum(dim=1)[..., None].clamp(min=1)
        walk = walks_to(links, weights, h.dtype)

        def means_of_classes() -> Tensor:  # [B, classes, 2 width]
            return torch.cat([of_free.mT @ h / sizes[0], of_labelled.mT @ h / sizes[1]], dim=2)

        for seen, moved in zip(self.seen, self.moved, strict=True):
            whole = torch.cat([mean_of(h, free), mean_of(h, labelled)], dim=1).to(h.dtype)
            parts = [h, member @ means_of_classes(), walk @ h, whole[:, None].expand(-1, count, -1)]
            h = h + moved(seen(torch.cat(parts, dim=2)).relu()).relu()
        logits = self.stranger(h)[..., 0]
        mean = mean_of(h, free)
        spread = (mean_of((h - mean[:, None]) ** 2, free) + 1e-4).sqrt()
        in_pool = (of_labelled.sum(dim=1) > 0).float()
        of_classes = mean_of(self.classes(means_of_classes()).relu(), in_pool)
        likely = mean_of(h, logits.sigmoid() * free)
        told = torch.cat([mean, spread, mean_of(h, labelled), of_classes, likely, of_pool], dim=1)
        return self.pool2(self.pool1(self.dropout(told)).relu()), logits


def walks_to(links: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the matrices [B, N, N] of weights that links to rows have."""
    batch, count, _ = links.shape
    found = torch.zeros(batch, count, count, device=links.device, dtype=dtype)
    return found.scatter_(2, links.long(), weights.to(dtype) / 255)


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
        for block in range(blocks := BLOCKS[name.split(".")[0]]):
            units = fresh[:, block * width : (block + 1) * width]
            units[:, :before] = old[:, block * before : (block + 1) * before]
            units[:, before:] *= 0.03
        fresh[:, blocks * width :] = old[:, blocks * before :]
    return found


def network_of(weights: dict[str, Tensor]) -> Network:
    """Return the network that has these weights."""
    width, rounds = len(weights["row1.bias"]), sum(name.startswith("seen.") for name in weights) // 2
    net = Network(len(weights["row_mean"]), len(weights["pool_mean"]), width, rounds)
    net.load_state_dict(weights)
    return net


def trained(net: Network, pools: list[Tensor], chosen: Tensor, seconds: float, rate: float, batch: int) -> Network:
    """Train on the chosen pools for some time."""
    rows, classes, strange, of_pool, links, weights, meta = pools
    where, share = rows.device, meta[:, META.index("share")]
    shares = torch.tensor(SHARES[1:], device=where)
    optimiser = torch.optim.AdamW(net.parameters(), weight_decay=1e-3)
    begin, steps = time.monotonic(), 0
    while (done := (time.monotonic() - begin) / seconds) < 1:
        optimiser.param_groups[0]["lr"] = rate * min(1, steps / 100) * 0.5 * (1 + math.cos(math.pi * done)) + 1e-6
        pick = chosen[torch.randint(len(chosen), (batch,), device=where)]
        given = (each[pick] for each in (rows, classes, of_pool, links, weights))
        with torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cpu"):
            logits, of_rows = (each.float() for each in net(*given))
        target = torch.exp(-0.5 * ((shares - share[pick, None]) / SMOOTH) ** 2)
        target = torch.cat([torch.zeros_like(target[:, :1]), target / target.sum(dim=1, keepdim=True)], dim=1)
        target[share[pick] == 0] = torch.eye(len(SHARES), device=where)[0]
        loss = nn.functional.cross_entropy(logits, target)
        free = classes[pick] >= 0
        free[:, :SUPPORTS] = False
        wrong = nn.functional.binary_cross_entropy_with_logits(of_rows, strange[pick].float(), reduction="none")
        loss = loss + 0.5 * ((wrong * free).sum(dim=1) / free.sum(dim=1)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        steps += 1
    print(f"{len(chosen):,} pools, {steps:,} steps of {batch}, last loss {loss.item():.3f}", flush=True)
    return net.eval()


@torch.no_grad()
def told(net: Network, pools: list[Tensor], chosen: Tensor) -> tuple[Floats, Floats]:
    """Log odds of strangers in each pool, and their share if there are any."""
    found = []
    for pick in chosen.split(512):
        logits, _ = net(*(pools[place][pick] for place in (0, 1, 3, 4, 5)))
        found.append(logits.log_softmax(dim=1).cpu())
    logarithm = torch.cat(found).double()
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
    net = trained(net, pools, learned, 60 * given.minutes, rate, given.batch)
    shown = np.flatnonzero(unseen if given.without else kept | unseen)
    odds, share = told(net, pools, torch.tensor(shown, device=device))
    for limit in given.limits:
        print(f"\nLimit of the log odds: {limit:g}\n")
        table(odds, share, meta[shown], limit)
    if given.out:
        weights = {name: value.cpu().numpy() for name, value in net.state_dict().items()}
        halves = {name: value.astype(np.float16 if value.ndim > 1 else np.float32) for name, value in weights.items()}
        np.savez_compressed(given.out, **halves)


if __name__ == "__main__":
    main()
