"""Direct connections from the command to the workers of a Dask cluster, for passes that take a few milliseconds.

A method makes some 230 passes over a pool, one after the other. Telling a scheduler of each, and it the workers, costs
more than many of them. So every worker listens on a port of its own, the command connects to it once, and a pass is
one message to each worker and one back. The messages of a pass are the same bytes, pickled once; a head says which of
its jobs are to be done.

A worker whose connection breaks has died, or cannot be reached: its jobs are done again by way of the scheduler, and
connections are made again with the workers that there are then. A worker reads nothing before it was shown a token that
came to it by way of the scheduler.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sinkshot.errors import InputError
from sinkshot.workers import together

Job = TypeVar("Job")
Result = TypeVar("Result")

_PATIENCE = 5.0  # seconds to connect
_WAITING = 60.0  # seconds that a worker waits for the command
_LOOK = 1.0  # seconds between looks at who works
_HEAD = struct.Struct("<QII")  # bytes of a message, and the first and last job that it asks for
_TOKEN = 32  # bytes
_ALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 30_000,
}  # a lost machine is seen


@dataclass(frozen=True)
class WorkerLine:
    """A connection to a worker."""

    worker: str
    connection: socket.socket


class DirectLines:
    """Connections to all workers of a client, made anew whenever these change."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._lines: list[WorkerLine] = []
        self._tried: set[str] = set()  # workers at the last attempt to connect
        self._looked, self._there = float("-inf"), dict[str, int]()

    def workers(self) -> dict[str, int]:
        """Return the addresses of the workers and their threads, at most a second old."""
        if time.monotonic() - self._looked > _LOOK:
            self._there, self._looked = dict(self.client.nthreads()), time.monotonic()
        return self._there

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Return the results of jobs, in order; an InputError of a job ends the work."""
        if self.workers().keys() != self._tried:
            self._connect()
        lines, message = list(self._lines), pickle.dumps((function, jobs), pickle.HIGHEST_PROTOCOL)
        cuts = [len(jobs) * number // len(lines) for number in range(len(lines) + 1)] if lines else []
        asked = [(line, first, last) for line, first, last in zip(lines, cuts, cuts[1:], strict=False) if last > first]
        sent = [(line, first, last) for line, first, last in asked if self._send(line, message, first, last)]
        found: dict[int, Result] = {}
        for line, first, last in sent:
            results = self._receive(line)
            if results is not None:
                found.update(zip(range(first, last), results, strict=True))
        missing = [number for number in range(len(jobs)) if number not in found]
        if missing:  # also where there is no line at all
            again = together(self.client, function, [jobs[number] for number in missing])
            found.update(zip(missing, again, strict=True))
        for result in found.values():
            if isinstance(result, InputError):
                raise result
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        """Hang up; the workers then stop to listen."""
        for line in self._lines:
            line.connection.close()
        self._lines, self._tried = [], set()

    def _connect(self) -> None:
        """Connect to all workers that can be reached; others are left to the scheduler."""
        self.close()
        self._tried = set(self.workers())
        plain = [worker for worker in self._tried if worker.startswith("tcp://")]  # others want to be encrypted
        token = secrets.token_bytes(_TOKEN)
        try:
            ports = self.client.run(listen, token, workers=plain, on_error="ignore") if plain else {}
        except (OSError, ValueError, TimeoutError):  # a worker has just gone
            ports = {}
        for worker in sorted(ports):
            try:
                address = urlsplit(worker).hostname, ports[worker]
                connection = socket.create_connection(address, timeout=_PATIENCE)
                connection.sendall(token)
            except OSError:
                continue
            _tune(connection)
            self._lines.append(WorkerLine(worker, connection))

    def _send(self, line: WorkerLine, message: bytes, first: int, last: int) -> bool:
        try:
            line.connection.sendall(_HEAD.pack(len(message), first, last))
            line.connection.sendall(message)
        except OSError:
            self._drop(line)
            return False
        return True

    def _receive(self, line: WorkerLine) -> list[Any] | None:
        """Return the results of a worker, or None if it was lost or one of its jobs failed."""
        try:
            message = _read_message(line.connection)
        except OSError:
            message = None
        if message is None:
            self._drop(line)
            return None
        results: list[Any] | None = pickle.loads(message[2])
        return results

    def _drop(self, line: WorkerLine) -> None:
        line.connection.close()
        self._lines.remove(line)
        self._tried, self._looked = set(), float("-inf")  # connect again before the next pass


def _tune(connection: socket.socket) -> None:
    """Send at once, wait without limit, and notice a machine that no longer answers."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _read(connection: socket.socket, count: int) -> bytearray | None:
    """Read so many bytes; None where the other side has hung up."""
    found, done = bytearray(count), 0
    while done < count:
        got = connection.recv_into(memoryview(found)[done:])
        if not got:
            return None
        done += got
    return found


def _read_message(connection: socket.socket) -> tuple[int, int, bytearray] | None:
    head = _read(connection, _HEAD.size)
    if head is None:
        return None
    size, first, last = _HEAD.unpack(head)
    body = _read(connection, size)
    return None if body is None else (first, last, body)


# --- on a worker -----------------------------------------------------------------------------------------------------


def listen(token: bytes, dask_worker: Any) -> int:
    """Wait in a thread for the command, which shows the token, and do what it asks for; return the port."""
    host = urlsplit(dask_worker.address).hostname
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    listening = socket.create_server((host or "", 0), family=family)
    listening.settimeout(_WAITING)
    threads = max(1, int(dask_worker.state.nthreads))
    threading.Thread(target=_serve, args=(listening, token, threads), daemon=True).start()
    return int(listening.getsockname()[1])


def _serve(listening: socket.socket, token: bytes, threads: int) -> None:
    """Do the jobs of the first who shows the token, until the connection ends."""
    with listening:
        connection = _accepted(listening, token)
    if connection is None:
        return
    with connection, ThreadPoolExecutor(threads) as pool:
        try:
            while (asked := _read_message(connection)) is not None:
                answer = pickle.dumps(_done(*asked, pool if threads > 1 else None), pickle.HIGHEST_PROTOCOL)
                connection.sendall(_HEAD.pack(len(answer), 0, 0))
                connection.sendall(answer)
        except OSError:
            return  # the command is gone


def _accepted(listening: socket.socket, token: bytes) -> socket.socket | None:
    until = time.monotonic() + _WAITING
    while time.monotonic() < until:
        try:
            connection, _ = listening.accept()
        except OSError:
            return None
        try:
            connection.settimeout(_PATIENCE)
            shown = _read(connection, len(token))
        except OSError:
            shown = None
        if shown is not None and hmac.compare_digest(shown, token):
            _tune(connection)
            return connection
        connection.close()
    return None


def _done(first: int, last: int, message: bytearray, pool: ThreadPoolExecutor | None) -> list[Any] | None:
    """Do some of the jobs; None where one fails: it is then tried again by way of the scheduler, which tells why."""
    try:
        function, jobs = pickle.loads(message)
        return list((map if pool is None else pool.map)(_Guarded(function), jobs[first:last]))
    except Exception:
        return None


class _Guarded:
    """Do a job; return an InputError rather than raise it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, job: Any) -> Any:
        try:
            return self.function(job)
        except InputError as error:
            return error
