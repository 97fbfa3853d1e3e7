"""From the command to the browser: one server for one folder, on this machine alone, until Ctrl+C."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from sinkshot.errors import InputError
from sinkshot.foreign.folders import is_address
from sinkshot.label.run import Progress, Tell, prepare
from sinkshot.locks import alone
from sinkshot.review.child_process import ProcessEndedError
from sinkshot.review.desk import Desk, Keeper, KeeperSetup
from sinkshot.review.fit_process import Setup

HOST = "127.0.0.1"
LOCK = ".review.lock"
_BUSY = "the folder {0} is being reviewed"
_OTHERWISE = "choose another folder with --out"
_MOST_CONNECTIONS = 512
_UVICORN: dict[str, Any] = {
    "log_level": "critical",
    "access_log": False,
    "server_header": False,
    "lifespan": "off",
    "timeout_graceful_shutdown": 2,
    "ws": "none",
    "loop": "asyncio",
    "http": "h11",
}
_SWITCH = 0.001  # seconds after which Python's threads take turns, so that pictures do not hold up an answer


def review(
    source: Any,
    *,
    out: str | os.PathLike[str],
    port: int = 0,
    open_browser: bool = True,
    method: str = "sinkshot",
    unknown: float | None = 0.5,
    next_count: int = 10,
    announce: Callable[[str], None],
    tell: Tell,
    progress: Progress | None = None,
    **input_options: Any,
) -> None:
    """Serve the review of an input until the process is interrupted.

    Parameters
    ----------
    source : path
        What `label` takes.
    out : path
        The folder of results, in which decisions are kept; on this machine.
    port : int
        Where to listen; 0 takes a free one.
    open_browser : bool
        Whether to open the page in the browser of this machine.
    method, unknown, next_count
        As in `label`.
    announce : callable
        Called once with the address.
    tell, progress : callable
        As in `label`.
    **input_options
        Further parameters of `sinkshot.label.run.prepare`.
    """
    _must_be_installed()
    folder = _folder(out)
    with _listening(port) as listening, _alone(folder, listening), Keeper() as keeper:
        items, features, facts = prepare(source, skip=folder, tell=tell, progress=progress, **input_options)
        desk = Desk(keeper, KeeperSetup(items, folder, Setup(features, method, unknown, next_count)))
        try:
            if desk.log.decisions:
                tell(f"{desk.log.path}: {len(desk.log.decisions):,} earlier decisions are used")
            _serve(desk, listening, announce, open_browser)
            accepted, count = _finish(desk, {"method": method, "threshold": unknown, **facts})
        finally:
            desk.log.close()
        tell(f"the review has ended: {folder / 'labels.csv'} has {accepted:,} accepted labels of {count:,} items")


def _folder(out: str | os.PathLike[str]) -> Path:
    """Return the folder of results, made where it is missing."""
    if is_address(out):
        raise InputError(f"decisions are kept on this machine; --out takes a folder here, but {out} was given.")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be created: {error.strerror or error}.") from None
    return folder


def _must_be_installed() -> None:
    try:
        import starlette
        import uvicorn
    except ImportError:
        raise InputError('a review needs Starlette and uvicorn: pip install "sinkshot[app]".') from None
    del starlette, uvicorn


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """Hold a socket on the loopback address."""
    if not 0 <= port <= 65_535:
        raise InputError(f"--port must be a number from 0 (any free port) to 65535; {port} was given.")
    # The protocol is named, since asyncio sends at once (TCP_NODELAY) only then; else half of an answer waits 40 ms.
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))
    except OSError as error:
        held.close()
        reason = error.strerror or error
        raise InputError(f"port {port} cannot be used: {reason}. Leave --port out to get a free one.") from None
    with contextlib.closing(held):
        yield held


def _alone(out: Path, listening: socket.socket) -> contextlib.AbstractContextManager[None]:
    at = f"http://{HOST}:{listening.getsockname()[1]}"
    return alone(out / LOCK, _BUSY.format(out), _OTHERWISE, at)


def _serve(desk: Desk, listening: socket.socket, announce: Callable[[str], None], open_browser: bool) -> None:
    """Answer until a signal comes."""
    import uvicorn

    from sinkshot.review.app import Application, Listeners
    from sinkshot.review.security import Guard

    listeners = Listeners()
    desk.changed = listeners.tell
    token, port = secrets.token_urlsafe(24), listening.getsockname()[1]
    address = f"http://{HOST}:{port}/{token}/"
    app = Guard(Application(desk, listeners).starlette(), token, port)
    settings = uvicorn.Config(app, limit_concurrency=_MOST_CONNECTIONS, **_UVICORN)

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with _on_signals(stop):  # uvicorn's own raises signals again at the end
                yield

    server = Server(settings)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.should_exit = True
        listeners.close()

    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()  # what is there stays: looking through it again would hold up answers
    listening.listen(_MOST_CONNECTIONS)
    desk.ask("hello")  # the first fit begins
    announce(address)
    if open_browser and _has_display():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    server.run(sockets=[listening])


@contextlib.contextmanager
def _on_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let Ctrl+C and similar signals end the server, not the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(desk: Desk, facts: dict[str, Any]) -> tuple[int, int]:
    """Have the files of `label` written; return how many items are accepted, and of how many."""
    try:
        accepted, count = desk.ask("finish", facts).result()
    except ProcessEndedError:
        raise InputError(
            f"the process that writes {desk.folder / 'labels.csv'} has ended; every decision is in {desk.log.path}. "
            "Start the same command again, or sinkshot label without --review, to write it."
        ) from None
    return accepted, count


def _has_display() -> bool:
    """Whether a browser with windows can be opened; one in the terminal would take it over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
