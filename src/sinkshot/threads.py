"""Threads of an evaluation: several chunks run in parallel, each with one BLAS thread."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _OneBlasThread:
    """Limits BLAS to one thread while any evaluation runs; the last one to end restores the limit."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                import scipy.linalg  # noqa: F401  its BLAS is not NumPy's, and must be loaded to be limited
                from threadpoolctl import threadpool_limits

                self.limit = threadpool_limits(1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


ONE_BLAS_THREAD = _OneBlasThread()


LIMIT = "SINKSHOT_THREADS"  # environment variable: the number of cores that this process may use


def available() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores() -> int:
    """Number of cores that this process uses: all available ones, or its share."""
    given = os.environ.get(LIMIT, "")
    return min(available(), max(1, int(given))) if given.isdigit() else available()


def in_order(work: Callable[[Item], Answer], items: Iterable[Item], threads: int) -> Iterator[Answer]:
    """Yield work(item) for each item in order, computing a few of them ahead in threads."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Answer]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
