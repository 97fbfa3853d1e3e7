"""Compare pools of different sizes made of the same rows: is a row answered as well in a small pool as in a large one?

One large pool of blends of validation rows is labelled, then draws of its rows, each alone, by the same road. All draws
have the same labelled rows, which are in the first part; the other parts of a draw are its own, as far as there are
enough. A line for each pool says how often the most probable class is right, alone and within the large pool: of all
unlabelled rows, of landmarks and of other rows; last, mean and standard deviation over the draws of each size.

    python tools/compare_pool_sizes.py work --rows 400000 --sizes 20000,50000,100000,200000 --draws 4
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from choose_landmarks import BANKS, right_rows, rows_and_codes
from make_large_pool import BLOCK, make

import sinkshot
from sinkshot.formats.parts import PartedFeatures
from sinkshot.label.answer_parts import PartedRows


def some_parts(rows: PartedRows, parts: np.ndarray) -> tuple[PartedRows, np.ndarray]:
    """Return a pool of some parts of another, and the numbers of its rows there."""
    features = rows.features
    index = replace(features.index, parts=tuple(features.index.parts[part] for part in parts))
    numbers = np.concatenate([np.arange(*features.starts[part : part + 2]) for part in parts])
    return replace(rows, features=PartedFeatures(features.folder, index), labels=rows.labels[numbers]), numbers


def parts_of_draws(parts: int, wanted: int, draws: int) -> list[np.ndarray]:
    """Return the parts of each draw, rising: the first, and others in turn from one shuffled order."""
    order = np.random.default_rng(0).permutation(np.arange(1, parts))
    taken = (
        np.take(order, np.arange(draw * (wanted - 1), (draw + 1) * (wanted - 1)), mode="wrap") for draw in range(draws)
    )
    return [np.concatenate([[0], np.sort(some)]) for some in taken]


def percent(right: np.ndarray, there: np.ndarray) -> float | None:
    """Return the share of right rows among some, in percent."""
    return round(100 * float(right[there].mean()), 3) if there.any() else None


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep pools and files of the runs")
    parser.add_argument("--bank", default=str(BANKS / "cifar-fs_wrn-28-10_validation.safetensors"))
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--sizes", default="20000,50000,100000,200000", help=f"multiples of {BLOCK}")
    parser.add_argument("--draws", type=int, default=4, help="of each size")
    parser.add_argument("--seed", type=int, default=0, help="of the large pool")
    asked = parser.parse_args()
    path = asked.folder.resolve() / f"{Path(asked.bank).stem}-{asked.seed}-{asked.rows}-by-{BLOCK}"
    if not path.exists():
        make(sinkshot.load(asked.bank), path, asked.rows, 5, BLOCK, asked.seed)
    rows, codes = rows_and_codes(path)
    cache, free = asked.folder.resolve() / "cache", rows.labels < 0
    if (rows.labels[BLOCK:] >= 0).any():
        sys.exit("labelled rows must all be in the first part")
    large, marks = right_rows(rows, codes, cache)
    _tell(rows=asked.rows, right=percent(large, free), of_landmarks=percent(large, free & marks),
          of_others=percent(large, free & ~marks))  # fmt: skip
    for size in (int(number) for number in asked.sizes.split(",")):
        found = []
        for draw, parts in enumerate(parts_of_draws(len(rows.features.index.parts), size // BLOCK, asked.draws)):
            some, numbers = some_parts(rows, parts)
            own, (right, marks) = some.labels < 0, right_rows(some, codes[numbers], cache)
            found.append((percent(right, own), percent(large[numbers], own)))
            _tell(rows=size, draw=draw, alone=found[-1][0], in_large_pool=found[-1][1],
                  of_landmarks=percent(right, own & marks), of_others=percent(right, own & ~marks))  # fmt: skip
        alone, together = np.array(found).T
        _tell(rows=size, draws=len(found), alone=alone.mean().round(3), deviation=alone.std(ddof=1).round(3),
              in_large_pool=together.mean().round(3), better_by=(together - alone).mean().round(3),
              deviation_of_that=(together - alone).std(ddof=1).round(3))  # fmt: skip


def _tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
