"""Work on parts of something large: in this process, in processes of this machine, or on a Dask cluster.

`each` gives every job to a function and yields its results as they come; `together` waits for a few short ones. A job
and its result must be picklable and a job done twice must do no harm: where a worker dies, another one does its job
again.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sinkshot.errors import InputError
from sinkshot.threads import available

Job = TypeVar("Job")
Result = TypeVar("Result")

RETRIES = 2  # of a job that fails unexpectedly on a worker
_PATIENCE = 10.0  # seconds for a scheduler to answer and to have a worker
_LOOK = 5.0  # seconds between checks for remaining workers
_PAUSE = 0.001, 0.02  # seconds between looks, doubled from the first to the second
_AHEAD = 4  # jobs per worker that are sent ahead, so that a million jobs take no memory
_STARTS = 3  # attempts to start local workers
_KEPT_MEMORY = {-1: 256 << 20, -3: 32 << 20}  # mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, its largest
_KEPT = "Finished parts are kept; run again to continue."


@contextmanager
def crew(workers: int | None = None, scheduler: str | None = None, version: str = "") -> Iterator[Any]:
    """Yield a Dask client of a cluster or of `workers` local processes; None if neither is given.

    Parameters
    ----------
    workers : int, optional
        Processes of this machine, each with one thread; they end with the block.
    scheduler : str, optional
        The address of a scheduler, such as tcp://10.0.0.1:8786.
    version : str
        The local `code_version`: workers that run other code are refused.
    """
    if workers is not None and scheduler is not None:
        raise InputError("--workers starts processes here and --scheduler uses a cluster; give one of them.")
    if scheduler is not None:
        with connect(scheduler) as client:
            check_code(client, version)
            yield client
    elif workers is not None:
        with _local(workers) as client:
            yield client
    else:
        yield None


def each(
    client: Any, function: Callable[[Job], Result], jobs: Iterable[Job], retries: int = RETRIES
) -> Generator[tuple[Job, Result]]:
    """Yield jobs with their results as they finish; without a client, run them here, in order.

    An InputError of a job ends the work. Only a few jobs per worker are sent ahead.
    """
    if client is None:
        for job in jobs:
            yield job, function(job)
        return
    from distributed import as_completed

    coming, sent = iter(jobs), {}
    finished = as_completed(loop=client.loop)

    def send(count: int) -> None:
        for _, job in zip(range(count), coming, strict=False):
            future = client.submit(_guarded, function, job, pure=False, retries=retries)
            sent[future] = job
            finished.add(future)

    send(_AHEAD * max(1, len(client.nthreads())))
    try:
        for future in as_they_come(finished, client):
            job, outcome = sent.pop(future), result_of(future, _KEPT)
            if isinstance(outcome, InputError):
                raise outcome
            send(max(1, _AHEAD * len(client.nthreads()) - len(sent)))
            yield job, outcome
    finally:
        client.cancel(list(sent))


def together(
    client: Any, function: Callable[[Job], Result], jobs: Sequence[Job], retries: int = RETRIES
) -> list[Result]:
    """Return the results of a few short jobs, in order: sent at once and fetched at once, which `each` is too slow for.

    An InputError of a job ends the work.
    """
    futures = client.map(partial(_guarded, function), jobs, pure=False, retries=retries)
    try:
        outcomes = client.gather(futures, direct=False)
    except BaseException:
        for future in futures:
            if future.done() and future.status != "finished":
                result_of(future, _KEPT)  # raises what can be said of it
        raise
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            raise outcome
    return list(outcomes)


def connect(address: str) -> Any:
    """Connect to a scheduler that has at least one worker."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs Dask, which is not installed: pip install 'sinkshot[dask]'.") from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # `result_of` reports what happens
    try:
        asyncio.run(_greet(address))
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = f" ({error})" if str(error) else ""
        raise InputError(
            f"no Dask scheduler answers at {address!r}{reason}; `dask scheduler` starts one and prints its address."
        ) from None
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        client.close()
        raise InputError(
            f"the Dask scheduler at {address} has no workers; start one with `dask worker {address}`."
        ) from None
    return client


def check_code(client: Any, version: str) -> None:
    """Refuse workers whose sinkshot is another version, or that have none."""
    for worker, found in client.run(package_version, on_error="return").items():
        if isinstance(found, Exception):
            raise InputError(
                f"the worker {worker} cannot be used ({found}); install the same version of sinkshot there."
            )
        if found != version:
            raise InputError(f"the worker {worker} runs sinkshot {found}, not {version}; install the same there.")


def package_version() -> str:
    """Return the version of this package with a digest of all its sources."""
    import hashlib
    from importlib import import_module
    from pathlib import Path

    digest, root = hashlib.sha256(), Path(__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0")
        digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return f"{import_module('sinkshot').__version__}+{digest.hexdigest()[:12]}"


def as_they_come(finished: Any, client: Any) -> Generator[Any]:
    """Yield finished futures, and log it if no workers are left."""
    looked, alone, pause = time.monotonic(), False, _PAUSE[0]
    while not finished.is_empty():
        if finished.has_ready():
            alone, pause = False, _PAUSE[0]
            yield next(finished)
            looked = time.monotonic()
            continue
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE[1])
        if time.monotonic() - looked > _LOOK and client.status == "running":
            looked = time.monotonic()
            if not client.nthreads() and not alone:
                alone = True
                logging.getLogger("sinkshot").info("the cluster has no workers left; waiting for new ones")


def result_of(future: Any, kept: str) -> Any:
    """Return the result of a worker, or raise an InputError that says what happened; `kept` ends its sentence."""
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise InputError(
            f"several workers died on the same task, perhaps out of memory (the last one was "
            f"{error.last_worker.address}). {kept}"
        ) from None
    except (TimeoutError, OSError) as error:
        raise InputError(f"lost the connection to the cluster ({error}). {kept}") from None
    except BaseException as error:
        if future.cancelled():
            raise InputError(f"the Dask scheduler stopped, or cancelled the run. {kept}") from None
        if "deserialization" in str(error):
            raise InputError(
                "the Dask scheduler cannot read the tasks: install the same packages there as here, sinkshot included."
            ) from None
        raise


@contextmanager
def _local(workers: int) -> Iterator[Any]:
    """Start a scheduler on the loopback and `workers` processes, which share the cores."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--workers needs Dask, which is not installed: pip install 'sinkshot[dask]'.") from None
    if workers < 1:
        raise InputError(f"--workers must be at least 1; {workers} was given.")
    threads = str(max(1, available() // workers))
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    with _processes(workers, limits) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def _processes(workers: int, limits: dict[str, str]) -> Any:
    """Start a local cluster; once more if a process dies while it starts."""
    from distributed import LocalCluster

    options = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "silence_logs": logging.ERROR}
    for _ in range(_STARTS):
        try:
            return LocalCluster(n_workers=workers, threads_per_worker=1, env=limits, **options)
        except RuntimeError as error:  # "Nanny failed to start."
            reason = error
    raise InputError(f"the {workers} processes of --workers cannot be started ({reason}).")


async def _greet(address: str) -> None:
    """Fail if nothing at the address speaks Dask: a client would wait forever."""
    from distributed.comm import connect as connect_to
    from distributed.security import Security

    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect_to(address, timeout=_PATIENCE, **options), _PATIENCE)
    await comm.close()


# --- on a worker -----------------------------------------------------------------------------------------------------


def keep_freed_memory() -> None:
    """Let the C library keep up to 256 MiB that arrays free, where it is glibc, instead of giving them back at once.

    Dask's workers give back every array above 128 KiB, and the next one comes as pages that the system must clear:
    finding neighbours took twice the processor time that it takes outside of them.
    """
    import ctypes

    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option, size in _KEPT_MEMORY.items():
            mallopt(option, size)


def _guarded(function: Callable[[Any], Any], job: Any) -> Any:
    """Do a job; return an InputError rather than raise it, since a retry would not help."""
    try:
        return function(job)
    except InputError as error:
        return error
