"""Compute chunks on this machine: in this process, or in several that are replaced when one dies."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from sinkshot.errors import DataWarning, InputError
from sinkshot.studies.bank_source import UnsuitableWorker
from sinkshot.studies.chunks import Chunk, ChunkResult, compute
from sinkshot.threads import LIMIT, available

Done = tuple[Chunk, ChunkResult | InputError]
"""A chunk and its result, or why it cannot be computed."""

TRIES = 3  # of a chunk whose process died

_Answer = tuple[ChunkResult, list[str]] | Exception
"""The numbers of a chunk with what there was to be warned of, or what went wrong."""

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


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


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, and the chunk that it computes, with the tries before this one."""

    process: SpawnProcess
    pipe: Connection
    chunk: Chunk
    tries: int


def in_processes(chunks: Iterable[Chunk], workers: int) -> Generator[Done]:
    """Compute chunks in this many processes, which end when this one does.

    A process that dies is replaced, and its chunk is begun again.
    """
    coming = iter(chunks)
    again: deque[tuple[Chunk, int]] = deque()  # with the tries so far
    threads = max(1, available() // workers)
    busy: list[_Worker] = []
    try:
        while True:
            while len(busy) < workers and _refill(again, coming):
                busy.append(_start(*again.popleft(), threads))
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                chunk = worker.chunk
                try:
                    answer: _Answer = worker.pipe.recv()
                except (EOFError, OSError):  # it died
                    busy.remove(worker)
                    again.append(_once_more(worker))
                    continue
                if _refill(again, coming):
                    worker.chunk, worker.tries = again.popleft()
                    _send(worker)
                else:
                    busy.remove(worker)
                    _end([worker])
                yield chunk, _outcome(answer)
    finally:
        _end(busy)


def _refill(again: deque[tuple[Chunk, int]], coming: Iterator[Chunk]) -> bool:
    """Make sure that a chunk is waiting, if any is left."""
    if not again:
        again.extend((chunk, 0) for chunk in islice(coming, 1))
    return bool(again)


def _start(chunk: Chunk, tries: int, threads: int) -> _Worker:
    """Start a process and give it its first chunk."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, threads), daemon=True)
    with _signals_held_back():
        process.start()
    theirs.close()  # so that its end is the end of the pipe
    worker = _Worker(process, ours, chunk, tries)
    _send(worker)
    return worker


def _send(worker: _Worker) -> None:
    """Hand a chunk to a process; one that has died is met when its answer is read."""
    try:
        worker.pipe.send(worker.chunk)
    except OSError:
        return


def _end(workers: Iterable[_Worker]) -> None:
    """End processes without waiting for what they compute: it is done, or nobody wants it any more."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.pipe.close()


def _once_more(worker: _Worker) -> tuple[Chunk, int]:
    """Return the chunk of a process that died, to be tried again unless it was tried too often."""
    worker.process.join()
    worker.pipe.close()
    chunk, tries = worker.chunk, worker.tries + 1
    if tries == TRIES:
        cell, code = chunk.resolved.cell, worker.process.exitcode
        bus = code == -getattr(signal, "SIGBUS", 0)
        cause = "a file that it read was cut short, or its disk failed" if bus else "perhaps memory ran out"
        advice = "look at the features" if bus else "run again with fewer --workers"
        raise InputError(
            f"a process that computed {cell.method} on {cell.bank} was killed {TRIES} times: {cause}. "
            f"Finished cells are kept; {advice}."
        )
    return chunk, tries


def _outcome(answer: _Answer) -> ChunkResult | InputError:
    if isinstance(answer, InputError) and not isinstance(answer, UnsuitableWorker):
        return answer
    if isinstance(answer, Exception):
        raise answer
    result, messages = answer
    for message in messages:
        warnings.warn(message, DataWarning, stacklevel=1)
    return result


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Delay Ctrl-C and similar signals; a process started inside the `with` ignores them.

    Ignoring them for that moment would lose them.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts, it lets signals through
    sent: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:  # where another thread gets them
        signal.signal(number, lambda number, _: sent.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in sent:
            signal.raise_signal(number)


# --- in a worker -----------------------------------------------------------------------------------------------------


def _work(pipe: Connection, threads: int) -> None:
    """Compute chunks until nobody sends any: with its share of the cores, and no longer than its parent lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.environ["NUMBA_NUM_THREADS"] = str(threads)  # numba is not imported yet
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ[LIMIT] = str(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            chunk: Chunk = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(chunk))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _answer(chunk: Chunk) -> _Answer:
    """Compute a chunk; an error comes home with where it happened."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            result = compute(chunk)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # of a library whose errors do not travel
            return RuntimeError(f"{type(error).__name__}: {error}")
        return error
    return result, [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
