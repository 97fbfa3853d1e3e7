"""Threads of an evaluation: several chunks at a time, and none for the matrices inside them."""

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
    """Keeps BLAS to one thread while any evaluation is inside; the last one out gives the others back."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                import scipy.linalg  # noqa: F401  its BLAS is another than NumPy's, and must be there to be limited
                from threadpoolctl import threadpool_limits

                self.limit = threadpool_limits(1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


ONE_BLAS_THREAD = _OneBlasThread()


LIMIT = "SINKSHOT_THREADS"  # of the environment: cores that a process may use, where others have theirs


def available() -> int:
    """Cores of the machine that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores() -> int:
    """Cores that this process takes: all that are available, or its share of them."""
    given = os.environ.get(LIMIT, "")
    return min(available(), max(1, int(given))) if given.isdigit() else available()


def in_order(work: Callable[[Item], Answer], items: Iterable[Item], threads: int) -> Iterator[Answer]:
    """Yield work(item) for each item in turn, a few of them in the making at any time."""
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
