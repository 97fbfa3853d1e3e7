"""Compute chunks on this machine: in this process, or in several that are replaced when one dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from sinkshot.errors import DataWarning, InputError
from sinkshot.studies.bank_source import UnsuitableWorker
from sinkshot.studies.chunks import Chunk, ChunkResult, compute
from sinkshot.threads import LIMIT, available

Done = tuple[Chunk, ChunkResult | InputError]
"""A chunk and what came of it: its numbers, or why they cannot be had."""

TRIES = 3  # of a chunk whose process died


def in_this_process(chunks: Iterable[Chunk]) -> Generator[Done]:
    """Compute chunks one after the other."""
    for chunk in chunks:
        try:
            part = compute(chunk)
        except UnsuitableWorker:
            raise
        except InputError as error:
            yield chunk, error
        else:
            yield chunk, part


def in_processes(chunks: Iterable[Chunk], workers: int) -> Generator[Done]:
    """Compute chunks in so many processes, which end with this one, however it ends.

    A process that dies takes the others of its pool with it; what they were computing is begun again in a new pool.
    """
    coming = iter(chunks)
    again: deque[tuple[Chunk, int]] = deque()  # with the tries so far
    while True:
        with _pool(workers) as pool:
            running: dict[Future[tuple[ChunkResult, list[str]]], tuple[Chunk, int]] = {}
            try:
                while True:
                    while len(running) < 2 * workers and _refill(again, coming):
                        with _interrupts_held_back():
                            future = pool.submit(_compute, again[0][0])
                        running[future] = again.popleft()
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        chunk = running[future][0]
                        outcome = _outcome(future)
                        del running[future]
                        yield chunk, outcome
            except BrokenProcessPool:
                again.extendleft(_once_more(chunk, tries) for chunk, tries in reversed(running.values()))


def _refill(again: deque[tuple[Chunk, int]], coming: Iterator[Chunk]) -> bool:
    """See that there is a chunk to begin, if any is left."""
    if not again:
        again.extend((chunk, 0) for chunk in islice(coming, 1))
    return bool(again)


def _once_more(chunk: Chunk, tries: int) -> tuple[Chunk, int]:
    if tries + 1 == TRIES:
        cell = chunk.resolved.cell
        raise InputError(
            f"a process that computed {cell.method} on {cell.bank} was killed {TRIES} times, perhaps for want of "
            "memory. What is finished is kept; run again with fewer --workers."
        )
    return chunk, tries + 1


def _outcome(future: Future[tuple[ChunkResult, list[str]]]) -> ChunkResult | InputError:
    try:
        part, messages = future.result()
    except UnsuitableWorker:
        raise
    except InputError as error:
        return error
    for message in messages:
        warnings.warn(message, DataWarning, stacklevel=1)
    return part


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give out a pool whose processes live as long as a pipe from here is open."""
    end, lifeline = multiprocessing.Pipe(duplex=False)
    threads = max(1, available() // workers)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(end, threads))
    try:
        yield pool
    finally:
        lifeline.close()  # nobody waits for what is still being computed: nothing is, or this was interrupted
        pool.shutdown(wait=True, cancel_futures=True)
        end.close()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C wait for a moment; a process that is started meanwhile never sees it: it is for this one to end.

    Ignoring it for that moment would lose it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts, it lets signals through
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))  # where another thread gets it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _begin(lifeline: Connection, threads: int) -> None:
    """Prepare a worker: as many threads as its share of the cores, and an end when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)  # numba is not imported yet
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ[LIMIT] = str(threads)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv()
    os._exit(1)


def _compute(chunk: Chunk) -> tuple[ChunkResult, list[str]]:
    """Compute a chunk and bring home what there was to be warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        part = compute(chunk)
    return part, [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
