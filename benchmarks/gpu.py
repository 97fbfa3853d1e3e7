"""The GPU engine, end to end through `evaluate`: golden cases, seconds for 10,000 episodes, the card's own limits.

    python benchmarks/gpu.py --out DIR      # needs an NVIDIA GPU with torch and triton

Seconds are wall clock with warm code and the bank on the card: drawing, gathering, all steps, accuracies on the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

import sinkshot
from sinkshot import FeatureBank, Recipe, evaluate

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
CELLS = (("bms", 1), ("bms-star", 1), ("bms", 5), ("bms-star", 5), ("ncm", 5), ("kmeans", 5), ("soft-kmeans", 5))


def seconds_of(bank: FeatureBank, method: str, recipe: Recipe, engine: str, repeats: int) -> tuple[float, float, str]:
    """Median seconds of an evaluation, its accuracy, and the engine that made it."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = evaluate(bank, recipe, method=method, preprocess="PEMnE", device="cuda", engine=engine)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), result.accuracy, result.engine


def golden_cases(bank: FeatureBank) -> list[dict[str, Any]]:
    """Accuracy on the published code's own episodes, beside its own."""
    found = []
    for case in json.loads((GOLDEN / "cases.json").read_text()):
        published = np.load(GOLDEN / f"{case['case']}.npz")["accuracy"]
        recipe = Recipe("official", case["way"], case["shot"], case["query"], case["episodes"])
        result = evaluate(bank, recipe, method=case["method"], device="cuda")
        same = float(np.isclose(result.per_episode, published, atol=1e-4).mean())
        gap = result.accuracy - case["accuracy"]
        found.append({"case": case["case"], "engine": result.engine, "difference": gap, "episodes_equal": same})
        print(f"{case['case']:<36} {result.engine}  difference {gap:+.6f}  episodes equal {same:.4f}", flush=True)
    return found


def ceilings() -> dict[str, float]:
    """Rates of a large product in bf16 and fp16 (TFLOP/s) and of a copy (TB/s) on this card."""
    found = {}
    for kind in (torch.bfloat16, torch.float16):
        a = torch.randn(8192, 8192, device="cuda", dtype=kind)
        milliseconds = triton.testing.do_bench(lambda a=a: a @ a, return_mode="median")
        found[str(kind).removeprefix("torch.")] = 2 * 8192**3 / milliseconds / 1e9
    x = torch.empty(1 << 30, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)
    found["copy"] = 2 * x.nbytes / triton.testing.do_bench(lambda: y.copy_(x), return_mode="median") / 1e9
    return found


def main() -> None:
    """Measure, print and write gpu.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    exact = sinkshot.load(GOLDEN / "cifar-fs_wrn-28-10_novel_f16.safetensors")
    report: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "ceilings": ceilings(),
        "golden": golden_cases(exact),
        "cells": [],
    }
    for method, shot in CELLS:
        for engine in ("triton", "torch"):
            recipe = Recipe(shot=shot, episodes=10_000)
            repeats = args.repeats if engine == "triton" else 2
            seconds, accuracy, used = seconds_of(exact, method, recipe, engine, repeats)
            report["cells"].append(
                {"method": method, "shot": shot, "engine": used, "seconds": seconds, "accuracy": accuracy}
            )
            print(f"{method:<12} {shot}-shot {used:<7} {seconds:.4f} s for 10,000  accuracy {accuracy:.5f}", flush=True)
    wide = FeatureBank(np.tile(exact.features, (1, 6)), exact.labels, exact.class_names)
    for shot in (1, 5):
        seconds, _, _ = seconds_of(wide, "bms", Recipe(shot=shot, episodes=10_000), "triton", args.repeats)
        report["cells"].append({"method": "bms, 3,840 features", "shot": shot, "engine": "triton", "seconds": seconds})
        print(f"bms, 3,840 features, {shot}-shot: {seconds:.4f} s", flush=True)
    for protocol in ("dirichlet", "open-set"):
        recipe = Recipe(protocol, shot=1, episodes=2000)
        for device in ("cuda", "cpu"):
            found = evaluate(exact, recipe, method="ncm", preprocess="PEMnE", device=device)
            print(f"ncm under {protocol}: {found.engine} accuracy {found.accuracy:.5f}, AUROC {found.auroc}")
    (args.out / "gpu.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
