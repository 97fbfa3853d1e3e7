"""Measure how labelling and extraction grow with the number of workers, one thread each.

Workers run before a measurement begins, and the command itself uses as many threads as there are workers. Strong
growth: the same pool, or the same images, by 1, 2, 4, ... workers. Weak growth: as many rows or images for each worker,
with few landmarks, so that the work of a row does not change with the size of the pool. A line of JSON for each run,
with what each kind of pass took (`pass_profile.py`); `tools/draw_growth.py` draws them.

    python tools/measure_growth.py work > growth.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import LocalCluster

sys.path.insert(0, str(Path(__file__).parent))
from compare_pool_sizes import some_parts
from make_large_pool import BLOCK, make
from pass_profile import profiled

import sinkshot
from sinkshot.kernels import landmarks
from sinkshot.label.in_parts import label_rows, rows_of_bank
from sinkshot.threads import LIMIT, available

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
FEW_LANDMARKS = 10_000  # for weak growth
WARMING = 20_000  # rows of a first pool
QUIET = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "silence_logs": 40}


def make_pool(folder: Path, rows: int) -> None:
    """Make a pool of at least `rows` rows, in parts of 10,000, unless it exists."""
    path = folder / "pool"
    if not path.exists() or len(rows_of_bank(str(path)).labels) < rows:
        shutil.rmtree(path, ignore_errors=True)
        make(sinkshot.load("cifar-fs_wrn-28-10_novel"), path, rows, 5, BLOCK, 0, available())


def labelling(folder: Path, rows: int, scheduler: str, marks: int = landmarks.LANDMARKS) -> dict[str, Any]:
    """Label the first rows of the pool, which are a pool of their own: labelled rows are among the first 10,000."""
    before, landmarks.LANDMARKS = landmarks.LANDMARKS, marks
    with profiled() as profile:
        first, _ = some_parts(rows_of_bank(str(folder / "pool")), np.arange(rows // BLOCK))
        found = label_rows(first, method="sinkshot", unknown=0.5, next_count=0, out=None, cache=folder / "cache",
                           scheduler=scheduler)  # fmt: skip
    landmarks.LANDMARKS = before
    summary = {name: found.summary[name] for name in ("seconds", "counts")}
    return {"landmarks": min(rows, marks), **summary, "profile": profile.told()}


def network(folder: Path) -> Path:
    """Write the weights of a small network of ours."""
    import torch

    from sinkshot.backbones import checkpoints
    from sinkshot.backbones.networks import build

    path = folder / "resnet12.safetensors"
    if not path.exists():
        torch.manual_seed(0)
        made = build("resnet12")
        made(torch.randn(8, 3, 64, 64))
        checkpoints.save(made, path, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return path


def photos_of(folder: Path, images: int) -> Path:
    """Write images of noise, if they are not there yet."""
    from PIL import Image

    path = folder / f"photos-{images}"
    if not path.exists():
        draw = np.random.default_rng(0)
        for number in range(images):
            place = path / f"class-{number % 10}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 256, (96, 96, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.jpg", quality=90)
    return path


def extraction(folder: Path, images: int, scheduler: str) -> dict[str, Any]:
    """Extract features of all images into a bank in parts, on processors."""
    from sinkshot.backbones import datasets
    from sinkshot.encoders.extract_parts import EncoderChoice, extract_parts

    choice = EncoderChoice(network(folder), (("size", 64),))
    listed = datasets.load(photos_of(folder, images), size=64)
    out = folder / "extracted"
    shutil.rmtree(out, ignore_errors=True)
    part_rows = 10  # 48 parts of 480 images
    extract_parts(choice, listed, str(out), part_rows=part_rows, scheduler=scheduler, device="cpu", batch=part_rows)
    return {}


def measured(kind: str, growth: str, size: int, workers: int, run: Callable[[], dict[str, Any]]) -> None:
    """Run and print a line."""
    began = time.monotonic()
    found = run()
    line = {"kind": kind, "growth": growth, "size": size, "workers": workers, "wall": time.monotonic() - began, **found}
    print(json.dumps(line), flush=True)


def measure(folder: Path, workers: int, asked: argparse.Namespace) -> None:
    """Measure everything with a number of workers."""
    os.environ[LIMIT] = str(workers)
    with LocalCluster(n_workers=workers, threads_per_worker=1, env=ONE_THREAD, **QUIET) as cluster:
        place = cluster.scheduler_address
        if asked.rows or asked.each:
            labelling(folder, WARMING, place, WARMING // 2)  # workers load what they need
        if asked.rows:
            measured("label", "strong", asked.rows, workers, partial(labelling, folder, asked.rows, place))
        if asked.images:
            extraction(folder, 48, place)
            measured("extract", "strong", asked.images, workers, partial(extraction, folder, asked.images, place))
        if asked.each:
            rows = asked.each * workers
            measured("label", "weak", rows, workers, partial(labelling, folder, rows, place, FEW_LANDMARKS))
        if asked.images:
            images = asked.images // 16 * workers
            measured("extract", "weak", images, workers, partial(extraction, folder, images, place))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep pools and files of the runs")
    parser.add_argument("--rows", type=int, default=300_000, help=f"rows for strong growth, by {BLOCK}; 0: none")
    parser.add_argument("--each", type=int, default=50_000, help="rows for each worker for weak growth; 0: none")
    parser.add_argument("--images", type=int, default=480, help="images for extraction; 0: none")
    parser.add_argument("--workers", default="16,1,4,8,2", help="numbers of workers, in this order")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    counts = [int(number) for number in asked.workers.split(",")]
    if max(counts) > (os.cpu_count() or 1):
        print(f"this machine has {os.cpu_count()} cores", file=sys.stderr)
    if asked.rows or asked.each:
        make_pool(folder, max(WARMING, asked.rows, asked.each * max(counts)))
    for images in {48, asked.images, *(asked.images // 16 * workers for workers in counts)} if asked.images else ():
        photos_of(folder, images)
    for workers in counts:  # in this order: a limit of time cuts the last
        measure(folder, workers, asked)


if __name__ == "__main__":
    main()
