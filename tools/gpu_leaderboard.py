"""Measure the leaderboard on a GPU within a time limit, and say what each method cost.

    python tools/gpu_leaderboard.py --out gpu-report --workers 12 --minutes 15

All registered methods, 10,000 episodes, the four banks of `BANKS`, balanced, Dirichlet and open set. Several processes
share the GPU, since the work between two kernels, drawing and storing, is done on the CPU. A task is a cell of the
table, or a few thousand episodes of a slow one. A process stays with its method, so that kernels are compiled once, and
then takes the method with the most work left, by the times in docs/methods.json: slow methods begin first, in several
processes each (`--method-workers`), and what is left at the end is divisible, so that no process waits for another.

A method that fails or takes too long is reported, and the others go on. Results are kept chunk by chunk in
OUT/results.sqlite: the same command continues, also after a kill, and OUT/calls.json adds up the time of all calls.
OUT/cells.csv, OUT/summary.json and, where matplotlib is installed, a report show what is done.
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
from sinkshot.studies.chunks import Chunk, compute, missing_chunks
from sinkshot.studies.expand import expand
from sinkshot.studies.resolve import ResolvedCell, resolve
from sinkshot.studies.run import RunResult, run
from sinkshot.studies.store import Store
from sinkshot.studies.study import BankKey, Cell, Sheet, Study
from sinkshot.threads import LIMIT, available

BANKS = (
    BankKey("cifar-fs", ("wrn-28-10",)),
    BankKey("cifar-fs", ("resnet18",)),
    BankKey("cifar-fs", ("resnet12",)),
    BankKey("cub", ("wrn-28-10",)),
)


COSTS = Path(__file__).parent.parent / "docs" / "methods.json"
UNKNOWN = 0.01  # seconds of an episode, where no run has told
TASK_SECONDS = 20.0  # of a task, about, beside others: the most that a process waits for at the end


@dataclass(frozen=True)
class Task:
    """Episodes `first` to `first + count - 1` of a cell; a process does one task at a time."""

    cell: Cell
    first: int
    count: int
    cost: float  # seconds, about

    @property
    def method(self) -> str:
        """The method, which a process keeps to while there is work."""
        return self.cell.method

    @property
    def size(self) -> tuple[str, str, int]:
        """Tasks with the same use the same memory."""
        return self.method, self.cell.recipe.protocol, self.cell.recipe.shot

    def __str__(self) -> str:
        recipe, last = self.cell.recipe, self.first + self.count
        return f"{self.method} on {self.cell.bank}, {recipe.protocol} {recipe.shot}-shot, {self.first:,} to {last:,}"


@dataclass(frozen=True)
class Answer:
    """What became of a task: the seconds of its process, or why it failed."""

    seconds: float = 0.0
    error: str = ""


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


def measured(wanted: Iterable[tuple[str, BankKey]], episodes: int, where: Where) -> RunResult:
    """Read what the store has of methods on banks; what it lacks is measured in this process."""
    study = chosen(expanded(episodes), wanted)
    how = {"workers": 1, "device": where.device, "command": "python tools/gpu_leaderboard.py"}
    return run([study], Catalogue(), opened(where.store), **how)


@cache
def resolved(method: str, bank: BankKey, episodes: int, device: str) -> tuple[dict[Cell, ResolvedCell], list[str]]:
    """Return the cells of a method on a bank with all settings decided, and what cannot be measured."""
    return resolve([chosen(expanded(episodes), [(method, bank)])], Catalogue(), device, on_cluster=False)


def known_costs() -> dict[tuple[str, str, str], float]:
    """Return the seconds of an episode by method, sheet and column, as docs/methods.json has them."""
    if not COSTS.is_file():
        return {}
    sheets = json.loads(COSTS.read_text(encoding="utf-8"))["sheets"].items()
    return {
        (method, sheet, column): value["ms"] / 1000
        for sheet, rows in sheets
        for method, columns in rows.items()
        for column, value in columns.items()
        if value.get("ms")
    }


def tasks_of(methods: Iterable[str], episodes: int, where: Where) -> tuple[list[Task], list[str]]:
    """Return what the store lacks of some methods, and what cannot be measured."""
    costs, tasks, notes, store = known_costs(), [], [], opened(where.store)
    study = expanded(episodes)
    seconds: dict[Cell, float] = {}  # of an episode
    for sheet in study.sheets:
        for row in sheet.rows:
            for column, entry in zip(sheet.columns, row.entries, strict=True):
                cost = entry.cell and costs.get((entry.cell.method, sheet.label, f"{column.group} {column.label}"))
                if entry.cell and cost:
                    seconds[entry.cell] = cost
    for method in methods:
        for bank in BANKS:
            cells, missing = resolved(method, bank, episodes, where.device)
            notes += missing
            for cell, found in cells.items():
                cost, lacking = seconds.get(cell, UNKNOWN), missing_chunks(found, store.present(found))
                tasks += [Task(cell, first, count, cost * count) for first, count in parts(lacking, cost)]
    return tasks, notes


def parts(chunks: list[Chunk], cost: float) -> Iterator[tuple[int, int]]:
    """Join neighbouring chunks to parts (first, count) that take about `TASK_SECONDS` at most, or are one chunk."""
    first = count = 0
    for chunk in chunks:
        if count and (chunk.first != first + count or cost * (count + chunk.count) > TASK_SECONDS):
            yield first, count
            count = 0
        first, count = (first, count + chunk.count) if count else (chunk.first, chunk.count)
    if count:
        yield first, count


def do(task: Task, episodes: int, where: Where) -> None:
    """Compute the chunks of a task and store each when it is done."""
    cells, _ = resolved(task.method, task.cell.bank, episodes, where.device)
    found, store = cells[task.cell], opened(where.store)
    for chunk in missing_chunks(found, store.present(found)):
        if task.first <= chunk.first < task.first + task.count:
            store.add(found, chunk.first, compute(chunk))


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


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Lane:
    """A process that shares the GPU, the pipe to it, and its task with the time when it began."""

    process: SpawnProcess
    pipe: Connection
    task: Task
    begin: float

    def end(self) -> None:
        """Kill the process; what it stored stays."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def serve(pipe: Connection, where: Where, episodes: int) -> None:
    """Do tasks, in a process of their own, until one fails or nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = None
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        if before not in (None, task.size):
            _free_memory()
        before, begin = task.size, time.monotonic()
        try:
            do(task, episodes, where)
        except Exception as error:
            traceback.print_exc()  # and end: an error may leave the GPU unusable to this process
            pipe.send(Answer(time.monotonic() - begin, error=f"{type(error).__name__}: {str(error).splitlines()[0]}"))
            return
        pipe.send(Answer(time.monotonic() - begin))


def _free_memory() -> None:
    """Give unused memory back to the GPU: other processes need it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


class Waiting:
    """Tasks that no process has begun, by method."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.tasks: dict[str, deque[Task]] = {}
        for task in tasks:
            self.tasks.setdefault(task.method, deque()).append(task)
        self.left = Counter({name: sum(task.cost for task in tasks) for name, tasks in self.tasks.items()})

    def __len__(self) -> int:
        return sum(map(len, self.tasks.values()))

    def drop(self, method: str) -> int:
        """Forget the tasks of a method; return how many there were."""
        return len(self.tasks.pop(method, ()))

    def take(self, busy: Counter[str], most: int, before: str = "") -> Task:
        """Take a task for a process: of the method it had `before`, or the one with the most left for each process.

        `busy` has the processes of each method, at most `most` while others have work.
        """
        if before not in self.tasks or busy[before] >= most:
            free = [name for name in self.tasks if busy[name] < most] or list(self.tasks)
            before = max(free, key=lambda name: self.left[name] / (1 + busy[name]))
        task = self.tasks[before].popleft()
        self.left[before] -= task.cost
        if not self.tasks[before]:
            del self.tasks[before]
        return task


@dataclass
class Board:
    """Does tasks in several processes, until all are done or time is up."""

    where: Where
    episodes: int
    lanes: int
    deadline: float
    method_lanes: int = 3  # of them for one method, while others have work
    begin: float = field(default_factory=time.monotonic)
    failed: dict[str, str] = field(default_factory=dict)  # methods, and why

    def work(self, tasks: Iterable[Task], limit: float) -> None:
        """Do tasks; a method of which one fails or takes more than `limit` seconds is given up."""
        waiting, busy, idle = Waiting(tasks), list[Lane](), list[Lane]()
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
                    if answer.error:
                        lane.end()
                        self.failed[lane.task.method] = answer.error
                        done += waiting.drop(lane.task.method)
                    else:
                        idle.append(lane)
                    self._tell(lane.task, answer, f"{done} of {total}")
        finally:
            for lane in (*busy, *idle):
                lane.process.kill()
            for lane in (*busy, *idle):
                lane.end()

    def _fill(self, waiting: Waiting, idle: list[Lane], busy: list[Lane]) -> None:
        """Give tasks to free processes."""
        while len(busy) < self.lanes and waiting:
            lane = idle.pop() if idle else None
            methods = Counter(lane.task.method for lane in busy)
            task = waiting.take(methods, self.method_lanes, lane.task.method if lane else "")
            lane = lane or self._start(task)
            lane.task, lane.begin = task, time.monotonic()
            with suppress(OSError):  # if it has died, its answer will tell
                lane.pipe.send(task)
            busy.append(lane)

    def _start(self, task: Task) -> Lane:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.where, self.episodes), daemon=True)
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
            return Answer(took, error=f"not done after {limit:.0f} s")
        try:
            answer: Answer = lane.pipe.recv()
        except (EOFError, OSError):
            lane.process.join()
            return Answer(took, error=f"its process died ({lane.process.exitcode})")
        return answer

    def _tell(self, task: Task, answer: Answer, count: str) -> None:
        now = f"[{time.monotonic() - self.begin:5.0f} s]"
        print(f"{now} {count}: {task}: {answer.error or f'{answer.seconds:.1f} s'}", flush=True)


# --- the run --------------------------------------------------------------------------------------------------------


def finished(methods: Iterable[str], episodes: int, where: Where) -> list[tuple[str, BankKey]]:
    """Return the methods and banks of which the store has all that can be measured."""
    store = opened(where.store)

    def whole(method: str, bank: BankKey) -> bool:
        cells, _ = resolved(method, bank, episodes, where.device)
        return not any(missing_chunks(found, store.present(found)) for found in cells.values())

    return [(method, bank) for method in methods for bank in BANKS if whole(method, bank)]


def add_call(board: Board, took: float) -> list[dict[str, float]]:
    """Add this call to those that OUT has seen, and return them all."""
    file = board.where.out / "calls.json"
    calls: list[dict[str, float]] = json.loads(file.read_text()) if file.is_file() else []
    calls.append({"seconds": round(took, 1), "processes": board.lanes})
    file.write_text(json.dumps(calls, indent=1) + "\n")
    return calls


def conclude(board: Board, methods: list[str], notes: list[str], took: float) -> None:
    """Write what is finished, and print what each method cost and what became of it."""
    out, episodes, calls = board.where.out, board.episodes, add_call(board, took)
    pairs = finished(methods, episodes, board.where)
    outcome = measured(pairs, episodes, board.where)
    export.write_csv(out / "cells.csv", export.flat(outcome.studies, outcome.results))
    spent, banks = seconds_of(outcome), Counter(method for method, _ in pairs)
    print(f"\n{took:.0f} s, with {board.lanes} processes on the GPU; seconds of processes by method:")
    for name in sorted(methods, key=lambda name: -spent[name]):
        state = board.failed.get(name) or ("" if banks[name] == len(BANKS) else "not finished")
        print(f"  {name:<26} {spent[name]:8.1f} s  {banks[name]} of {len(BANKS)} banks  {state}")
    whole = [name for name in methods if banks[name] == len(BANKS)]
    seconds = sum(call["seconds"] for call in calls)
    summary = {
        "seconds": round(seconds, 1),
        "calls": calls,
        "episodes": episodes,
        "finished": whole,
        "failed": board.failed,
        "unfinished": [name for name in methods if name not in whole and name not in board.failed],
        "slowest": max(spent, key=lambda name: spent[name], default=None),
        "method_seconds": {name: round(seconds, 1) for name, seconds in spent.most_common()},
        "notes": notes,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{len(whole)} of {len(methods)} methods are finished; slowest: {summary['slowest']}")
    print("in all calls: " + " + ".join(f"{call['seconds']:.0f}" for call in calls) + f" = {seconds:.0f} s")
    if importlib.util.find_spec("matplotlib") is None:
        print(f"numbers: {out / 'cells.csv'} (no matplotlib here, so no report)", flush=True)
    else:
        print(f"report: {write_report(out, outcome).files[0]}", flush=True)


def main() -> None:
    """Measure, print and write the report."""
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=15.0, help="for the measuring in this call")
    parser.add_argument("--task-minutes", type=float, default=15.0, help="for a task, before its method is given up")
    parser.add_argument("--workers", type=int, default=12, help="processes that share the GPU")
    parser.add_argument("--method-workers", type=int, default=3, help="of these for one method, while others have work")
    parser.add_argument("--methods", nargs="+", default=sorted(METHODS), choices=sorted(METHODS), metavar="NAME")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", LIMIT):  # of the processes that are started below
        os.environ[name] = str(max(1, available() // args.workers))
    where, deadline = Where(args.out, args.device), begin + 60 * args.minutes
    board = Board(where, args.episodes, args.workers, deadline, args.method_workers, begin)
    tasks, notes = tasks_of(args.methods, args.episodes, where)
    for note in dict.fromkeys(notes):
        print(f"note: {note}", flush=True)
    board.work(tasks, 60 * args.task_minutes)
    conclude(board, args.methods, list(dict.fromkeys(notes)), time.monotonic() - begin)
    sys.exit(1 if board.failed else 0)


if __name__ == "__main__":
    main()
