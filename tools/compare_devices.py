"""Compare the labels that methods give on a GPU with those on the CPU, and print a table.

    python tools/compare_devices.py                               # all methods on cuda, a minute on 16 cores
    python tools/compare_devices.py --device cpu --engine torch   # the same code of torch, where there is no GPU
    python tools/compare_devices.py --float64 --methods adaptive-manifold    # with digits to spare on both devices
    python tools/compare_devices.py --rounded --methods adaptive-manifold    # how many labels rounding alone changes

Every method labels the same episodes of the bundled bank by the engine that "auto" picks on each device: balanced
1-shot, Dirichlet 5-shot, open set 5-shot. At least 99.9 % of its labels must be equal; the exit status is 1 where
fewer are, or where a method fails. With `--float64` rows and arithmetic are float64, by the readable code on NumPy here
and by torch on the device. With `--rounded` both sides are float64 by torch on the CPU; they differ only in that one
side's rows are rounded to float32. Two devices that compute in float32 cannot agree better than that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkshot
from sinkshot import METHODS, Recipe, preprocess
from sinkshot.arrays import to_numpy
from sinkshot.engines import pick
from sinkshot.evaluate import resolve_job
from sinkshot.task import Task
from sinkshot.threads import LIMIT, available

BANK = "cifar-fs_wrn-28-10"
LEAST, FLOAT64, ROUNDED, NUMPY = 0.999, "float64", "rounded", "numpy"
COLUMNS = (("balanced", 1), ("dirichlet", 5), ("open-set", 5))


@dataclass(frozen=True)
class Compared:
    """The labels of a method: how many there are and how many are equal, by column, and seconds on both devices."""

    method: str
    engines: str
    equal: tuple[int, ...]
    labels: tuple[int, ...]
    here: float
    there: float

    @property
    def share(self) -> float:
        """Equal labels of all labels."""
        return sum(self.equal) / sum(self.labels)


def labels_of(name: str, recipe: Recipe, engine: str, device: str) -> tuple[NDArray[np.intp], str, float]:
    """Return the most probable class of each query, the engine that found it, and its seconds."""
    bank, base = sinkshot.load(f"{BANK}_novel"), sinkshot.load(f"{BANK}_base")
    drawn = recipe.draw(bank.labels)
    job, _ = resolve_job(bank, drawn, name, None, base if METHODS[name].features else None, {})
    begin, chosen = time.perf_counter(), pick(engine, device, job)
    found = [to_numpy(scores.probabilities).argmax(axis=-1) for scores in chosen.scores()]
    return np.concatenate(found), chosen.name, time.perf_counter() - begin


def labels_in_float64(
    name: str, recipe: Recipe, kind: type[np.floating[Any]], device: str
) -> tuple[NDArray[np.intp], float]:
    """Return the most probable class of each query and seconds, in float64, from rows preprocessed in `kind`."""
    import torch

    bank, base = sinkshot.load(f"{BANK}_novel"), sinkshot.load(f"{BANK}_base")
    drawn = recipe.draw(bank.labels)
    job, _ = resolve_job(bank, drawn, name, None, base if METHODS[name].features else None, {})
    rows = bank.features.astype(kind)
    task = Task(rows[drawn.support], drawn.support_labels, rows[drawn.query], recipe.way, base)
    done = preprocess.apply(task, preprocess.spell(job.steps), bank.base)
    arrays = (done.support.astype(np.float64), done.labels, done.query.astype(np.float64))
    parts = min(available(), recipe.episodes) if device in ("cpu", NUMPY) else 1

    def answered(part: NDArray[np.intp]) -> NDArray[np.intp]:
        given = [np.asarray(array)[part] for array in arrays]
        if device != NUMPY:
            torch.set_num_threads(1 if parts > 1 else available())  # of this thread
            given = [torch.from_numpy(array).to(device) for array in given]
        task = Task(*given, recipe.way, job.base)
        return to_numpy(job.method.function(task, **job.hyper).probabilities).argmax(axis=-1)

    begin = time.perf_counter()
    with ThreadPoolExecutor(parts) as pool:
        found = list(pool.map(answered, np.array_split(np.arange(recipe.episodes), parts)))
    return np.concatenate(found), time.perf_counter() - begin


def compared(name: str, episodes: int, engine: str, device: str) -> Compared:
    """Label the same queries on both devices; see above for the engines "float64" and "rounded"."""
    equal, count, engines, here, there = [], [], set(), 0.0, 0.0
    for protocol, shot in COLUMNS:
        recipe = Recipe(protocol=protocol, shot=max(shot, METHODS[name].least_shots), episodes=episodes)
        if engine in (FLOAT64, ROUNDED):
            other = (np.float64, device) if engine == FLOAT64 else (np.float32, "cpu")
            first = NUMPY if engine == FLOAT64 else "cpu"
            (ours, seconds), used = labels_in_float64(name, recipe, np.float64, first), "float64"
            theirs, took = labels_in_float64(name, recipe, *other)
        else:
            ours, _, seconds = labels_of(name, recipe, "auto", "cpu")
            theirs, used, took = labels_of(name, recipe, engine, device)
        here, there = here + seconds, there + took
        engines.add(used)
        equal.append(int((ours == theirs).sum()))
        count.append(int(ours.size))
    return Compared(name, "+".join(sorted(engines)), tuple(equal), tuple(count), here, there)


def line(one: Compared) -> str:
    """Return a method's row of the table."""
    shares = [f"{100 * e / n:8.2f}" for e, n in zip(one.equal, one.labels, strict=True)]
    verdict = "" if one.share >= LEAST else "  BELOW"
    seconds = f"{one.here:8.1f} {one.there:8.1f}"
    return f"{one.method:<26}{one.engines:<14}{' '.join(shares)} {100 * one.share:9.3f} {seconds}{verdict}"


def main() -> None:
    """Compare all methods in several processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    how_to = parser.add_mutually_exclusive_group()
    how_to.add_argument("--engine", default="auto")
    how_to.add_argument("--float64", dest="engine", action="store_const", const=FLOAT64, help="see above")
    how_to.add_argument("--rounded", dest="engine", action="store_const", const=ROUNDED, help="see above")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--workers", type=int, default=max(1, available() // 2))
    parser.add_argument("--minutes", type=float, default=5.0, help="methods that are not done then are reported")
    parser.add_argument("--methods", nargs="+", default=sorted(METHODS), choices=sorted(METHODS), metavar="NAME")
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", LIMIT):
        os.environ[name] = str(max(1, available() // args.workers))
    begin = time.monotonic()
    pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"))
    how = (args.episodes, args.engine, args.device)
    waiting: dict[Future[Compared], str] = {pool.submit(compared, name, *how): name for name in args.methods}
    found, failed = list[Compared](), dict[str, str]()
    heads = " ".join(f"{f'{protocol[:5]} {shot}':>8}" for protocol, shot in COLUMNS)
    print(f"{'method':<26}{'engine':<14}{heads} {'all, %':>9} {'cpu, s':>8} {'there, s':>8}", flush=True)
    while waiting and (left := 60 * args.minutes - (time.monotonic() - begin)) > 0:
        for done in wait(waiting, left, FIRST_COMPLETED).done:
            name = waiting.pop(done)
            if (error := done.exception()) is not None:
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                print(f"{name:<26}FAILED {failed[name]}", flush=True)
            else:
                found.append(done.result())
                print(line(found[-1]), flush=True)
    failed |= dict.fromkeys(waiting.values(), "not done in time")
    below = [one.method for one in found if one.share < LEAST]
    print(
        f"{time.monotonic() - begin:.0f} s; {len(found) - len(below)} of {len(args.methods)} methods label as the CPU"
    )
    for name, why in failed.items():
        print(f"{name}: {why}")
    if args.json is not None:
        args.json.write_text(
            json.dumps({"compared": [asdict(one) for one in found], "failed": failed}, indent=1) + "\n"
        )
    sys.stdout.flush()
    for process in list((getattr(pool, "_processes", None) or {}).values()):  # those that are late
        process.kill()
    os._exit(1 if below or failed else 0)


if __name__ == "__main__":
    main()
