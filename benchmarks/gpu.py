"""The GPU engine, end to end through `evaluate`: golden cases, seconds for 10,000 episodes, the card's own limits.

    python benchmarks/gpu.py --out DIR      # needs an NVIDIA GPU with torch and triton
    python benchmarks/gpu.py --methods bms sinkshot     # only the times of these, and labels against float64

Seconds are wall clock with warm code and the bank on the card: drawing, gathering, all steps, accuracies on the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from cases import CASES

import sinkshot
from sinkshot import METHODS, FeatureBank, Recipe, Task, evaluate, preprocess
from sinkshot.engines.fused_kernels import KERNELS, Question
from sinkshot.preprocess import base_statistics, parse, run

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
CHAINS = {"sinkshot": None}  # its own; all others: PEMnE
COMPARED = [(protocol, 5, shot, 15) for protocol in ("balanced", "dirichlet", "long-tail") for shot in (1, 5)]
COMPARED += [("open-set", 5, 1, 8), ("open-set", 5, 5, 7), ("balanced", 2, 1, 15), ("balanced", 16, 1, 6)]


def seconds_of(bank: FeatureBank, method: str, recipe: Recipe, engine: str, repeats: int) -> tuple[float, float, str]:
    """Median seconds of an evaluation, its accuracy, and the engine that made it."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        chain = CHAINS.get(method, "PEMnE")
        result = evaluate(bank, recipe, method=method, preprocess=chain, device="cuda", engine=engine)
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


def agreement(bank: FeatureBank, episodes: int = 200) -> list[dict[str, Any]]:
    """Share of the labels of `sinkshot` that are those of the readable code in float64, with base means and without."""
    found = []
    for protocol, way, shot, query in COMPARED:
        drawn = Recipe(protocol, way, shot, query, episodes).draw(bank.labels)
        for chain, row_wise, task_wise in (("PEMbE", "PEMbE", ""), ("PEMcE", "PE", "McE")):
            x = run(bank.features.astype(np.float64), parse(row_wise), base=base_statistics(bank.base, None)).x
            arrays = [torch.from_numpy(np.array(a)).cuda() for a in (drawn.support, drawn.support_labels, drawn.query)]
            centring = preprocess.centring(parse(task_wise))
            rows = torch.from_numpy(x.astype(np.float32)).cuda()
            ours = KERNELS["sinkshot"].triton(Question(rows, *arrays, way, centring, {}))
            labels, unknown = ours.probabilities.argmax(-1).cpu().numpy(), ours.unknown.cpu().numpy()

            def reference(first: int, drawn=drawn, x=x, way=way, task_wise=task_wise) -> tuple[Any, Any]:
                part = drawn[first : first + 25]
                task = Task(x[part.support], part.support_labels, x[part.query], way)
                scores = METHODS["sinkshot"](preprocess.apply(task, task_wise))
                return scores.probabilities.argmax(-1), scores.unknown

            with ThreadPoolExecutor(8) as pool:
                parts = list(pool.map(reference, range(0, episodes, 25)))
            same = float((labels == np.concatenate([part[0] for part in parts])).mean())
            gap = float(np.abs(unknown - np.concatenate([part[1] for part in parts])).max())
            sizes = {"protocol": protocol, "way": way, "shot": shot, "query": query, "chain": chain}
            found.append({**sizes, "labels_equal": same, "unknown_apart": gap})
            print(
                f"{protocol:<10} {way}-way {shot}-shot {chain}  labels equal {same:.5f}  unknown {gap:.1e}", flush=True
            )
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
    parser.add_argument("--methods", nargs="+", help="measure these alone; all unless given")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    exact = sinkshot.load(GOLDEN / "cifar-fs_wrn-28-10_novel_f16.safetensors")
    report: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "agreement": agreement(sinkshot.load("cifar-fs_wrn-28-10_novel")),
        "cells": [],
    }
    if args.methods is None:
        report |= {"ceilings": ceilings(), "golden": golden_cases(exact)}
    for method, shot in CASES:
        if args.methods is not None and method not in args.methods:
            continue
        for engine in ("triton", "torch"):
            recipe = Recipe(shot=shot, episodes=10_000)
            repeats = args.repeats if engine == "triton" else 2
            seconds, accuracy, used = seconds_of(exact, method, recipe, engine, repeats)
            report["cells"].append(
                {"method": method, "shot": shot, "engine": used, "seconds": seconds, "accuracy": accuracy}
            )
            print(f"{method:<12} {shot}-shot {used:<7} {seconds:.4f} s for 10,000  accuracy {accuracy:.5f}", flush=True)
    if args.methods is None:
        other_cells(exact, args.repeats, report)
    (args.out / "gpu.json").write_text(json.dumps(report, indent=2) + "\n")


def other_cells(exact: FeatureBank, repeats: int, report: dict[str, Any]) -> None:
    """Six times as wide features, and protocols that are drawn on the host."""
    wide = FeatureBank(np.tile(exact.features, (1, 6)), exact.labels, exact.class_names)
    for shot in (1, 5):
        seconds, _, _ = seconds_of(wide, "bms", Recipe(shot=shot, episodes=10_000), "triton", repeats)
        report["cells"].append({"method": "bms, 3,840 features", "shot": shot, "engine": "triton", "seconds": seconds})
        print(f"bms, 3,840 features, {shot}-shot: {seconds:.4f} s", flush=True)
    for protocol in ("dirichlet", "open-set"):
        recipe = Recipe(protocol, shot=1, episodes=2000)
        for device in ("cuda", "cpu"):
            found = evaluate(exact, recipe, method="ncm", preprocess="PEMnE", device=device)
            print(f"ncm under {protocol}: {found.engine} accuracy {found.accuracy:.5f}, AUROC {found.auroc}")


if __name__ == "__main__":
    main()
