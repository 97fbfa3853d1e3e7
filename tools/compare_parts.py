"""Compare labels computed in parts with labels computed in memory, for several numbers of workers.

Labels (most probable classes) of a pool in parts are compared with those in memory: given the graph of the parts, and
with the exact graph. Answers of 1, 2, 4 workers and of threads on the same parts must be the same bits. Workers read
the sources when they start, this process read them before: if they change meanwhile, it ends.

    python tools/compare_parts.py work --rows 100000
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent))
from make_large_pool import make

import sinkshot
from sinkshot import Task, methods, preprocess
from sinkshot.arrays import one_hot
from sinkshot.kernels.sinkshot_large import SparseGraph, large_pool
from sinkshot.label.in_parts import pool_of, rows_of_bank
from sinkshot.methods.algebra import Rows
from sinkshot.methods.sinkshot import run_steps
from sinkshot.parted import work_folder as folders
from sinkshot.parted.array import PartedArray
from sinkshot.parted.graph import read_graph
from sinkshot.parted.neighbours import neighbour_graph
from sinkshot.parted.pool import PartedPool
from sinkshot.parted.solve import solve
from sinkshot.settings.sinkshot import SETTINGS
from sinkshot.workers import package_version

VERSION = package_version()


def collected(array: PartedArray, pool: PartedPool, rows: int) -> np.ndarray:
    """Return values of the queries in the order of the bank."""
    parts = {part: array.expression.of_part(pool.layout, part)[0] for part in array.parts()}
    first = next(iter(parts.values()))
    found = np.zeros((rows, *first.shape[1:]), first.dtype)
    for part, values in parts.items():
        found[pool.files.bank_numbers(part)] = values
    return found


def graph_in_memory(pool: PartedPool, work: folders.WorkFolder, labels: np.ndarray) -> SparseGraph:
    """Return the graph of the parts with rows as a task in memory has them: supports, then queries."""
    graph, _ = neighbour_graph(pool, work, SETTINGS.neighbours, SETTINGS.sharpness)
    every = range(len(pool.layout.sizes) + 1)
    weights = sparse.vstack([read_graph(pool.layout, part) for part in every]).tocsr()  # [rows, landmarks]
    weights.resize(pool.layout.rows, pool.layout.rows)  # landmarks come first; the others are read by none
    root = np.concatenate([graph.root_degree.expression.of_part(pool.layout, part) for part in every], axis=-1)
    number = np.concatenate([pool.files.bank_numbers(part) for part in every])
    order = np.argsort(number)[np.concatenate([np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)])]
    landmarks = None if pool.layout.landmark_parts is None else np.flatnonzero(order < pool.layout.landmarks)
    return SparseGraph(weights[order][:, order], root[..., order], graph.closeness, landmarks)


def in_parts(path: Path, workers: int | None, with_graph: bool) -> tuple[Any, ...]:
    """Return probabilities, unknown, seconds, the chain and, where asked for, the graph."""
    if package_version() != VERSION:
        sys.exit("the sources were edited since this began; start it again.")
    rows = rows_of_bank(str(path))
    began = time.monotonic()
    with folders.work_folder(path.parent / "cache", workers, None) as work:
        pool = pool_of(rows, methods.get("sinkshot"), work)
        scores, _ = solve(pool, methods.get("sinkshot"), {}, work)
        count = len(rows.labels)
        found = collected(scores.probabilities, pool, count), collected(scores.unknown, pool, count)
        spent = time.monotonic() - began
        return *found, spent, pool.chain, graph_in_memory(pool, work, rows.labels) if with_graph else None


def in_memory(path: Path, chain: str, graph: SparseGraph | None) -> tuple[np.ndarray, float]:
    """Return the most probable class of each query, and seconds; with the exact graph where none is given."""
    rows = rows_of_bank(str(path))
    features, own = np.asarray(rows.features), rows.labels[rows.labels >= 0]
    order = np.argsort(rows.labels < 0, kind="stable")
    x = preprocess.run(features[order], preprocess.parse(chain), supports=len(own), labels=own).x
    del features
    task = Task(x[None, : len(own)], own[None], x[None, len(own) :], int(own.max()) + 1)
    began = time.monotonic()
    with large_pool(task) as pool:
        squares = pool.squares()
        member = one_hot(task.labels, task.way, squares)
        used = pool.graph(SETTINGS.neighbours, SETTINGS.sharpness) if graph is None else graph
        scores = run_steps(Rows(pool.product, squares, member, task.supports, task.queries), used, SETTINGS)
    return scores.probabilities[0].argmax(axis=1), time.monotonic() - began


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep the pool and files of the runs")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers; empty: none")
    parser.add_argument("--no-memory", action="store_true", help="compare numbers of workers only")
    parser.add_argument("--every-pass", action="store_true", help="send every pass to the workers, however small")
    asked = parser.parse_args()
    path = asked.folder.resolve() / f"pool-{asked.rows}"
    if not path.exists():
        make(sinkshot.load("cifar-fs_wrn-28-10_novel"), path, asked.rows, 5, 10_000, 0)
    if asked.every_pass:
        folders.SMALL = folders.SENT = 0
    truth = np.load(path.with_name(f"{path.name}-classes.npy"))
    free = rows_of_bank(str(path)).labels < 0
    first, unknown, spent, chain, graph = in_parts(path, None, with_graph=True)
    labels = first[free].argmax(axis=1)
    _tell(workers="threads", seconds=spent, accuracy=_share(labels, _codes(path, truth)[free]))
    for workers in (int(number) for number in asked.workers.split(",") if number):
        again, unknown_again, spent, _, _ = in_parts(path, workers, with_graph=False)
        same = bool(np.array_equal(first, again) and np.array_equal(unknown, unknown_again))
        most = max(float(np.abs(a - b).max()) for a, b in ((first, again), (unknown, unknown_again)))
        _tell(workers=workers, seconds=spent, same_bits=same, largest_difference=most)
    for name, known in () if asked.no_memory else (("the same", graph), ("exact", None)):
        found, spent = in_memory(path, chain, known)
        _tell(memory_with_graph=name, seconds=spent, equal=_share(labels, found))


def _tell(seconds: float, **found: Any) -> None:
    print(json.dumps({**found, "seconds": round(seconds, 1)}), flush=True)


def _codes(path: Path, truth: np.ndarray) -> np.ndarray:
    """True classes by their numbers in `label`, which sorts names."""
    names = sinkshot.load("cifar-fs_wrn-28-10_novel").class_names
    classes = rows_of_bank(str(path)).classes
    return np.array([classes.index(name) for name in names])[truth]


def _share(one: np.ndarray, other: np.ndarray) -> float:
    return round(100 * float(np.mean(one == other)), 3)


if __name__ == "__main__":
    main()
