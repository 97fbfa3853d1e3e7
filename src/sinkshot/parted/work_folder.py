"""The folder of a run on a pool in parts, and the workers that compute on it."""

from __future__ import annotations

import errno
import os
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from sinkshot.errors import InputError
from sinkshot.foreign.limits import amount
from sinkshot.parted.direct_lines import DirectLines
from sinkshot.threads import ONE_BLAS_THREAD, cores, in_order
from sinkshot.workers import crew, each, keep_freed_memory, package_version

Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]  # what is being done, parts done, parts in all
SMALL = 4 << 20  # bytes that one thread reads faster than several threads can be woken
SENT = 2 << 20  # passes that read as many bytes are sent to workers: telling takes about 1 ms, and threads share a lock


@dataclass(frozen=True)
class RowLayout:
    """How the rows of a pool lie in its files: supports first, as part 0, then the queries in parts 1, 2, ..."""

    folder: str
    supports: int
    sizes: tuple[int, ...]  # queries of each part
    landmark_parts: int | None = None  # first parts, of the supports and of landmarks; None: all

    @property
    def of_landmarks(self) -> range:
        """Parts of the supports and of landmarks."""
        return range(len(self.sizes) + 1)[: self.landmark_parts]

    @property
    def landmarks(self) -> int:
        """Rows in which neighbours are looked for; they come first."""
        return self.rows if self.landmark_parts is None else self.starts[self.landmark_parts]

    @cached_property
    def starts(self) -> list[int]:
        """First row of each part and, at the end, the number of all rows."""
        return list(accumulate((self.supports, *self.sizes), initial=0))

    @property
    def rows(self) -> int:
        """Supports and queries."""
        return self.supports + sum(self.sizes)

    @property
    def queries(self) -> int:
        """Rows to be labelled."""
        return sum(self.sizes)

    def path(self, name: str) -> Path:
        """Return the path of a file of the run."""
        return Path(self.folder) / name


class WorkFolder:
    """Names for the files of a run, and the workers."""

    def __init__(self, path: Path, client: Any, progress: Progress | None = None) -> None:
        self.path, self.client = path, client
        self._lines = None if client is None else DirectLines(client)
        self._progress = progress or (lambda *_: None)
        self._numbers = count()
        self.seconds: dict[str, float] = {}  # spent in each kind of pass

    @property
    def workers(self) -> int:
        """How many jobs run at the same time."""
        return cores() if self._lines is None else max(1, sum(self._lines.workers().values()))

    def map(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], *, shown: str = "", size: int | None = None
    ) -> list[Result]:
        """Return the results of all jobs, in order.

        `shown` reports progress under that name. Jobs that together read so few bytes (`size`) that sending them, or
        waking threads, would take longer are done here, one after the other.
        """
        began = time.monotonic()
        if size is not None and size <= (SMALL if self.client is None else SENT):
            results = [function(job) for job in jobs]
        elif not shown and self.client is None:
            results = list(map(function, jobs) if cores() == 1 else self._threads.map(function, jobs))
        elif self.client is None:
            results = list(self._told(shown, in_order(function, jobs, cores()), len(jobs)))
        elif not shown:
            assert self._lines is not None
            results = self._lines.map(_OnWorker(function), jobs)
        else:
            found = each(self.client, _Numbered(function), list(enumerate(jobs)))
            numbered = dict(pair for _, pair in self._told(shown, found, len(jobs)))
            results = [numbered[number] for number in range(len(jobs))]
        what = shown or "passes of the method"
        self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - began
        return results

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Threads for passes; there are hundreds, and starting threads for each takes as long as some of them."""
        return ThreadPoolExecutor(cores())

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files while work goes on: giving back gigabytes of the page cache takes the system a second."""
        self._removing.map(_remove, list(paths))

    @cached_property
    def _removing(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    def close(self) -> None:
        """End the threads, and hang up on workers."""
        if self._lines is not None:
            self._lines.close()
        for threads in ("_threads", "_removing"):
            if threads in self.__dict__:
                getattr(self, threads).shutdown()

    def groups(self, layout: RowLayout, parts: range) -> list[tuple[int, ...]]:
        """Divide parts into groups of neighbours with about as many rows, a job for each worker."""
        wanted = min(len(parts), self.workers)
        starts = layout.starts[parts.start : parts.stop + 1]
        middles = [(first + last) / 2 for first, last in pairwise(starts)]
        targets = (starts[0] + (starts[-1] - starts[0]) * i / wanted for i in range(wanted + 1))
        cuts = [parts.start + bisect_left(middles, target) for target in targets]
        return [tuple(range(begin, end)) for begin, end in pairwise(cuts) if end > begin]

    def new_file(self, size: int) -> Path:
        """Make a file of that many zero bytes."""
        path = self.path / f"array-{next(self._numbers)}.bin"
        with room_is_said(self.path), path.open("wb") as file:
            file.truncate(size)
        return path

    def _told(self, shown: str, results: Iterable[Result], total: int) -> Iterator[Result]:
        for done, result in enumerate(results, 1):
            if shown:
                self._progress(shown, done, total)
            yield result


@cache
def _settle() -> None:
    """Let BLAS use one thread in this process from now on, so that results do not depend on their number."""
    ONE_BLAS_THREAD.__enter__()
    keep_freed_memory()


class _OnWorker:
    """Apply a function on a worker, with one thread for BLAS."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, job: Any) -> Any:
        _settle()
        return self.function(job)


class _Numbered(_OnWorker):
    """Apply a function to the second of a pair."""

    def __call__(self, job: tuple[int, Any]) -> tuple[int, Any]:
        return job[0], super().__call__(job[1])


@contextmanager
def work_folder(
    parent: Path, workers: int | None, scheduler: str | None, progress: Progress | None = None
) -> Iterator[WorkFolder]:
    """Yield a folder for a run, which is removed at the end, and its workers.

    Meanwhile BLAS has one thread here, as on workers: the last bits of a product depend on how threads divide it.

    Parameters
    ----------
    parent : Path
        Where to make it; workers on other machines must reach it by the same path.
    workers, scheduler
        Processes of this machine, or the address of a Dask scheduler; neither: threads of this process.
    progress : callable, optional
        Called with what is being done, parts done and parts in all.
    """
    with room_is_said(parent):
        parent.mkdir(parents=True, exist_ok=True)
        made = TemporaryDirectory(prefix=".sinkshot-work-", dir=parent, ignore_cleanup_errors=True)
    version = package_version() if scheduler else ""
    with made as path, ONE_BLAS_THREAD, crew(workers, scheduler, version) as client:
        work = WorkFolder(Path(path).resolve(), client, progress)
        try:
            yield work
        finally:
            work.close()


@contextmanager
def room_is_said(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a sentence that names the folder."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        full = error.errno is None and "written" in str(error)  # NumPy's `tofile` does not tell why
        reason = os.strerror(errno.ENOSPC) if full else error.strerror or error
        raise InputError(f"{folder}: {reason}; a run on a pool in parts keeps its files there.") from None


def must_fit(folder: Path, size: int) -> None:
    """Refuse a run whose files would not fit."""
    stat = os.statvfs(folder) if hasattr(os, "statvfs") else None
    if stat is not None and stat.f_bavail * stat.f_frsize < size:
        free = stat.f_bavail * stat.f_frsize
        raise InputError(
            f"{folder} has {amount(free)} free, and the run needs about {amount(size)}; choose another with --cache."
        )


def removed_with(owner: object, path: Path) -> None:
    """Remove a file as soon as nothing refers to its owner."""
    weakref.finalize(owner, _remove, path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
