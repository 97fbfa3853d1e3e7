"""The browser of the tests sees what goes wrong on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import BrowserPages, is_local

HEAD = '<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'


def written(folder: Path, body: str) -> Path:
    page = folder / "page.html"
    page.write_text(HEAD + body)
    return page


def test_a_page_without_faults_opens(browser_page: BrowserPages, tmp_path: Path) -> None:
    file = written(tmp_path, "<title>fine</title>")
    assert browser_page(file).title() == "fine"
    assert browser_page.requests == [file.as_uri()]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>missing()</script>", "missing is not defined"),
        ("<script>console.error('a complaint')</script>", "console error: a complaint"),
        ("<script>console.warn('a hint')</script>", "console warning: a hint"),
        ("<img src='http://example.org/a.png'>", "an external request: http://example.org/a.png"),
        ("<script>new WebSocket('ws://example.org/')</script>", "an external request: ws://example.org/"),
        ("<script>fetch('https://example.org/').catch(() => 0)</script>", "an external request: https://example.org/"),
        ("<script src='absent.js'></script>", "console error: Failed to load resource"),
    ],
)
def test_a_fault_of_a_page_is_seen(chromium_browser: Any, tmp_path: Path, body: str, fault: str) -> None:
    pages = BrowserPages(chromium_browser)
    page = pages(written(tmp_path, body))
    for _ in range(1000):
        if pages.faults:
            break
        page.evaluate("new Promise(requestAnimationFrame)")  # events are heard while it answers
    pages.close()
    assert any(fault in one for one in pages.faults), pages.faults


def test_what_does_not_fit_a_phone_is_wider_than_its_viewport(browser_page: BrowserPages, tmp_path: Path) -> None:
    page = browser_page(written(tmp_path, '<div style="width: 900px">wide</div>'), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") > 390


@pytest.mark.parametrize("address", ["file:///a", "data:,", "about:blank", "http://127.0.0.1:80/", "ws://[::1]:9/"])
def test_this_machine_is_local(address: str) -> None:
    assert is_local(address)


@pytest.mark.parametrize("address", ["http://example.org/", "https://127.0.0.1.example.org/", "ws://10.0.0.1/"])
def test_other_machines_are_not(address: str) -> None:
    assert not is_local(address)
