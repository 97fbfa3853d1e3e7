"""A real Chromium for tests, driven by Playwright.

    def test_page_has_a_title(browser_page, tmp_path):
        page = browser_page(tmp_path / "index.html", width=390, height=844)
        assert page.title() == "SinkShot"

`browser_page` opens a file or an address on this machine and returns Playwright's `Page`. A test fails where a page of
it wrote an error or a warning to the console, a script failed, or anything was asked of another machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PATIENCE = 60.0  # seconds for one answer: a loaded machine is slow
NO_BROWSER = "no Chromium is installed; on Debian, apt-get install chromium brings it"
HERE = {"127.0.0.1", "localhost", "::1"}
LOCAL_SCHEMES = {"about", "blob", "data", "file"}


def chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def is_local(address: str) -> bool:
    """Return whether an address is a file or on this machine."""
    parts = urlsplit(address)
    return parts.scheme in LOCAL_SCHEMES or parts.hostname in HERE


class BrowserPages:
    """Opens pages, each with its own cookies and storage, and keeps what they asked for and what went wrong."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.contexts: list[Any] = []
        self.requests: list[str] = []
        self.faults: list[str] = []

    def __call__(self, where: Path | str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> Any:
        """Open a file or a loopback address in a viewport of exactly this size; below 600 wide it is a phone."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=1,
            is_mobile=width < 600,
            color_scheme=scheme,
        )
        self.contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        context.route("**/*", self._route)
        context.route_web_socket("**/*", self._route_web_socket)
        page = context.new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(f"a script failed: {error}"))
        page.goto(where.absolute().as_uri() if isinstance(where, Path) else where)
        return page

    def _route(self, route: Any) -> None:
        if self._allow(route.request.url):
            route.continue_()
        else:
            route.abort()

    def _route_web_socket(self, socket: Any) -> None:
        if self._allow(socket.url):
            socket.connect_to_server()
        else:
            socket.close()

    def _allow(self, address: str) -> bool:
        if is_local(address):
            return True
        self.faults.append(f"an external request: {address}")
        return False

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.faults.append(f"console {message.type}: {message.text}")

    def close(self) -> None:
        """Close all pages after their last events have arrived."""
        for context in self.contexts:
            for page in context.pages:
                page.evaluate("0")
            context.close()


@pytest.fixture(scope="module")
def chromium_browser() -> Iterator[Any]:
    """Start one Chromium for a module; it ends with the module, since Playwright occupies the thread's event loop."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    binary = chromium()
    if binary is None:
        pytest.skip(NO_BROWSER)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=list(FLAGS), timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def browser_page(chromium_browser: Any) -> Iterator[BrowserPages]:
    """Open pages in Chromium; the test fails on console errors and on external requests."""
    pages = BrowserPages(chromium_browser)
    yield pages
    pages.close()
    assert not pages.faults, pages.faults


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report that the browser tests did not run if there is no browser."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.write_sep("!", "LEFT OUT: the pages in a browser", red=True, bold=True)
        terminalreporter.write_line(f"Tests that open a page did not run: {NO_BROWSER}.")
