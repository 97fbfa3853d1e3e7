"""Compare every registered method with its public code on the same episodes of the first feature bank.

    python tools/compare_with_public_code.py                    # all methods, every episode that is known
    python tools/compare_with_public_code.py --episodes 20 pt-map ilpc

The numbers are those of `tests/golden/peers`: 200 episodes of protocol `official` at 1 and 5 shots and 200 Dirichlet
ones, public defaults (fewer where the public code takes seconds an episode). Percent; the last column is the share of
episodes with the same accuracy, as the public code gives it one episode at a time in float64 where that is known.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sinkshot
from sinkshot import METHODS, Episodes, FeatureBank, Recipe

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
KINDS = {"5w1s15q": "1-shot", "5w5s15q": "5-shot", "dir1": "Dirichlet 1-shot"}


@dataclass(frozen=True)
class Agreement:
    """Ours and theirs on the same episodes: mean accuracy, open-set AUROC, and how many episodes agree."""

    method: str
    kind: str
    episodes: int
    ours: float
    theirs: float
    same: float
    our_auroc: float | None = None
    their_auroc: float | None = None


@cache
def banks() -> tuple[FeatureBank, FeatureBank]:
    """Return the first feature bank as the public code saw it, and the rows that base statistics came from."""
    names = ("cifar-fs_wrn-28-10_novel_f16", "cifar-fs_wrn-28-10_base_f16")
    novel, base = (sinkshot.load(GOLDEN / f"{name}.safetensors") for name in names)
    return novel, base


def known() -> Iterator[tuple[str, str]]:
    """Yield the methods and kinds of episodes for which the public code's accuracy is known."""
    summary: dict[str, dict[str, Any]] = json.loads((GOLDEN / "peers" / "summary.json").read_text())
    for method, kinds in summary.items():
        yield from ((method, kind) for kind in KINDS if kind in kinds and method in METHODS)


def episodes_of(kind: str, count: int, strangers: Any = None) -> Episodes:
    """Return the first golden episodes of a kind; with `strangers` [200, 5, 15], those rows are queries too."""
    if kind == "dir1":
        drawn = np.load(GOLDEN / "dirichlet_episodes.npz")
        support, query, labels = drawn["support"][:count, :, 0], drawn["query"][:count], drawn["labels"][:count]
        own = np.tile(np.arange(5), (len(support), 1))
        arrays = (part.astype(np.int32) for part in (support, own, query, labels))
        return Episodes(*arrays, Recipe("dirichlet", 5, 1, 15, len(support)))
    recipe = Recipe("official", 5, int(kind[2]), 15, count)
    drawn = recipe.draw(banks()[0].labels)
    if strangers is None:
        return drawn
    rows = strangers[:count].transpose(0, 2, 1).reshape(len(drawn), -1).astype(np.int32)
    query = np.hstack([drawn.query, rows])
    labels = np.hstack([drawn.query_labels, np.full_like(rows, -1)])
    return Episodes(
        drawn.support, drawn.support_labels, query, labels, Recipe("open-set", 5, int(kind[2]), 15, len(drawn))
    )


def agreement(method: str, kind: str, most: int = 200) -> Agreement:
    """Run a method as published on golden episodes, the first `most` of them, and compare."""
    with np.load(GOLDEN / "peers" / f"{method}_{kind}.npz") as file:
        golden = dict(file)
    theirs = golden["accuracy"][:most]
    novel, base = banks()
    episodes = episodes_of(kind, len(theirs), golden.get("open_rows"))
    result = sinkshot.evaluate(novel, episodes, method=method, base=base)
    alone = golden.get("accuracy_single64", golden.get("accuracy64", theirs))[: len(theirs)]
    same = np.isclose(result.per_episode[: len(alone)], alone, atol=1e-4).mean()
    auroc = None if "auroc" not in golden else float(golden["auroc"][:most].mean())
    means = result.accuracy, float(theirs.mean()), float(same)
    return Agreement(method, kind, len(theirs), *means, result.auroc, auroc)


def main() -> None:
    """Print one line for each method and kind of episodes."""
    parser = argparse.ArgumentParser(description="Compare methods with what their public code printed.")
    parser.add_argument("methods", nargs="*", help="which methods; all by default")
    parser.add_argument("--episodes", type=int, default=200, help="how many of the golden episodes")
    given = parser.parse_args()
    print(f"{'method':26} {'episodes':18} {'count':>5} {'ours':>7} {'public':>7} {'apart':>6} {'same':>6}")
    for method, kind in known():
        if given.methods and method not in given.methods:
            continue
        one = agreement(method, kind, given.episodes)
        apart = 100 * (one.ours - one.theirs)
        line = f"{one.method:26} {KINDS[kind]:18} {one.episodes:5} {100 * one.ours:7.2f} {100 * one.theirs:7.2f}"
        print(f"{line} {apart:+6.2f} {100 * one.same:6.1f}{aurocs(one)}", flush=True)


def aurocs(one: Agreement) -> str:
    """Write both AUROCs, where there are any."""
    if one.our_auroc is None or one.their_auroc is None:
        return ""
    return f"   AUROC {100 * one.our_auroc:.2f}, {100 * one.their_auroc:.2f}"


if __name__ == "__main__":
    main()
