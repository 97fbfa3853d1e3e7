"""Compute chunks on a Dask cluster, however it was started.

A task names files and episodes. A worker opens the files once, if it can. If it cannot, the bank becomes a task of its
own, on which the chunks depend: Dask sends its result to each worker once, and recomputes it if all copies are lost.
Dask also restarts what a worker was computing when it died.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Generator, Iterable
from typing import Any

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.studies.bank_source import BankSource, UnsuitableWorker
from sinkshot.studies.chunks import Chunk, ChunkResult, CodeMismatch, compute, version_here
from sinkshot.studies.processes import Done
from sinkshot.workers import RETRIES, as_they_come, connect, result_of

_KEPT = "Finished cells are kept; run again to continue."


def on_cluster(chunks: Iterable[Chunk], address: str) -> Generator[Done]:
    """Compute chunks on the workers of the scheduler at an address such as tcp://10.0.0.1:8786."""
    with connect(address) as client:
        from distributed import as_completed

        futures: dict[Any, Chunk] = {}
        banks: dict[str, Any] = {}  # futures of banks that some worker cannot open, by content
        for chunk in chunks:
            if not futures:
                _check_code(client, chunk)
            futures[_submit(client, chunk, banks)] = chunk
        finished = as_completed(futures, loop=client.loop)
        for future in as_they_come(finished, client):
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


def _check_code(client: Any, chunk: Chunk) -> None:
    """Refuse workers with other code, or without it; workers that join later are checked with their first chunk."""
    for worker, found in client.run(version_here, chunk, on_error="return").items():
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
    return client.submit(_compute, chunk, bank, base, pure=False, retries=RETRIES)


def _send(client: Any, source: BankSource) -> Any:
    """Make a bank the result of a task, which Dask can recompute."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # that is the purpose
        return client.submit(_bank, source.open(), key=f"sinkshot-bank-{source.content}")


def _outcome(future: Any) -> ChunkResult | InputError:
    """Return the result of a worker, or raise an InputError that says what happened to the task."""
    outcome: ChunkResult | InputError = result_of(future, _KEPT)
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
