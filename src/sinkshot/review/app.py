"""The routes of the application: the page, its files, the state, pictures by number, and decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sinkshot.errors import InputError
from sinkshot.foreign import texts
from sinkshot.label.decisions import NotSavedError
from sinkshot.review.child_process import ProcessEndedError
from sinkshot.review.desk import Desk
from sinkshot.review.thumbnails import SIDES, Thumbnails

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
WARM = (0.0, 0.7)  # seconds before each warming of the file of decisions when a page is opened
KEEP_ALIVE = 15.0  # seconds between two signs of life to a page that waits


class Listeners:
    """Pages that wait for something new; threads may call `tell`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiting: set[asyncio.Event] = set()
        self.closed = False

    def tell(self) -> None:
        """Wake all pages."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all waiting."""
        self.closed = True
        self.tell()

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()


class Application:
    """The application of one review.

    Parameters
    ----------
    desk : Desk
    listeners : Listeners
    """

    def __init__(self, desk: Desk, listeners: Listeners) -> None:
        self.desk, self.listeners = desk, listeners
        self.thumbnails = Thumbnails(desk.items.paths)
        self.static = _static_files()
        self.constants = desk.constants()
        self.warming: asyncio.Task[None] | None = None

    def starlette(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/", self.page),
            Route("/static/{name}", self.file),
            Route("/items", self.all_items),
            Route("/state", self.state),
            Route("/events", self.events),
            Route("/item/{row:int}", self.item),
            Route("/picture/{size}/{row:int}", self.picture),
            Route("/search", self.search),
            Route("/history", self.history),
            Route("/decisions", self.decide, methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _not_there})

    async def page(self, _: Request) -> Response:
        """Answer with the page."""
        return self._file("index.html")

    async def file(self, request: Request) -> Response:
        """Answer with a file of the page; they are in memory, and nothing is looked up on the disk."""
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        if name not in self.static:
            raise HTTPException(404)
        content, kind = self.static[name]
        return Response(content, media_type=kind)

    async def all_items(self, _: Request) -> Response:
        """Answer with what never changes: names and texts. A page has been opened, so its first decision is near."""
        self.warming = asyncio.create_task(self._warm())
        return _json(self.constants)

    async def _warm(self) -> None:
        for pause in WARM:
            await asyncio.sleep(pause)
            await run_in_threadpool(self.desk.log.warm)

    async def state(self, _: Request) -> Response:
        """Answer with what is decided and predicted now."""
        return await self._kept("state")

    async def item(self, request: Request) -> Response:
        """Answer with what is known of one item."""
        row = request.path_params["row"]
        if not 0 <= row < len(self.desk.items):
            raise HTTPException(404)
        return await self._kept("item", row)

    async def _kept(self, what: str, *arguments: Any) -> Response:
        """Pass on what the keeper answers."""
        try:
            return _json(await asyncio.wrap_future(self.desk.ask(what, *arguments)))
        except ProcessEndedError:
            return _starts_again()

    async def picture(self, request: Request) -> Response:
        """Answer with the picture of an item."""
        size, row = request.path_params["size"], request.path_params["row"]
        if size not in SIDES:
            raise HTTPException(404)
        found = await run_in_threadpool(self.thumbnails.get, row, size)
        if found is None:
            return Response(self.static["missing.svg"][0], media_type=TYPES[".svg"])
        return Response(found, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    async def search(self, request: Request) -> Response:
        """Answer with the numbers of the items that hold the words."""
        return await self._kept("search", request.query_params.get("q", "")[:500])

    async def history(self, request: Request) -> Response:
        """Answer with decisions, the newest first."""
        before = request.query_params.get("before", "0")
        if not before.isdigit() or len(before) > 12:
            raise HTTPException(404)
        return await self._kept("history", int(before))

    async def decide(self, request: Request) -> Response:
        """Take a decision; the answer comes when it is on the disk."""
        begin = time.perf_counter()
        try:
            told = texts.json_object(await request.body(), "the decision")
        except InputError:
            return JSONResponse({"error": "a decision is a JSON object."}, 400)
        try:
            if told.get("kind") == "draw":  # it asks the keeper, which may take a while
                return JSONResponse(await run_in_threadpool(self.desk.decide, told))
            answer = self.desk.decide(told)  # not in a thread, which would wait for the processor twice more
            took = time.perf_counter() - begin
            shown = f"disk;dur={1000 * self.desk.log.seconds:.2f}, server;dur={1000 * took:.2f}"  # for measurements
            return JSONResponse(answer, headers={"server-timing": shown})
        except NotSavedError as error:  # the page keeps it and tries again
            return JSONResponse({"error": str(error)}, 507)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        except ProcessEndedError:
            return _starts_again()

    async def events(self, _: Request) -> Response:
        """Answer with an event whenever there is something new, until the page leaves."""
        return StreamingResponse(self._news(), media_type="text/event-stream")

    async def _news(self) -> AsyncIterator[bytes]:
        self.listeners.loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self.listeners.waiting.add(event)
        told = b""
        try:
            while not self.listeners.closed:
                event.clear()
                if told != self.desk.news:
                    told = self.desk.news
                    yield b"data: " + told + b"\n\n"
                try:
                    await asyncio.wait_for(event.wait(), KEEP_ALIVE)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.listeners.waiting.discard(event)


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Read the files of the page, with their types."""
    folder = files("sinkshot.review") / "static"
    found = {}
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            found[file.name] = file.read_bytes(), TYPES[suffix]
    return found


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _starts_again() -> Response:
    return JSONResponse({"error": "predictions are being made again; what you decided is saved."}, 503)


async def _not_there(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return JSONResponse({"error": "there is nothing at this address." if status == 404 else "not allowed."}, status)
