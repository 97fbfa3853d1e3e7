"""Mutated files for every reader: each is read, or refused in one sentence, within bounds of memory and time.

    python tests/fuzz/mutate.py --count 20000

Case i is a function of (seed, i) alone. Workers read in-process; a few cases go through the real command. What is
checked: nothing but an InputError, one sentence without control characters, memory below 1 GiB beyond what the process
had, below 30 seconds, no file written outside of the folder of the case, no process started but our own for ONNX and
Parquet.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from readers import READERS, put, repacked

SECONDS, MEMORY = 30, 1 << 30
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 34, (1 << 63) - 1, (1 << 64) - 1)
TEXTS = (b"[" * 200, b"{" * 200, b"\x1b[31m", b"\n", b"\0", b"9" * 5_000, b"-1", b"1e999", b"NaN", b'"', b"(")
STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change a few places of a file."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, what = rng.randrange(len(found) + 1), rng.randrange(9)
        size = min(rng.choice((1, 2, 4, 8, 64, 512)), len(found) - at)
        if what == 0 and found:
            found[at - 1] ^= 1 << rng.randrange(8)
        elif what == 1:
            found[at : at + size] = rng.randbytes(size)
        elif what == 2:
            del found[at : at + size]
        elif what == 3:
            found[at:at] = found[at : at + size] * rng.choice((1, 2, 50))
        elif what == 4:
            del found[at:]
        elif what in (5, 6):
            width, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
            found[at : at + width] = (rng.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, order)
        elif what == 7:
            found[at:at] = rng.choice(TEXTS)
        else:
            places = [match.span() for match in re.finditer(rb"\d+", bytes(found))]
            begin, end = rng.choice(places) if places else (at, at)
            found[begin:end] = str(rng.choice(NUMBERS)).encode()
    return bytes(found)


def case(number: int, seed: int, seeds: dict[str, list[bytes]]) -> tuple[str, bytes]:
    """Return the reader and the file of a case."""
    rng = random.Random(f"{seed} {number}")
    names = [name for name, reader in READERS.items() if rng.randrange(100) < reader.share] or ["plk"]
    name = rng.choice(names)
    data = rng.choice(seeds[name])
    inner = (
        repacked(data, lambda part: mutated(part, rng) if rng.random() < 0.5 else part) if rng.random() < 0.6 else None
    )
    return name, mutated(data, rng) if inner is None else inner


class Watch:
    """Records started processes, and files opened for writing outside a folder."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event in STARTS and "foreign/worker.py" not in str(arguments):
            self.seen.append(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            place = str(arguments[0])
            if not place.startswith((str(self.folder), "/dev/")) and not isinstance(arguments[0], int):
                self.seen.append(f"writes {place}")


def fault_of(name: str, data: bytes, folder: Path, watch: Watch) -> tuple[str, str]:
    """Read a case; return the outcome (read, refused) and what is wrong with it, if anything."""
    from sinkshot.errors import InputError, is_printable

    reader, before = READERS[name], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = put(reader, folder, data)
    watch.seen.clear()
    watch.folder, began, outcome, fault = folder, time.monotonic(), "read", ""
    try:
        reader.read(path)
    except InputError as error:
        outcome, message = "refused", str(error)
        if not is_printable(message.replace("\n  ", "")) or len(message) > 100_000:
            fault = f"not a printable sentence: {message!r:.200}"
        listed = any(words in message for words in ("wrong with the images", "contradicts"))  # a sentence and its cases
        if message.count("\n") and not listed:
            fault = f"more than a sentence: {message!r:.200}"
    except Exception as error:
        fault = f"{type(error).__name__}: {error!s:.200}"
    watch.folder, took = None, time.monotonic() - began
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if grown > MEMORY:
        fault = f"{grown / 1e9:.1f} GB of memory"
    if took > SECONDS:
        fault = f"{took:.0f} seconds"
    return outcome, fault or "; ".join(watch.seen)


def work(first: int, last: int, step: int, seed: int, out: Path) -> None:
    """Read the cases first, first + step, ...; a line of JSON for each, before it is begun and after."""
    warnings.simplefilter("ignore")
    seeds, watch = {name: reader.seeds() for name, reader in READERS.items()}, Watch()
    with out.open("a") as log:
        for number in range(first, last, step):
            name, data = case(number, seed, seeds)
            folder = Path(tempfile.mkdtemp(prefix="mutate-"))
            log.write(json.dumps([number, name, "begun", ""]) + "\n")
            log.flush()
            faulthandler.dump_traceback_later(2 * SECONDS, exit=True)  # what hangs outside of Python is ended so
            outcome, fault = fault_of(name, data, folder, watch)
            faulthandler.cancel_dump_traceback_later()
            log.write(json.dumps([number, name, outcome, fault]) + "\n")
            shutil.rmtree(folder, ignore_errors=True)


def by_command(number: int, seed: int, seeds: dict[str, list[bytes]]) -> str:
    """Run the real command on a case; return what is wrong with the answer."""
    name, data = case(number, seed, seeds)
    folder = Path(tempfile.mkdtemp(prefix="mutate-"))
    path = put(READERS[name], folder, data)
    bank = name in ("npz", "npy", "npy-labels", "safetensors", "plk")
    place = folder / "x.npy" if name.startswith("npy") else path
    options = {
        "weights": ["extract", str(folder), "--weights", str(path), "--out", str(folder / "o.safetensors")],
        "checkpoint": ["extract", str(folder), "--weights", str(path), "--backbone", "conv4", "--out", "o.safetensors"],
        "recipe": ["train", str(folder), "--recipe", str(path), "--out", str(folder / "run")],
        "study": ["reproduce", "--study", str(path), "--list"],
        "banks.toml": ["reproduce", "--banks", str(folder), "--list"],
        "parts-index": ["info", str(path.parent)],
        "part": ["eval", str(path.parent), "--way", "2", "--query", "1", "--episodes", "5", "--method", "ncm"],
        "results": ["compare", "ncm", "kmeans", "--out", str(folder)],
        "cache": ["label", str(folder / "texts.csv"), "--text", "text", "--cache", str(folder)],
        "model": ["label", str(folder / "x.npz"), "--model", str(path), "--out", str(folder / "labels")],
    }
    options |= {kind: ["label", str(path), "--out", str(folder / "labels")] for kind in READERS if kind[:6] == "label-"}
    options["label-texts"] += ["--text", "text"]
    options["label-file"][1:2] = [str(folder / "x.npz"), "--labels", str(path)]
    where = path if name in ("cifar-tar", "pack") else folder
    other = ["extract", str(where), "--weights", str(folder / "none.pt"), "--out", str(folder / "o.safetensors")]
    arguments = ["info", str(place)] if bank else options.get(name, other)
    command = [sys.executable, "-m", "sinkshot", *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=4 * SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"{name}: {' '.join(arguments)} did not end within {4 * SECONDS} seconds; {folder} is kept"
    shutil.rmtree(folder, ignore_errors=True)
    if answer.returncode in (0, 2) and "Traceback" not in answer.stderr:
        return ""
    return f"{name}: exit {answer.returncode}: {answer.stderr[-300:]!r}"


def together(count: int, seed: int, workers: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Read all cases in several processes; if one dies, its case has failed and another process continues."""
    counts: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="mutate-logs-"))
    waiting = {number: number for number in range(workers)}  # worker -> its next case
    running: dict[int, subprocess.Popen[bytes]] = {}
    while waiting:
        for worker, first in waiting.items():
            if worker not in running:
                command = [sys.executable, __file__, "--work", f"{first},{count},{workers},{seed},{folder}/{worker}"]
                running[worker] = subprocess.Popen(command, stderr=(folder / f"{worker}.err").open("ab"))
        time.sleep(0.5)
        for worker in [worker for worker, process in running.items() if process.poll() is not None]:
            process, lines = running.pop(worker), (folder / str(worker)).read_text().splitlines()
            (folder / str(worker)).unlink()
            entries = [json.loads(line) for line in lines]
            for number, name, outcome, fault in entries:
                if outcome != "begun":
                    counts[name, outcome] += 1
                if fault:
                    faults.append(f"case {number}, {name}: {fault}")
            del waiting[worker]
            if entries and entries[-1][2] == "begun":
                number, name = entries[-1][:2]
                faults.append(f"case {number}, {name}: the process ended with {process.returncode}")
                waiting[worker] = number + workers
            elif not entries or process.returncode:
                raise SystemExit(f"a worker failed: {(folder / f'{worker}.err').read_text()[-2000:]}")
    shutil.rmtree(folder, ignore_errors=True)
    return counts, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--commands", type=int, default=40, help="cases that also go through the real command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, help="read one case here, with its traceback")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        first, last, step, seed, out = given.work.split(",")
        work(int(first), int(last), int(step), int(seed), Path(out))
        return
    seeds = {name: reader.seeds() for name, reader in READERS.items()}
    if given.case is not None:
        name, data = case(given.case, given.seed, seeds)
        print(name, READERS[name].read(put(READERS[name], Path(tempfile.mkdtemp()), data)))
        return
    began = time.monotonic()
    counts, faults = together(given.count, given.seed, given.workers)
    print("| reader | read | refused |\n|---|---|---|")
    for name in READERS:
        print(f"| {name} | {counts[name, 'read']:,} | {counts[name, 'refused']:,} |", flush=True)
    for number in range(given.commands):
        if fault := by_command(given.count + number, given.seed, seeds):
            faults.append(f"command {given.count + number}, {fault}")
    print(f"\n{sum(counts.values()):,} files and {given.commands} commands, {len(faults)} faults, ", end="")
    print(f"{time.monotonic() - began:.0f} seconds")
    print("\n".join(faults[:50]))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
