"""Nearest neighbours of a large pool: our exact search beside pynndescent, hnswlib and faiss-cpu, in one table.

    pip install pynndescent hnswlib faiss-cpu psutil
    python benchmarks/neighbours.py --rows 20000 --out neighbours.json
    python benchmarks/neighbours.py --page neighbours.json        # the table as Markdown

Rows are blends of rows of the bundled bank after the chain PEMnE. Every search finds the six nearest others of every
row, in a process of its own, with two threads and again with one: "same" tells whether both gave the same graph.
Seconds are those of the processor over the threads, which a busy machine stretches less than a clock's; memory is the
most that the process held while it searched, less what it held before, looked at every few milliseconds. Agreement is
that of the labels by `sinkshot` with those on the exact graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from large_pool import blended_rows, few_labels
from numpy.typing import NDArray

from sinkshot.kernels.nearest_rows_faiss import nearest_by_cells
from sinkshot.kernels.sinkshot_large import large_pool, sparse_graph
from sinkshot.methods.algebra import Rows, one_hot
from sinkshot.methods.sinkshot import run_steps
from sinkshot.preprocess import parse, run
from sinkshot.settings.sinkshot import SETTINGS
from sinkshot.task import Task

Numbers = NDArray[np.int64]
K = SETTINGS.neighbours


def ours(x: NDArray[np.float32], threads: int) -> Numbers:
    """Our exact search."""
    os.environ["SINKSHOT_THREADS"] = str(threads)
    with large_pool(Task(x[None, :1], np.zeros((1, 1), dtype=int), x[None, 1:], 1)) as pool:
        return pool.nearest(K)[1].astype(np.int64)


def faiss_flat(x: NDArray[np.float32], threads: int) -> Numbers:
    """Exact search of faiss."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return without_itself(index.search(x, K + 1)[1])


def faiss_ivf(x: NDArray[np.float32], threads: int) -> Numbers:
    """Inverted lists of faiss, as we use them above 40,000 rows."""
    with ThreadPoolExecutor(threads) as pool:
        blocks = [x[at : at + 1_024] for at in range(0, len(x), 1_024)]
        return nearest_by_cells(blocks, blocks, K + 1, pool)[1][:, 1:].astype(np.int64)  # the nearest is the row itself


def faiss_hnsw(x: NDArray[np.float32], threads: int) -> Numbers:
    """The hierarchical graph of faiss."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexHNSWFlat(x.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, 64
    index.add(x)
    return without_itself(index.search(x, K + 1)[1])


def hnswlib_graph(x: NDArray[np.float32], threads: int) -> Numbers:
    """The hierarchical graph of hnswlib."""
    import hnswlib

    index = hnswlib.Index(space="ip", dim=x.shape[1])
    index.init_index(max_elements=len(x), ef_construction=100, M=16, random_seed=0)
    index.add_items(x, num_threads=threads)
    index.set_ef(64)
    return without_itself(index.knn_query(x, k=K + 1, num_threads=threads)[0])


def nn_descent(x: NDArray[np.float32], threads: int) -> Numbers:
    """Neighbour descent of pynndescent, which compiles itself: a small pool goes first."""
    from pynndescent import NNDescent

    index = NNDescent(x, metric="dot", n_neighbors=15, random_state=0, n_jobs=threads)
    return without_itself(index.neighbor_graph[0][:, : K + 1])


SEARCHES: dict[str, tuple[Callable[[NDArray[np.float32], int], Numbers], str | None]] = {
    "ours, exact": (ours, None),
    "faiss-cpu, IndexFlatIP (exact)": (faiss_flat, "faiss-cpu"),
    "faiss-cpu, IndexIVFFlat": (faiss_ivf, "faiss-cpu"),
    "faiss-cpu, IndexHNSWFlat": (faiss_hnsw, "faiss-cpu"),
    "hnswlib": (hnswlib_graph, "hnswlib"),
    "pynndescent": (nn_descent, "pynndescent"),
}


def without_itself(found: NDArray[Any]) -> Numbers:
    """Drop each row from its own list [N, K + 1]; where it is missing, the last."""
    found = found.astype(np.int64)
    own = found == np.arange(len(found))[:, None]
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(found), -1)


def prepared(rows: int) -> tuple[NDArray[np.float32], Numbers]:
    """Return rows of unit length and their classes."""
    features, truth = blended_rows(rows)
    return np.asarray(run(features, parse("PEMnE")).x), truth


class GrowthOfMemory:
    """The most that this process holds inside a `with`, less what it held before, in bytes."""

    def __enter__(self) -> GrowthOfMemory:
        self._process, self._over = psutil.Process(), threading.Event()
        self._before, self.most = self._process.memory_info().rss, 0
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, self._process.memory_info().rss - self._before)


def measure(name: str, rows: int, threads: int, out: str) -> None:
    """Search once, write the numbers to a file and print what it took."""
    x, _ = prepared(rows)
    search = SEARCHES[name][0]
    search(x[:2_000], threads)  # compiles, loads
    with GrowthOfMemory() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        found = search(x, threads)
        seconds, wall = (time.process_time() - cpu) / threads, time.perf_counter() - wall
    np.save(out, found)
    print(json.dumps({"seconds": seconds, "wall": wall, "mebibytes": memory.most / 2**20}))


def labels_of(x: NDArray[np.float32], truth: Numbers, numbers: Numbers) -> Numbers:
    """Return the labels that `sinkshot` gives on a graph, five labels a class."""
    given = few_labels(truth, 5)
    order = np.concatenate([np.flatnonzero(given >= 0), np.flatnonzero(given < 0)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    supports = int((given >= 0).sum())
    x, numbers = x[order], place[np.maximum(numbers, 0)][order]
    cosines = np.stack([np.einsum("nd,nd->n", x, x[column]) for column in numbers.T], axis=1)
    way = int(truth.max()) + 1
    task = Task(x[None, :supports], given[order][None, :supports], x[None, supports:], way)
    with large_pool(task) as pool:
        squares = pool.squares()
        member = one_hot(task.labels, way, squares)
        graph = sparse_graph((cosines, numbers.astype(np.int32)), SETTINGS.sharpness, squares.dtype)
        scores = run_steps(Rows(pool.product, squares, member, supports, task.queries), graph, SETTINGS)
    return np.asarray(scores.probabilities[0].argmax(axis=-1))


def compare(rows: int, folder: Path, only: str = "") -> dict[str, Any]:
    """Run each search in its own processes and compare the results with ours."""
    x, truth = prepared(rows)
    exact, expected, table = None, None, []
    for name, (_, package) in SEARCHES.items():
        if exact is not None and only not in name:
            continue
        runs, found = [], []
        for threads in (2, 1):
            out = str(folder / "found.npy")
            command = [sys.executable, __file__, "--one", name, "--rows", str(rows), "--threads", str(threads)]
            done = subprocess.run([*command, "--out", out], capture_output=True, text=True, check=False)
            if done.returncode:
                print(name, done.stderr.strip().splitlines()[-1:], file=sys.stderr)
                break
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            found.append(np.load(out))
        if len(found) < 2:
            continue
        labels = labels_of(x, truth, found[0])
        if exact is None or expected is None:
            exact, expected = found[0], labels
        shared = [len(np.intersect1d(a, b)) for a, b in zip(found[0], exact, strict=True)]
        row = {
            "search": name,
            "version": _version(package),
            "recall": float(np.mean(shared) / K),
            "agreement": float(np.mean(labels == expected)),
            "same": bool(np.array_equal(*found)),
            "same_links": float(np.mean(found[0] == found[1])),
            **runs[0],
        }
        table.append(row)
        print(json.dumps(row), file=sys.stderr)
    return {"rows": rows, "width": x.shape[1], "load": os.getloadavg()[0], "searches": table}


def _version(package: str | None) -> str:
    from importlib.metadata import version

    return "" if package is None else version(package)


def as_markdown(measured: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "| search | recall | labels as on the exact graph | seconds | MiB | same with 1 and 2 threads |",
        "|---|---|---|---|---|---|",
    ]
    for row in measured["searches"]:
        name = " ".join([row["search"], *([f"({row['version']})"] if row["version"] else [])])
        same = "yes" if row["same"] else f"no: {row['same_links']:.2%} of the links"
        figures = f"{row['recall']:.2%} | {row['agreement']:.2%} | {row['seconds']:.1f} | {row['mebibytes']:.0f}"
        lines.append(f"| {name} | {figures} | {same} |")
    return "\n".join(lines)


def main() -> None:
    """Compare, or print a comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--out", default="neighbours.json")
    parser.add_argument("--only", default="", help="searches whose names hold this word, beside ours")
    parser.add_argument("--page", help="print a written comparison as Markdown")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.page:
        print(as_markdown(json.loads(Path(given.page).read_text())))
    elif given.one:
        measure(given.one, given.rows, given.threads, given.out)
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            measured = compare(given.rows, Path(folder), given.only)
        Path(given.out).write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
