"""How fast the engines are, in one run: against the readable reference, scikit-learn's loop and the published code.

    make bench                       # everything, some minutes on two cores
    python benchmarks/speed.py --quick --out DIR

Writes DIR/speed.json and DIR/speed.html. Rates are episodes a second with sampling and preparation included; on a busy
machine trust the ratios, which come from the same run. `--million` adds a run of a million episodes for its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES

import sinkshot
from sinkshot import METHODS, FeatureBank, Recipe, evaluate
from sinkshot.preprocess import parse, run

BUNDLED = "cifar-fs_wrn-28-10_novel"
PUBLISHED = {  # facts: the authors' code, episodes a second on two cores, sampling and preprocessing included
    ("bms", 1): 111.0,
    ("bms", 5): 36.0,
}
COMPARED = 200  # episodes of the slowest engine, over which the accuracies of all are comparable
CHAINS = {"sinkshot": "PEMbE"}  # all others: PEMnE
GROWTH = {
    "shot": (1, 2, 5, 10, 20),
    "query": (5, 10, 15, 30, 50),
    "way": (2, 3, 5, 10, 20),
    "width": (160, 320, 640, 1280, 2560, 3840),
    "episodes": (500, 2000, 10_000, 40_000),
}


@dataclass(frozen=True)
class Measured:
    """One evaluation and how long it took."""

    method: str
    shot: int
    engine: str
    episodes: int
    rate: float  # episodes a second
    accuracy: float  # over the first `compared` episodes, which all engines of a run have
    compared: int
    seconds: dict[str, float]
    gflops: float | None  # achieved, in the products that have to be done


def measure(
    bank: FeatureBank, method: str, recipe: Recipe, engine: str, device: str = "cpu", repeats: int = 2
) -> Measured:
    """Evaluate a few times and keep the fastest."""
    warm = Recipe(recipe.protocol, recipe.way, recipe.shot, recipe.query, 16, recipe.seed)
    how = {"method": method, "preprocess": CHAINS.get(method, "PEMnE"), "engine": engine, "device": device}
    evaluate(bank, warm, **how)
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = evaluate(bank, recipe, **how)
        runs.append((time.perf_counter() - start, result))
    seconds, result = min(runs, key=lambda pair: pair[0])
    rate = recipe.episodes / seconds
    work = operations(recipe, bank.width, result.hyper) if method.startswith("bms") else None
    return Measured(
        method,
        recipe.shot,
        result.engine,
        recipe.episodes,
        rate,
        float(result.per_episode[:COMPARED].mean()),
        min(COMPARED, recipe.episodes),
        result.seconds,
        None if work is None else work * rate / 1e9,
    )


def operations(recipe: Recipe, width: int, hyper: dict[str, Any]) -> float:
    """Floating-point operations of BMS's products in one episode: half a Gram matrix, and G times the residuals."""
    n = recipe.way * (recipe.shot + recipe.query)
    epochs = hyper["epochs"]
    if epochs == "auto":
        epochs = 40 if recipe.shot >= 2 else 0 if hyper["prior"] is None else 20
    return n * (n + 1) * width + hyper["steps"] * (epochs + 1) * 2 * n * n * recipe.way


def matrix_peak() -> float:
    """Billions of operations a second of a large float32 matrix product, all threads."""
    a = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
    return 2 * 2048**3 / min(_seconds(lambda: a @ a) for _ in range(6)) / 1e9


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def scikit_learn_loop(bank: FeatureBank, shot: int, episodes: int) -> dict[str, float]:
    """Episodes a second of scikit-learn's own classifiers in a loop over episodes, preparation included."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import NearestCentroid

    rates = {}
    for name, make in (("NearestCentroid", NearestCentroid), ("LogisticRegression", LogisticRegression)):
        start = time.perf_counter()
        rows = run(bank.features, parse("PE")).x
        drawn = Recipe(shot=shot, episodes=episodes).draw(bank.labels)
        with np.errstate(all="ignore"):  # NearestCentroid divides by zero where a class has one row
            for support, labels, query in zip(drawn.support, drawn.support_labels, drawn.query, strict=True):
                make().fit(rows[support], labels).predict(rows[query])
        rates[name] = episodes / (time.perf_counter() - start)
    return rates


def widened(bank: FeatureBank, width: int) -> FeatureBank:
    """The bank with another number of columns: cut, or repeated with a little noise."""
    copies = -(-width // bank.width)
    features = np.tile(bank.features, (1, copies))[:, :width]
    if copies > 1:
        features = features * np.random.default_rng(0).uniform(0.9, 1.1, size=features.shape).astype(np.float32)
    return FeatureBank(features, bank.labels, bank.class_names)


def growth(bank: FeatureBank, engine: str, episodes: int) -> dict[str, list[tuple[int, float]]]:
    """Microseconds an episode as one size grows and the others stay at 5-way 1-shot, 15 queries, 640 features."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, values in GROWTH.items():
        found[name] = []
        for value in values:
            size = {"way": 5, "shot": 1, "query": 15, "episodes": episodes}
            size |= {} if name == "width" else {name: value}
            wide = widened(bank, value) if name == "width" else bank
            one = measure(wide, "bms", Recipe(**size), engine, repeats=1)
            found[name].append((value, 1e6 / one.rate))
            print(f"  {name} {value}: {found[name][-1][1]:.0f} us an episode", flush=True)
    return found


def width_ratios(bank: FeatureBank) -> list[dict[str, Any]]:
    """How much more 3,840 features cost than 640, for the three kinds of BMS in the paper."""
    wide, found = widened(bank, 3840), []
    for method, shot, episodes in (("bms", 1, 10_000), ("bms-star", 1, 3000), ("bms", 5, 2000)):
        recipe = Recipe(shot=shot, episodes=episodes)
        narrow_rate, wide_rate = (measure(b, method, recipe, "numba").rate for b in (bank, wide))
        found.append({"method": method, "shot": shot, "rate": narrow_rate, "rate_wide": wide_rate})
        print(
            f"  3,840 features, {method} {shot}-shot: {narrow_rate / wide_rate:.1f} times the cost of 640", flush=True
        )
    return found


def peak_memory(engine: str, episodes: int, method: str = "bms") -> dict[str, float]:
    """Peak memory of a whole process that evaluates, MiB, and its seconds (Linux)."""
    code = (
        "import pathlib, re, time, sinkshot;"
        f"bank = sinkshot.load({BUNDLED!r}); start = time.perf_counter();"
        f"sinkshot.evaluate(bank, sinkshot.Recipe(episodes={episodes}), method={method!r}, engine={engine!r});"
        "seconds = time.perf_counter() - start; status = pathlib.Path('/proc/self/status').read_text();"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) / 1024, seconds)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mebibytes, seconds = map(float, done.stdout.split())
    return {"episodes": episodes, "mebibytes": mebibytes, "seconds": seconds}


def large_task(rows: int, epochs: int) -> dict[str, float]:
    """Seconds of one BMSClassifier fit of a pool with 20 classes, 5 labels each, 640 features."""
    from sinkshot import BMSClassifier

    x = np.random.default_rng(0).random((rows, 640), dtype=np.float32)
    y = np.full(rows, -1)
    y[:100] = np.arange(100) % 20
    BMSClassifier(epochs=1, steps=2).fit(x[:12_000], y[:12_000])  # compiles
    seconds = min(_seconds(lambda: BMSClassifier(epochs=epochs).fit(x, y)) for _ in range(2))
    return {"rows": rows, "epochs": epochs, "seconds": seconds}


def main() -> None:
    """Measure, print, and write the JSON and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="fewer episodes, no growth, no memory")
    parser.add_argument("--methods", nargs="+", help="rates of these methods alone, with no growth and no memory")
    parser.add_argument("--million", action="store_true", help="a million episodes, for their memory")
    parser.add_argument("--device", default="cpu", help="cuda adds the GPU engines")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    bank = sinkshot.load(BUNDLED)
    episodes = 1000 if args.quick else args.episodes
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "sinkshot": sinkshot.__version__,
        "matrix_peak_gflops": matrix_peak(),
        "cases": [],
    }
    print(f"matrix product: {report['matrix_peak_gflops']:.0f} GFLOP/s", flush=True)
    engines = [("numpy", "cpu", COMPARED), ("numba", "cpu", episodes)]
    if args.device != "cpu":
        engines += [("torch", args.device, episodes), ("triton", args.device, episodes)]
    for method, shot in [case for case in CASES if args.methods is None or case[0] in args.methods]:
        for engine, device, count in engines:
            if engine == "triton" and not METHODS[method].fused:
                continue
            one = measure(bank, method, Recipe(shot=shot, episodes=count), engine, device)
            report["cases"].append({**asdict(one), **_ratios(one, report["cases"])})
            last = report["cases"][-1]
            print(
                f"{method:<12} {shot}-shot {engine:<7} {one.rate:>9,.0f} episodes/s"
                f"  x{last['times_reference']:.1f} reference"
                + (f"  x{last['times_published']:.1f} published" if last["times_published"] else ""),
                flush=True,
            )
    report["scikit_learn"] = {str(shot): scikit_learn_loop(bank, shot, 100) for shot in (1, 5)}
    if not args.quick and args.methods is None:
        report["growth"] = growth(bank, "numba", 2000)
        report["width"] = width_ratios(bank)
        report["memory"] = {engine: peak_memory(engine, 2000) for engine in ("numpy", "numba")}
        report["large_task"] = [large_task(*size) for size in ((20_000, 0), (50_000, 0), (50_000, 40))]
    if args.million:
        report["million"] = peak_memory("numba", 1_000_000)
    report["peak_after_gflops"] = matrix_peak()
    (args.out / "speed.json").write_text(json.dumps(report, indent=2) + "\n")
    from sinkshot.report.speed import speed_page

    speed_page(report, args.out / "speed.html")
    print(f"{args.out / 'speed.json'} and {args.out / 'speed.html'} are written")


def _ratios(one: Measured, before: list[dict[str, Any]]) -> dict[str, float | None]:
    same = [c for c in before if c["engine"] == "numpy" and (c["method"], c["shot"]) == (one.method, one.shot)]
    published = PUBLISHED.get((one.method, one.shot))
    return {
        "times_reference": one.rate / same[0]["rate"] if same else 1.0,
        "times_published": one.rate / published if published else None,
    }


if __name__ == "__main__":
    main()
