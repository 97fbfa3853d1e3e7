"""Take the time of a run on a pool in parts apart: what each kind of pass takes, who waits for whom, what runs alone.

Of every pass are noted: its time on the clock, that of the worker that took longest, the mean over workers (what it
would take if all ended together), and processor time. The clock less the longest worker is the command's own: telling
workers, their answers, sums of what they return. Between passes the command works alone; some of its functions are
named. `measure_growth.py` prints the result with each run.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sinkshot.parted import work_folder as folders

ALONE = {  # functions that the command runs by itself, beside passes
    "sinkshot.parted.pool": ("find_cells", "landmark_places"),
    "sinkshot.parted.neighbours": ("_write_near_cells", "_join_supports", "_numbers_in_task"),
    "sinkshot.label.in_parts": ("auto_chain", "sampled", "summarised"),
}


class Timed:
    """Apply a function; return its result with who did it and what it took on the clock and of the processor."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, job: Any) -> tuple[Any, tuple[int, int], float, float]:
        """Do a job."""
        clock, processor = time.perf_counter(), time.thread_time()
        result = self.function(job)
        who = os.getpid(), threading.get_ident()
        return result, who, time.perf_counter() - clock, time.thread_time() - processor


@dataclass
class PassCost:
    """Seconds of all passes of one kind."""

    passes: int = 0
    clock: float = 0.0
    slowest: float = 0.0  # of the worker that took longest
    mean: float = 0.0  # over all workers, idle ones included
    processor: float = 0.0  # of all workers together
    here: int = 0  # passes done by the command itself

    def told(self) -> dict[str, float]:
        """Return it for JSON, in milliseconds."""
        seconds = {"clock": self.clock, "slowest": self.slowest, "mean": self.mean, "processor": self.processor}
        return {"passes": self.passes, "here": self.here, **{key: round(1e3 * one) for key, one in seconds.items()}}


@dataclass
class Profile:
    """What a run took."""

    passes: dict[str, PassCost] = field(default_factory=lambda: defaultdict(PassCost))
    alone: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    clock: float = 0.0

    def told(self) -> dict[str, Any]:
        """Return it for JSON, in milliseconds: all, kinds of passes, functions of the command, and what is left."""
        within = sum(one.clock for one in self.passes.values())
        alone = {name: round(1e3 * one) for name, one in self.alone.items()}
        left = round(1e3 * (self.clock - within)) - sum(alone.values())
        return {
            "clock": round(1e3 * self.clock),
            "passes": {name: one.told() for name, one in self.passes.items()},
            "command_alone": {**alone, "other": left},
        }


class ProfiledFolder(folders.WorkFolder):
    """A work folder that notes what passes cost."""

    profile = Profile()

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any], **options: Any) -> list[Any]:
        """Do the jobs, and note what they cost."""
        began = time.perf_counter()
        found = super().map(Timed(function), jobs, **options)
        clock = time.perf_counter() - began
        busy: dict[tuple[int, int], float] = defaultdict(float)
        for _, who, spent, _ in found:
            busy[who] += spent
        cost = ProfiledFolder.profile.passes[function.__name__]
        cost.passes += 1
        cost.clock += clock
        cost.slowest += max(busy.values(), default=0.0)
        cost.mean += sum(busy.values()) / self.workers
        cost.processor += sum(processor for *_, processor in found)
        cost.here += all(process == os.getpid() for process, _ in busy)
        return [result for result, *_ in found]


@contextmanager
def profiled() -> Iterator[Profile]:
    """Note what a run inside takes."""
    profile = ProfiledFolder.profile = Profile()
    before, folders.WorkFolder = folders.WorkFolder, ProfiledFolder  # type: ignore[misc]
    replaced = []
    for place, names in ALONE.items():
        module = importlib.import_module(place)
        for name in names:
            replaced.append((module, name, getattr(module, name)))
            setattr(module, name, _noted(getattr(module, name), profile))
    began = time.perf_counter()
    try:
        yield profile
    finally:
        profile.clock = time.perf_counter() - began
        folders.WorkFolder = before  # type: ignore[misc]
        for module, name, function in replaced:
            setattr(module, name, function)


def _noted(function: Callable[..., Any], profile: Profile) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = function(*arguments, **options)
        profile.alone[function.__name__.strip("_")] += time.perf_counter() - began
        return found

    return run
