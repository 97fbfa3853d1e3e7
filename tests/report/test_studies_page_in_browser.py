"""The page of studies, looked at in a real Chromium: on a desktop, on a phone, in the dark, on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import BrowserPages
from html_page import Page

pytestmark = pytest.mark.slow

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"  # git ignores it
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
OPEN_ALL = "document.querySelectorAll('details').forEach(details => details.open = true)"


@pytest.fixture(scope="module", autouse=True)
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES


@pytest.mark.parametrize("screen", SCREENS)
def test_page_fits_the_screen_and_shows_every_figure(browser_page: BrowserPages, folder: Path, screen: str) -> None:
    width, file = SCREENS[screen]["width"], folder / "index.html"
    page = browser_page(file, **SCREENS[screen])
    assert page.evaluate("innerWidth") == width  # a phone widens its viewport where something does not fit
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.screenshot(path=PICTURES / f"{screen}.png", full_page=True)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map(svg => {"
        " const box = svg.getBoundingClientRect(); return [box.left, box.right, box.width, box.height]; })"
    )
    assert len(boxes) == len(Page(file).drawings()) > 12
    for left, right, wide, high in boxes:
        assert wide > 250
        assert high > 60
        assert left >= 0
        assert right <= width
    assert browser_page.requests == [file.as_uri()]


@pytest.mark.parametrize("screen", SCREENS)
def test_what_is_wider_than_the_screen_scrolls_by_itself(browser_page: BrowserPages, folder: Path, screen: str) -> None:
    width = SCREENS[screen]["width"]
    page = browser_page(folder / "index.html", **SCREENS[screen])
    page.evaluate(OPEN_ALL)
    loose = page.evaluate(
        "[...document.querySelectorAll('main *, header *')].filter(element => !element.closest('.scroll, svg, pre')"
        f" && element.getBoundingClientRect().right > {width + 0.5}).map(element => element.outerHTML.slice(0, 200))"
    )
    assert loose == []
    scrolling = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(region => region.scrollWidth > region.clientWidth).length"
    )
    assert scrolling > 0


@pytest.mark.parametrize("screen", SCREENS)
def test_numbers_of_a_place_do_not_cover_each_other(browser_page: BrowserPages, folder: Path, screen: str) -> None:
    page = browser_page(folder / "index.html", **SCREENS[screen])
    page.evaluate(OPEN_ALL)
    covered = page.evaluate(
        "[...document.querySelectorAll('.trio')].filter(trio => {"
        " const boxes = [...trio.children].map(part => part.getBoundingClientRect());"
        " const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5"
        " && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;"
        " return boxes.some((a, i) => boxes.slice(i + 1).some(b => meet(a, b))); }).map(trio => trio.textContent)"
    )
    assert covered == []


def test_text_is_large_enough_to_read_on_a_phone(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["phone"])
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('p, li, th, td, dd, summary, figcaption')]"
        ".filter(element => element.offsetParent && element.textContent.trim())"
        ".map(element => parseFloat(getComputedStyle(element).fontSize)))"
    )
    assert smallest >= 12


def test_dark_scheme_is_dark_and_drawings_follow(browser_page: BrowserPages, folder: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = browser_page(folder / "index.html", **SCREENS["desktop"], scheme=scheme)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("getComputedStyle(document.querySelector('svg[role=img] text')).fill")
        colours[scheme] = [brightness(ground), brightness(ink)]
    page.screenshot(path=PICTURES / "dark.png", full_page=True)
    assert colours["light"][0] > 200 > 150 > colours["light"][1]
    assert colours["dark"][0] < 60 < 120 < colours["dark"][1]


def brightness(colour: str) -> float:
    parts = [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(parts) / 3


def test_keyboard_reaches_the_content_and_opens_what_is_folded(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["desktop"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.evaluate("document.querySelector('summary').focus()")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details').open") is True
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    regions = page.evaluate("document.querySelectorAll('[role=region]:not([tabindex=\"0\"])').length")
    assert regions == 0


def test_page_prints_within_its_margins(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", width=680, height=1000)  # as wide as A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    page.pdf(path=PICTURES / "print.pdf", width="8.27in", height="11.69in", prefer_css_page_size=True)
    assert 5 <= (PICTURES / "print.pdf").read_bytes().count(b"/Type /Page\n") <= 40
