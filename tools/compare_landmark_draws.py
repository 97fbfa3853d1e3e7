"""Compare ways to draw landmarks: how much does it change a pool's answers which of its rows are drawn?

One pool of blends of validation rows is answered in memory with several draws of its landmarks, in each of these ways:
one row from each stretch of the bank, as the method draws them; and one from each stretch of an order in which similar
rows stand together (k-means cells of about 16 rows), so that the sample is spread more evenly. A line for each draw
says how many percent are right; then mean and standard deviation of each way, and those of pairs of draws whose
probabilities are averaged.

    python tools/compare_landmark_draws.py --rows 100000 --draws 6
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from choose_landmarks import BANKS
from make_large_pool import BLOCK, blends

import sinkshot
from sinkshot import Task, preprocess
from sinkshot.kernels import sinkshot_large
from sinkshot.methods.sinkshot import of_large_pool
from sinkshot.parted.cells import find_cells
from sinkshot.settings.sinkshot import SETTINGS

ROWS_PER_CELL = 16


def pool_of(bank: sinkshot.FeatureBank, rows: int, shots: int, seed: int) -> tuple[Task, np.ndarray]:
    """Return a pool of blends as a task, its first rows of each class labelled, and the true classes of the others."""
    made = [blends(bank, number, BLOCK, seed) for number in range(rows // BLOCK)]
    features, labels = (np.concatenate(each) for each in zip(*made, strict=True))
    way = int(labels.max()) + 1
    own = np.sort(np.concatenate([np.flatnonzero(labels == code)[:shots] for code in range(way)]))
    order = np.concatenate([own, np.setdiff1d(np.arange(len(labels)), own)])
    x = preprocess.run(features[order], preprocess.parse("PEMcE"), supports=len(own), labels=labels[own]).x
    return Task(x[None, : len(own)], labels[own][None], x[None, len(own) :], way), labels[order][len(own) :]


def by_similarity(queries: np.ndarray) -> np.ndarray:
    """Return an order of rows in which similar ones stand together."""
    sample = queries[:: max(1, len(queries) // 40_000)].astype(np.float32)
    return np.argsort(find_cells(sample, len(queries) // ROWS_PER_CELL).of(queries), kind="stable")


def drawn(order: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draw one from each of `count` stretches of an order; return them rising."""
    bounds = np.arange(count + 1) * len(order) // count
    share = np.random.default_rng([seed, count]).random(count)
    return np.sort(order[bounds[:-1] + (share * np.diff(bounds)).astype(np.int64)])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bank", default=str(BANKS / "cifar-fs_resnet12_validation.safetensors"))
    parser.add_argument("--rows", type=int, default=100_000, help=f"a multiple of {BLOCK}")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0, help="of the pool")
    asked = parser.parse_args()
    task, truth = pool_of(sinkshot.load(asked.bank), asked.rows, 5, asked.seed)
    orders = {"by row number": np.arange(task.queries), "by similarity": by_similarity(task.query[0])}
    found: dict[str, list[np.ndarray]] = {way: [] for way in orders}
    for draw in range(asked.draws):
        for way, order in orders.items():

            def chosen(supports: int, queries: int, most: int, order: np.ndarray = order, draw: int = draw) -> Any:
                return drawn(order, most - supports, draw)

            sinkshot_large.landmark_queries = chosen
            found[way].append(of_large_pool(task, SETTINGS).probabilities[0])
            _tell(way=way, draw=draw, right=_percent(found[way][-1], truth))
    for way, answers in found.items():
        single = [_percent(one, truth) for one in answers]
        pairs = [_percent(first + second, truth) for first, second in zip(answers[::2], answers[1::2], strict=False)]
        for name, some in (("one draw", single), ("mean of two draws", pairs)):
            _tell(way=way, of=name, mean=np.mean(some).round(3), deviation=np.std(some, ddof=1).round(3))


def _percent(probabilities: np.ndarray, truth: np.ndarray) -> float:
    return round(100 * float(np.mean(probabilities.argmax(axis=1) == truth)), 3)


def _tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
