"""Compute chunks on a Dask cluster, however it was started.

A task names files and episodes. A worker opens the files once, if it can. If it cannot, the bank becomes a task of its
own, on which the chunks depend: Dask sends its result to each worker once, and recomputes it if all copies are lost.
Dask also restarts what a worker was computing when it died.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import warnings
from collections.abc import Generator, Iterable
from typing import Any

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.studies.bank_source import BankSource, UnsuitableWorker
from sinkshot.studies.chunks import Chunk, ChunkResult, CodeMismatch, compute
from sinkshot.studies.code_version import code_version
from sinkshot.studies.processes import Done

_RETRIES = 2  # of a chunk that fails unexpectedly on a worker
_PATIENCE = 10.0  # seconds for a scheduler to answer and to have a worker
_LOOK = 5.0  # seconds between checks for remaining workers
_PAUSE = 0.02
_KEPT = "Finished cells are kept; run again to continue."


def on_cluster(chunks: Iterable[Chunk], address: str) -> Generator[Done]:
    """Compute chunks on the workers of the scheduler at an address such as tcp://10.0.0.1:8786."""
    with _connected(address) as client:
        from distributed import as_completed

        futures: dict[Any, Chunk] = {}
        banks: dict[str, Any] = {}  # futures of banks that some worker cannot open, by content
        for chunk in chunks:
            if not futures:
                _check_code(client, chunk)
            futures[_submit(client, chunk, banks)] = chunk
        finished = as_completed(futures, loop=client.loop)
        for future in _as_they_come(finished, client):
            chunk, outcome = futures.pop(future), _outcome(future)
            if not isinstance(outcome, UnsuitableWorker):
                yield chunk, outcome
                continue
            for source in filter(None, (chunk.resolved.bank, chunk.resolved.base)):
                if source.content not in banks:
                    banks[source.content] = _send(client, source)
            again = _submit(client, chunk, banks)
            futures[again] = chunk
            finished.add(again)


def _connected(address: str) -> Any:
    """Connect to a scheduler that has at least one worker."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs Dask, which is not installed: pip install 'sinkshot[dask]'.") from None
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


async def _greet(address: str) -> None:
    """Fail if nothing at the address speaks Dask: a client would wait forever."""
    from distributed.comm import connect
    from distributed.security import Security

    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=_PATIENCE, **options), _PATIENCE)
    await comm.close()


def _check_code(client: Any, chunk: Chunk) -> None:
    """Refuse workers with other code, or without it; workers that join later are checked with their first chunk."""
    for worker, found in client.run(code_version, chunk.resolved.cell.method, on_error="return").items():
        if isinstance(found, Exception):
            raise InputError(
                f"the worker {worker} cannot compute ({found}); install the same version of sinkshot there."
            )
        if found != chunk.resolved.version:
            raise InputError(
                f"the worker {worker} runs sinkshot {found}, not {chunk.resolved.version}; install the same there."
            )


def _submit(client: Any, chunk: Chunk, banks: dict[str, Any]) -> Any:
    bank = banks.get(chunk.resolved.bank.content)
    base = None if chunk.resolved.base is None else banks.get(chunk.resolved.base.content)
    return client.submit(_compute, chunk, bank, base, pure=False, retries=_RETRIES)


def _send(client: Any, source: BankSource) -> Any:
    """Make a bank the result of a task, which Dask can recompute."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # that is the purpose
        return client.submit(_bank, source.open(), key=f"sinkshot-bank-{source.content}")


def _as_they_come(finished: Any, client: Any) -> Generator[Any]:
    """Yield finished futures, and log it if no workers are left."""
    looked, alone = time.monotonic(), False
    while not finished.is_empty():
        if finished.has_ready():
            alone = False
            yield next(finished)
            looked = time.monotonic()
            continue
        time.sleep(_PAUSE)
        if time.monotonic() - looked > _LOOK and client.status == "running":
            looked = time.monotonic()
            if not client.nthreads() and not alone:
                alone = True
                logging.getLogger("sinkshot").info("the cluster has no workers left; waiting for new ones")


def _outcome(future: Any) -> ChunkResult | InputError:
    """Return the result of a worker, or raise an InputError that says what happened to the task."""
    from distributed import KilledWorker

    try:
        outcome: ChunkResult | InputError = future.result()
    except KilledWorker as error:
        raise InputError(
            f"several workers died on the same chunk, perhaps out of memory (the last one was "
            f"{error.last_worker.address}). {_KEPT}"
        ) from None
    except (TimeoutError, OSError) as error:
        raise InputError(f"lost the connection to the cluster ({error}). {_KEPT}") from None
    except BaseException as error:
        if future.cancelled():
            raise InputError(f"the Dask scheduler stopped, or cancelled the run. {_KEPT}") from None
        if "deserialization" in str(error):
            raise InputError(
                "the Dask scheduler cannot read the tasks: install the same packages there as here, sinkshot included."
            ) from None
        raise
    if isinstance(outcome, CodeMismatch):
        raise InputError(f"{outcome} {_KEPT}")
    return outcome


# --- on a worker ----------------------------------------------------------------------------------------------------

_NOT_HERE: set[BankSource] = set()  # banks that this worker could not open


def _bank(bank: FeatureBank) -> FeatureBank:
    return bank


def _compute(chunk: Chunk, bank: FeatureBank | None, base: FeatureBank | None) -> ChunkResult | InputError:
    """Compute a chunk in one thread; an InputError is returned, not raised."""
    from numba import config

    config.NUMBA_NUM_THREADS = 1
    try:
        if bank is None and chunk.resolved.bank in _NOT_HERE:
            raise UnsuitableWorker("tried before")
        return compute(chunk, bank, base)
    except CodeMismatch as error:
        return CodeMismatch(
            f"the worker on {socket.gethostname()} cannot help: {error}; install one version everywhere."
        )
    except UnsuitableWorker as error:
        _NOT_HERE.add(chunk.resolved.bank)
        return error
    except InputError as error:
        return error
