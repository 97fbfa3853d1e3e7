"""Who may ask: this machine's browser at the address that was printed, and nobody else.

Every address begins with a random token. Host and Origin must be this server's, so that no other page that the browser
shows can ask or be answered; a request has a bounded size, and a fault becomes a sentence without a traceback.
"""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 512 << 10  # bytes: a decision about some 70,000 items
_DISCARDED = 16 << 20  # bytes of a body too large that are read and thrown away, so that the refusal is heard
LONGEST_ADDRESS = 2_048  # bytes of path and query
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Refused(Exception):
    """A request that is not answered, with its status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """Lets through what may be asked, and takes the token off the path.

    Parameters
    ----------
    app : ASGI application
    token : str
        The secret that addresses begin with.
    port : int
        Where this server listens.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send)
        try:
            inside = self._admitted(scope)
            await self.app(inside, await _read(receive) if scope["method"] == "POST" else receive, answer)
        except Refused as refused:
            await answer.refuse(refused.status, refused.reason)
        except Exception as error:
            print(f"a request failed: {type(error).__name__}: {error!s:.200}", file=sys.stderr, flush=True)
            await answer.refuse(500, "the server failed at this request; what you decided before is kept.")

    def _admitted(self, scope: Scope) -> Scope:
        """Return the request as the application sees it, or raise."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
            raise Refused(414, "the address is too long.")
        if len(headers.get("host", [])) != 1 or headers["host"][0] not in self.hosts:
            raise Refused(421, "this server answers to 127.0.0.1 and localhost alone.")
        if any(origin not in self.origins for origin in headers.get("origin", [])):
            raise Refused(403, "this server answers to its own page alone.")
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            raise Refused(403, "this server answers to its own page alone.")
        first, _, rest = scope["path"].lstrip("/").partition("/")
        if not secrets.compare_digest(first.encode("utf-8", "replace"), self.token.encode()):
            raise Refused(403, "the address lacks its token; open the one that the command printed.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(405, "this server answers GET and POST.")
        if scope["method"] == "POST" and headers.get("content-type", [""])[0].split(";")[0] != "application/json":
            raise Refused(415, "a decision is sent as application/json.")
        return {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode("utf-8", "replace"), "root_path": ""}


class _Answer:
    """Sends an answer with the headers that every one has."""

    def __init__(self, send: Send) -> None:
        self.send, self.begun = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            own = {name.encode(): value.encode() for name, value in _HEADERS.items()}
            given: dict[bytes, Any] = dict(message.get("headers", []))
            given.setdefault(b"cache-control", b"no-store")
            message = {**message, "headers": [*{**given, **own}.items()]}
        await self.send(message)

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with a sentence, unless an answer has begun already."""
        if self.begun:
            return
        body = json.dumps({"error": reason}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
        await self({"type": "http.response.body", "body": body})


async def _read(receive: Receive) -> Receive:
    """Read a body up to the limit, however it is sent, and return a receiver that hands it out.

    The rest of a body that is too large is read and thrown away, so that the refusal is heard.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= _DISCARDED:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= LARGEST_BODY:
            parts.append(part)
        more = message["type"] == "http.request" and message.get("more_body", False)
    if size > LARGEST_BODY:
        raise Refused(413, f"a request has at most {LARGEST_BODY:,} bytes.")
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def handed_out() -> Message:
        return whole.pop() if whole else await receive()

    return handed_out
