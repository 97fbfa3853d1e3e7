"""How fast networks train on this machine: images a second, and the share of the card's own matrix rate.

    python benchmarks/training.py --out DIR                      # WRN-28-10 at 32 pixels, some batches
    python benchmarks/training.py --recipe cifar-fs_resnet12 --batch 256 --profile

A step includes everything: plan, augmentation, forward and backward pass, new weights, their average. Images are noise,
the network is the recipe's. Rates count every view that passes through the network. Operations are counted by torch on
one forward and backward pass; the card's rate is that of a large bf16 product in the same process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from sinkshot.backbones import networks, recipes
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.datasets.sources import Pixels
from sinkshot.backbones.devices import reproducible, start
from sinkshot.backbones.fit import warm_up
from sinkshot.backbones.run import Run

CLASSES = 64
PROFILED = 28  # kernels


def noise(size: int, count: int = 4096) -> Images:
    """Return images of noise in 64 classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    return Images(Pixels(pixels, "noise"), np.arange(count) % CLASSES, tuple(f"class {i:02}" for i in range(CLASSES)))


def operations(recipe: recipes.TrainingRecipe) -> float:
    """Return floating-point operations of the forward and backward pass of one image."""
    network = networks.build(recipe.network, **{"size": recipe.size, **recipe.options})
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(2, 3, recipe.size, recipe.size)).sum().backward()
    return counter.get_total_flops() / 2


def matrix_rate(device: torch.device) -> float:
    """Return the operations a second of a bf16 product of 8192 x 8192 matrices (float32, smaller, on a CPU)."""
    gpu = device.type == "cuda"
    side, kind = (8192, torch.bfloat16) if gpu else (512, torch.float32)
    a = torch.randn(side, side, device=device, dtype=kind)
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        a @ a
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 2 * side**3 / statistics.median(times[5:])


def measured(recipe: recipes.TrainingRecipe, device: str, steps: int, profile: bool) -> dict[str, Any]:
    """Train for a while and return the speed."""
    with reproducible(False), tempfile.TemporaryDirectory() as folder:
        taken = start(device, 1, recipe.precision)
        run = Run(taken, noise(recipe.stored), recipe, Path(folder), None, "yes")
        begin = time.perf_counter()
        run.prepare(False, False, None)
        _, stage = run.stages[0]
        warm_up(run, stage)
        compiled = time.perf_counter() - begin
        seconds = _seconds(run, stage, steps)
        if profile:
            _profile(run, stage)
        run.close()
    per_step = sum(len(sheet.source) for sheet, _ in run.batches(stage, 0, 1))
    memory = torch.cuda.max_memory_allocated() / 2**30 if taken.device.type == "cuda" else 0.0
    return {
        "network": recipe.network,
        "size": recipe.size,
        "batch": stage.batch,
        "views": per_step,
        "images_per_second": per_step * steps / seconds,
        "milliseconds": 1000 * seconds / steps,
        "gibibytes": memory,
        "seconds_to_warm_up": compiled,
    }


def _seconds(run: Run, stage: recipes.Stage, steps: int) -> float:
    """Return the time of a few training steps, synchronising with the device only at the end."""
    begin = time.perf_counter()
    for sheet, pixels in run.batches(stage, 0, steps):
        found = run.take(stage, sheet, pixels, 1e-4)
    found.tolist()
    return time.perf_counter() - begin


def _profile(run: Run, stage: recipes.Stage) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with profiler(activities=kinds) as found:
        _seconds(run, stage, 4)
    by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    events = sorted(found.key_averages(), key=lambda event: -getattr(event, by))
    total = sum(getattr(event, by) for event in events)
    for event in events[:PROFILED]:
        print(f"{100 * getattr(event, by) / total:5.1f} %  {event.count:>5} calls  {event.key[:90]}")


def main() -> None:
    """Measure, print and write training.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", help="default: cifar-fs_wrn-28-10; may be repeated")
    parser.add_argument("--batch", type=int, action="append", help="images a step; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="change a key of the recipes")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--profile", action="store_true", help="print the kernels that take longest")
    parser.add_argument("--tune", action="store_true", help="let the compiler try more ways to cut its own kernels")
    parser.add_argument("--all-algorithms", action="store_true", help="let cuDNN try all its algorithms, not ten")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.tune:
        import torch._inductor.config as inductor

        inductor.coordinate_descent_tuning = True
    if args.all_algorithms:
        torch.backends.cudnn.benchmark_limit = 0
    gpu = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if gpu else "cpu")
    peak = matrix_rate(device)
    name = torch.cuda.get_device_name() if gpu else "CPU"
    print(f"{name}, torch {torch.__version__}: matrix product {peak / 1e12:.4g} TFLOP/s", flush=True)
    report: dict[str, Any] = {"device": name, "torch": torch.__version__, "matrix_tflops": peak / 1e12, "cells": []}
    changes = {key: json.loads(value) for key, _, value in (text.partition("=") for text in args.set)}
    for recipe_name in args.recipe or ["cifar-fs_wrn-28-10"]:
        plain = recipes.read(recipe_name, changes)
        each, (stage, _) = operations(plain), next(iter(plain.stage.items()))
        for batch in args.batch or [plain.stage[stage].batch]:
            recipe = recipes.read(recipe_name, {**changes, f"stage.{stage}.batch": batch})
            cell = measured(recipe, device.type, args.steps, args.profile)
            rate = cell["images_per_second"] * each
            cell |= {"recipe": recipe_name, "gflop_per_image": each / 1e9, "tflops": rate / 1e12, "share": rate / peak}
            report["cells"].append(cell)
            print(
                f"{recipe_name}, batch {batch} ({cell['views']} views): {cell['images_per_second']:,.0f} images/s, "
                f"{cell['milliseconds']:.1f} ms, {rate / 1e12:.4g} TFLOP/s, {100 * rate / peak:.1f} % of the product, "
                f"{cell['gibibytes']:.1f} GiB, warm after {cell['seconds_to_warm_up']:.0f} s",
                flush=True,
            )
    (args.out / "training.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
