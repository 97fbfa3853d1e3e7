"""The page of studies, looked at in a real Chromium: on a desktop, on a phone, in the dark, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from pages import Page

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed to look at the page with")

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"  # git ignores it
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = chromium()
    assert binary is not None
    with Browser(binary) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES


@pytest.mark.parametrize("screen", SCREENS)
def test_page_fits_the_screen_and_shows_every_figure(browser: Browser, folder: Path, screen: str) -> None:
    width, height = SCREENS[screen]
    page = folder / "index.html"
    browser.open(page, width, height)
    assert browser.ask("innerWidth") == width  # a phone widens its viewport where something does not fit
    assert browser.ask("document.documentElement.scrollWidth") == width
    browser.screenshot(PICTURES / f"{screen}.png")
    browser.ask(OPEN_ALL)
    assert browser.ask("document.documentElement.scrollWidth") == width
    boxes = browser.ask(
        "[...document.querySelectorAll('svg[role=img]')].map(svg => {"
        " const box = svg.getBoundingClientRect(); return [box.left, box.right, box.width, box.height]; })"
    )
    assert len(boxes) == len(Page(page).drawings()) > 12
    for left, right, wide, high in boxes:
        assert wide > 250
        assert high > 60
        assert left >= 0
        assert right <= width
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


@pytest.mark.parametrize("screen", SCREENS)
def test_what_is_wider_than_the_screen_scrolls_by_itself(browser: Browser, folder: Path, screen: str) -> None:
    width, height = SCREENS[screen]
    browser.open(folder / "index.html", width, height)
    browser.ask(OPEN_ALL)
    loose = browser.ask(
        "[...document.querySelectorAll('main *, header *')].filter(element => !element.closest('.scroll, svg, pre')"
        f" && element.getBoundingClientRect().right > {width + 0.5}).map(element => element.outerHTML.slice(0, 200))"
    )
    assert loose == []
    scrolling = browser.ask(
        "[...document.querySelectorAll('.scroll')].filter(region => region.scrollWidth > region.clientWidth).length"
    )
    assert scrolling > 0


@pytest.mark.parametrize("screen", SCREENS)
def test_numbers_of_a_place_do_not_cover_each_other(browser: Browser, folder: Path, screen: str) -> None:
    browser.open(folder / "index.html", *SCREENS[screen])
    browser.ask(OPEN_ALL)
    covered = browser.ask(
        "[...document.querySelectorAll('.trio')].filter(trio => {"
        " const boxes = [...trio.children].map(part => part.getBoundingClientRect());"
        " const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5"
        " && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;"
        " return boxes.some((a, i) => boxes.slice(i + 1).some(b => meet(a, b))); }).map(trio => trio.textContent)"
    )
    assert covered == []


def test_text_is_large_enough_to_read_on_a_phone(browser: Browser, folder: Path) -> None:
    browser.open(folder / "index.html", *SCREENS["phone"])
    smallest = browser.ask(
        "Math.min(...[...document.querySelectorAll('p, li, th, td, dd, summary, figcaption')]"
        ".filter(element => element.offsetParent && element.textContent.trim())"
        ".map(element => parseFloat(getComputedStyle(element).fontSize)))"
    )
    assert smallest >= 12


def test_dark_scheme_is_dark_and_drawings_follow(browser: Browser, folder: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        browser.open(folder / "index.html", *SCREENS["desktop"], scheme)
        ground = browser.ask("getComputedStyle(document.body).backgroundColor")
        ink = browser.ask("getComputedStyle(document.querySelector('svg[role=img] text')).fill")
        colours[scheme] = [brightness(ground), brightness(ink)]
    browser.screenshot(PICTURES / "dark.png")
    assert colours["light"][0] > 200 > 150 > colours["light"][1]
    assert colours["dark"][0] < 60 < 120 < colours["dark"][1]


def brightness(colour: str) -> float:
    parts = [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(parts) / 3


def test_keyboard_reaches_the_content_and_opens_what_is_folded(browser: Browser, folder: Path) -> None:
    browser.open(folder / "index.html", *SCREENS["desktop"])
    browser.press("Tab")
    assert browser.ask("document.activeElement.className") == "skip"
    assert browser.ask("document.activeElement.getBoundingClientRect().top") >= 0
    browser.press("Enter")
    assert browser.ask("document.activeElement.id") == "main"
    browser.ask("document.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.ask("document.querySelector('details').open") is True
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    regions = browser.ask("document.querySelectorAll('[role=region]:not([tabindex=\"0\"])').length")
    assert regions == 0


def test_page_prints_within_its_margins(browser: Browser, folder: Path) -> None:
    browser.open(folder / "index.html", 680, 1000)  # as wide as A4 between its margins
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.ask("document.documentElement.scrollWidth") <= 680
    browser.print(PICTURES / "print.pdf")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert 5 <= (PICTURES / "print.pdf").read_bytes().count(b"/Type /Page\n") <= 40


def test_this_browser_sees_faults(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "faulty.html"
    page.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        '<div style="width: 900px">wide</div><script>missing()</script>'
    )
    browser.open(page, *SCREENS["phone"])
    assert browser.ask("document.documentElement.scrollWidth") > 390
    assert "missing is not defined" in browser.complaints()[0]
