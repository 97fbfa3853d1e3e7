"""A real Chromium for tests, spoken to in its own protocol (DevTools) over a pair of pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds for one answer: a loaded machine is slow


def chromium() -> str | None:
    """Return where a Chromium is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def _high(pipe: tuple[int, int]) -> tuple[int, int]:
    """Move a pipe to descriptors from 10 on, so that giving one its number in Chromium cannot close another."""
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipe]
    for end in pipe:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """One page of a headless Chromium. It reads commands from its descriptor 3 and answers on its descriptor 4."""

    def __init__(self, binary: str) -> None:
        self.home = tempfile.TemporaryDirectory(prefix="sinkshot-browser-", ignore_cleanup_errors=True)
        theirs_in, self.commands = _high(os.pipe())
        self.answers, theirs_out = _high(os.pipe())
        call = [binary, *FLAGS, f"--user-data-dir={self.home.name}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *call],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.waiting = selectors.DefaultSelector()
        self.waiting.register(self.answers, selectors.EVENT_READ)
        self.buffer, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.waiting.close()
        os.close(self.commands)
        os.close(self.answers)
        self.home.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, event: str) -> None:
        """Wait until an event has come."""
        while not any(known.get("method") == event for known in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready = self.waiting.select(max(0.0, end - time.monotonic()))
            assert ready, f"Chromium has not answered for {PATIENCE:.0f} seconds"
            part = os.read(self.answers, 1 << 20)
            assert part, f"Chromium has ended with status {self.process.poll()}"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path, width: int, height: int, scheme: str = "light") -> None:
        """Load a page in a viewport of exactly this size."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=page.absolute().as_uri())
        self.wait_for("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[str]:
        """Return errors of scripts, and errors and warnings in the console or the log, since the page loaded."""
        found = []
        for event in self.events:
            method, details = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(str(details["args"]))
            elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(str(details["entry"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for."""
        asked = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(parameters["request"]["url"]) for parameters in asked]

    def screenshot(self, path: Path) -> None:
        """Save the whole page, from top to bottom, as a picture."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print(self, path: Path) -> None:
        """Save the page as it would be printed on A4."""
        printed = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(printed["data"]))
