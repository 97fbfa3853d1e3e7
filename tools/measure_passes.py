"""Measure what a pass of the method over a pool in parts costs: its numbers, and telling workers of it.

The method runs on a pool of blends of validation rows, its graph known, with every pass in this process, then with
every pass sent to 1, 2, ... workers, however small. A line for each says how many passes there are of each kind and how
much time one takes: on the clock, of the processor in this process (client and scheduler), of the processor in the
workers, and for pickling its jobs; and how many bytes its jobs have.

    python tools/measure_passes.py work --rows 100000 --workers 1,2,4
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from choose_landmarks import BANKS, rows_and_codes
from make_large_pool import make

import sinkshot
from sinkshot import methods
from sinkshot.label.in_parts import pool_of
from sinkshot.parted import solve as solving
from sinkshot.parted import work_folder as folders


class WatchedFolder(folders.WorkFolder):
    """A work folder that notes what each pass costs."""

    def __init__(self, path: Path, client: Any) -> None:
        super().__init__(path, client)
        self.noted: dict[str, list[tuple[float, ...]]] = defaultdict(list)

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any], **options: Any) -> list[Any]:
        """Do the jobs, and note what they cost."""
        began = time.perf_counter()
        size = len(pickle.dumps(jobs))
        pickling = time.perf_counter() - began
        of_workers = _spent(self.client)
        clock, processor = time.perf_counter(), time.process_time()
        found = super().map(function, jobs, **options)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        of_workers = _spent(self.client) - of_workers
        self.noted[function.__name__].append((clock, processor, of_workers, pickling, size))
        return found


def _processor_time() -> float:
    return time.process_time()


def _spent(client: Any) -> float:
    return 0.0 if client is None else sum(client.run(_processor_time).values())


def measured(path: Path, workers: int | None) -> dict[str, Any]:
    """Return what passes cost, in milliseconds each, by the function that works on parts."""
    rows, _ = rows_and_codes(path)
    method = methods.get("sinkshot")
    folders.SENT = 0
    with folders.work_folder(path.parent / "cache", workers, None) as work:
        pool = pool_of(rows, method, work)
        known = solving.neighbour_graph(pool, work, 6, 4.0)
        solving.neighbour_graph, finding = (lambda *_: known), solving.neighbour_graph
        watched = WatchedFolder(work.path, work.client)
        for of in (known[0], known[0].root_degree):
            object.__setattr__(of, "work", watched)
        solving.solve(pool, method, {}, watched)
        solving.neighbour_graph = finding
        watched.close()
    every = [one for some in watched.noted.values() for one in some]
    return {name: _mean(some) for name, some in {**watched.noted, "all": every}.items()}


def _mean(noted: list[tuple[float, ...]]) -> dict[str, float]:
    clock, here, there, pickling, size = np.mean(noted, axis=0)
    milliseconds = {"clock": clock, "processor_here": here, "processor_of_workers": there, "pickling": pickling}
    return {
        "passes": len(noted),
        **{name: round(1e3 * value, 2) for name, value in milliseconds.items()},
        "bytes": int(size),
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep the pool and files of the runs")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", default="1,2", help="numbers of workers")
    asked = parser.parse_args()
    path = asked.folder.resolve() / f"validation-{asked.rows}"
    if not path.exists():
        make(sinkshot.load(str(BANKS / "cifar-fs_wrn-28-10_validation.safetensors")), path, asked.rows, 5, 10_000, 0)
    for workers in (None, *(int(number) for number in asked.workers.split(",") if number)):
        print(json.dumps({"workers": workers or "threads", **measured(path, workers)}), flush=True)


if __name__ == "__main__":
    main()
