"""Measure the leaderboard on a GPU within a time limit, and say what each method cost.

    python tools/gpu_leaderboard.py --out gpu-report --minutes 15

All registered methods, 10,000 episodes, the four banks of `BANKS`, balanced, Dirichlet and open set. Cheap methods come
first, so that running out of time costs slow ones alone; a few processes begin with the slowest. What a method costs is
read from docs/methods.json; with `--probe`, the first 1,000 episodes of one bank come before all others and tell it,
and are not measured again. Several processes share the GPU, since the work between two kernels, drawing and storing, is
done on the CPU.

A method that fails or takes too long is reported, and the others go on. Results are kept in OUT/results.sqlite: the
same command continues. OUT/cells.csv, OUT/summary.json and, where matplotlib is installed, a report show what is done.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from sinkshot import METHODS
from sinkshot.report import export
from sinkshot.report.studies import write_report
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.chunks import CHUNK
from sinkshot.studies.expand import expand
from sinkshot.studies.run import RunResult, run
from sinkshot.studies.store import Store
from sinkshot.studies.study import BankKey, Sheet, Study
from sinkshot.threads import LIMIT, available

COSTS = Path(__file__).parents[1] / "docs" / "methods.json"
BANKS = (
    BankKey("cifar-fs", ("wrn-28-10",)),
    BankKey("cifar-fs", ("resnet18",)),
    BankKey("cifar-fs", ("resnet12",)),
    BankKey("cub", ("wrn-28-10",)),
)


@dataclass(frozen=True)
class Task:
    """Episodes of a method on a bank, under all protocols; a process does one at a time."""

    method: str
    bank: BankKey
    episodes: int

    def __str__(self) -> str:
        return f"{self.method} on {self.bank}, {self.episodes:,} episodes"


@dataclass(frozen=True)
class Answer:
    """What became of a task: the seconds of its process, what could not be measured, or why it failed."""

    seconds: float = 0.0
    missing: tuple[str, ...] = ()
    error: str = ""
    late: bool = False


@dataclass(frozen=True)
class Where:
    """Where results go, and the device that computes them."""

    out: Path
    device: str

    @property
    def store(self) -> Path:
        """The file that keeps the results."""
        return self.out / "results.sqlite"


@cache
def expanded(episodes: int) -> Study:
    """Return the leaderboard on all banks at hand."""
    return expand(parse.find("leaderboard-full"), Catalogue(), episodes)


def chosen(study: Study, wanted: Iterable[tuple[str, BankKey]]) -> Study:
    """Return a study with the rows of some methods on some banks."""
    pairs = set(wanted)

    def cut(sheet: Sheet) -> Sheet:
        rows = [row for row in sheet.rows if any(e.cell and (e.cell.method, e.cell.bank) in pairs for e in row.entries)]
        return replace(sheet, rows=tuple(rows))

    return replace(study, sheets=tuple(sheet for sheet in map(cut, study.sheets) if sheet.rows))


def measure(wanted: Iterable[tuple[str, BankKey]], episodes: int, where: Where) -> RunResult:
    """Measure methods on banks in this process, or read what the store has of them."""
    study = chosen(expanded(episodes), wanted)
    how = {"workers": 1, "device": where.device, "command": "python tools/gpu_leaderboard.py"}
    return run([study], Catalogue(), opened(where.store), **how)


@cache
def opened(path: Path) -> Store:
    """Return the store, which this process keeps open: opening a large one checks it."""
    return Store(path)


def seconds_of(outcome: RunResult) -> Counter[str]:
    """Return the seconds of each method; columns that show the same cell count once."""
    spent: Counter[str] = Counter()
    for stored in {id(stored): stored for stored in outcome.results.values()}.values():
        spent[stored.method] += stored.seconds["total"]
    return spent


def known_costs() -> dict[str, float]:
    """Return milliseconds of methods, one episode of each column, by the run that docs/methods.json is of."""
    if not COSTS.is_file():
        return {}
    spent: Counter[str] = Counter()
    for rows in json.loads(COSTS.read_text(encoding="utf-8"))["sheets"].values():
        for method, columns in rows.items():
            spent[method] += sum(value.get("ms", 0.0) for value in columns.values())
    return dict(spent)


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Lane:
    """A process that shares the GPU, the pipe to it, and its task with the time when it began."""

    process: SpawnProcess
    pipe: Connection
    task: Task
    begin: float
    slow: bool = False  # whether its task is from the slow end

    def end(self) -> None:
        """Kill the process; what it stored stays."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def serve(pipe: Connection, where: Where) -> None:
    """Do tasks, in a process of their own, until one fails or nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        begin = time.monotonic()
        try:
            outcome = measure([(task.method, task.bank)], task.episodes, where)
        except Exception as error:
            traceback.print_exc()  # and end: an error may leave the GPU unusable to this process
            pipe.send(Answer(time.monotonic() - begin, error=f"{type(error).__name__}: {str(error).splitlines()[0]}"))
            return
        pipe.send(Answer(time.monotonic() - begin, tuple(outcome.missing)))
        _free_memory()


def _free_memory() -> None:
    """Give unused memory back to the GPU: other processes need it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass
class Board:
    """Does tasks in several processes, until all are done or time is up."""

    where: Where
    lanes: int
    deadline: float
    slow_lanes: int = 0  # of them take the slowest tasks first, so that the GPU has work while others draw and store
    begin: float = field(default_factory=time.monotonic)
    failed: dict[str, str] = field(default_factory=dict)  # methods, and why
    notes: dict[str, None] = field(default_factory=dict)  # what cannot be measured, each once

    def work(self, tasks: Iterable[Task], limit: float) -> Iterator[tuple[Task, Answer]]:
        """Yield tasks and their answers; a method whose task fails or takes more than `limit` seconds is given up."""
        waiting, busy, idle = deque(tasks), list[Lane](), list[Lane]()
        total, done = len(waiting), 0
        try:
            while waiting or busy:
                self._fill(waiting, idle, busy)
                ready = wait([lane.pipe for lane in busy], timeout=0.5)
                if time.monotonic() > self.deadline:
                    return
                for lane in [lane for lane in busy if lane.pipe in ready or self._late(lane, limit)]:
                    busy.remove(lane)
                    answer = self._received(lane, lane.pipe in ready, limit)
                    done += 1
                    self._tell(lane.task, answer, f"{done} of {total}")
                    if answer.error:
                        lane.end()
                        self.failed[lane.task.method] = answer.error
                    else:
                        idle.append(lane)
                    yield lane.task, answer
        finally:
            for lane in (*busy, *idle):
                lane.end()

    def _fill(self, waiting: deque[Task], idle: list[Lane], busy: list[Lane]) -> None:
        """Give tasks to free processes; those of methods that have failed are dropped."""
        while len(busy) < self.lanes and waiting:
            slow = sum(lane.slow for lane in busy) < self.slow_lanes
            task = waiting.pop() if slow else waiting.popleft()
            if task.method in self.failed:
                continue
            lane = idle.pop() if idle else self._start(task)
            lane.task, lane.begin, lane.slow = task, time.monotonic(), slow
            with suppress(OSError):  # if it has died, its answer will tell
                lane.pipe.send(task)
            busy.append(lane)

    def _start(self, task: Task) -> Lane:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.where), daemon=True)
        process.start()
        theirs.close()
        return Lane(process, ours, task, time.monotonic())

    @staticmethod
    def _late(lane: Lane, limit: float) -> bool:
        return time.monotonic() - lane.begin > limit

    @staticmethod
    def _received(lane: Lane, ready: bool, limit: float) -> Answer:
        took = time.monotonic() - lane.begin
        if not ready:
            return Answer(took, error=f"not done after {limit:.0f} s", late=True)
        try:
            answer: Answer = lane.pipe.recv()
        except (EOFError, OSError):
            lane.process.join()
            return Answer(took, error=f"its process died ({lane.process.exitcode})")
        return answer

    def _tell(self, task: Task, answer: Answer, count: str) -> None:
        now = f"[{time.monotonic() - self.begin:5.0f} s]"
        print(f"{now} {count}: {task}: {answer.error or f'{answer.seconds:.1f} s'}", flush=True)
        for note in answer.missing:
            if note not in self.notes:
                print(f"{now} note: {note}", flush=True)
                self.notes[note] = None


# --- the run --------------------------------------------------------------------------------------------------------


def probe(board: Board, methods: list[str], limit: float) -> dict[str, float]:
    """Measure the first episodes of each method on one bank; return what they cost.

    A method that takes too long here is not given up: it is measured last.
    """
    answers = list(board.work([Task(name, BANKS[0], CHUNK) for name in methods], limit))
    reached = [(task.method, task.bank) for task, answer in answers if not answer.error]
    known = dict(seconds_of(measure(reached, CHUNK, board.where)).most_common())
    for task, answer in answers:
        if answer.late:
            known[task.method] = 1000 * limit
            del board.failed[task.method]
    return known


def conclude(board: Board, pairs: list[tuple[str, BankKey]], methods: list[str], episodes: int) -> None:
    """Write what is finished, and print what each method cost and what became of it."""
    out, took = board.where.out, time.monotonic() - board.begin
    outcome = measure(pairs, episodes, board.where)
    export.write_csv(out / "cells.csv", export.flat(outcome.studies, outcome.results))
    spent, banks = seconds_of(outcome), Counter(method for method, _ in pairs)
    print(f"\n{took:.0f} s in all, with {board.lanes} processes on the GPU; seconds of processes by method:")
    for name in sorted(methods, key=lambda name: -spent[name]):
        state = board.failed.get(name) or ("" if banks[name] == len(BANKS) else "not finished")
        print(f"  {name:<26} {spent[name]:8.1f} s  {banks[name]} of {len(BANKS)} banks  {state}")
    whole = [name for name in methods if banks[name] == len(BANKS)]
    summary = {
        "seconds": round(took, 1),
        "processes": board.lanes,
        "episodes": episodes,
        "finished": whole,
        "failed": board.failed,
        "unfinished": [name for name in methods if name not in whole and name not in board.failed],
        "slowest": max(spent, key=lambda name: spent[name], default=None),
        "method_seconds": {name: round(seconds, 1) for name, seconds in spent.most_common()},
        "notes": list(board.notes),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{len(whole)} of {len(methods)} methods are finished; slowest: {summary['slowest']}")
    if importlib.util.find_spec("matplotlib") is None:
        print(f"numbers: {out / 'cells.csv'} (no matplotlib here, so no report)", flush=True)
    else:
        print(f"report: {write_report(out, outcome).files[0]}", flush=True)


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=15.0, help="for the measuring, the probe included")
    parser.add_argument("--method-minutes", type=float, default=15.0, help="for a method on a bank")
    parser.add_argument("--probe", action="store_true", help="first find out what each method costs")
    parser.add_argument("--probe-seconds", type=float, default=100.0, help="for the probe of a method")
    parser.add_argument("--workers", type=int, default=6, help="processes that share the GPU")
    parser.add_argument("--slow-workers", type=int, default=2, help="of these, the ones that begin with slow methods")
    parser.add_argument("--methods", nargs="+", default=sorted(METHODS), choices=sorted(METHODS), metavar="NAME")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", LIMIT):  # of the processes that are started below
        os.environ[name] = str(max(1, available() // args.workers))
    deadline = time.monotonic() + 60 * args.minutes
    board = Board(Where(args.out, args.device), args.workers, deadline, args.slow_workers)
    known = known_costs()
    if args.probe:
        known = probe(board, args.methods, args.probe_seconds)
        least = (
            sum(cost for cost in known.values() if cost < 1000 * args.probe_seconds)
            * len(BANKS)
            * args.episodes
            / CHUNK
        )
        print(f"the whole will take about {least:.0f} s of processes, {least / args.workers:.0f} s if they share well")
    order = sorted(args.methods, key=lambda name: (known.get(name, 0.0), name))
    tasks = [Task(name, bank, args.episodes) for name in order if name not in board.failed for bank in BANKS]
    answers = board.work(tasks, 60 * args.method_minutes)
    conclude(board, [(task.method, task.bank) for task, answer in answers if not answer.error], order, args.episodes)
    sys.exit(1 if board.failed else 0)


if __name__ == "__main__":
    main()
