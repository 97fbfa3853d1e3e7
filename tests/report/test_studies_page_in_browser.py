"""The page of studies, looked at in a real Chromium: on a desktop, on a phone, in the dark, on paper."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import BrowserPages
from html_page import Page
from toy_outcomes import outcome_of, stored

from sinkshot.episodes import Recipe
from sinkshot.report.studies import write_report
from sinkshot.studies.study import BankKey, Cell, Claim, Column, Entry, Row, Sheet, Study

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


def test_long_bank_names_leave_room_for_the_claims(browser_page: BrowserPages, tmp_path: Path) -> None:
    backbones = tuple(f"wide-residual-network-28-10-run{i}" for i in range(1, 7))
    label = "CIFAR-FS, " + "+".join(backbones)
    cells = [Cell(BankKey("cifar-fs", backbones), Recipe(episodes=20), name, "PE") for name in ("ncm", "matching")]
    rows = tuple(Row(one.method, (Entry(one),)) for one in cells)
    claim = Claim("A claim of some words about two rows.", "row-above-row", (("other", "ncm"), ("row", "matching")))
    sheets = (Sheet(label, (Column("1-shot"),), rows), Sheet(f"{label}, again", (Column("1-shot"),), rows))
    study = Study("long", "Long names", "table", "Table 1", sheets=sheets, claims=(claim,))
    write_report(tmp_path, outcome_of([study], {one: stored(one, 80.0, i) for i, one in enumerate(cells)}, {}))
    for screen in SCREENS.values():
        page = browser_page(tmp_path / "index.html", **screen)
        assert page.evaluate("document.documentElement.scrollWidth") == screen["width"]
        widths = page.evaluate("[...document.querySelectorAll('.claims p')].map(p => p.getBoundingClientRect().width)")
        assert len(widths) >= 4
        assert min(widths) > 200


def test_tables_are_sorted_and_searched(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["desktop"])
    first = "[...document.querySelector('section[aria-labelledby=table-5] table').tBodies[0].rows]"
    labels = f"{first}.filter(row => !row.hidden).map(row => row.cells[0].textContent.trim())"
    numbers = f"{first}.map(row => parseFloat(row.cells[1].textContent)).filter(n => !isNaN(n))"
    before = page.evaluate(labels)
    head = page.locator("section[aria-labelledby=table-5] table").first.locator("button.sort").nth(1)
    head.click()
    falling = page.evaluate(numbers)
    assert falling == sorted(falling, reverse=True)
    head.click()
    assert page.evaluate(numbers) == sorted(falling)
    assert sorted(page.evaluate(labels)) == sorted(before)
    field = page.locator("section[aria-labelledby=table-2] input[type=search]").first
    field.fill("bms wrn")
    table = "document.querySelector('section[aria-labelledby=table-2] table')"
    shown = page.evaluate(
        f"[...{table}.querySelectorAll('tbody tr:not([hidden]) th[scope=row]')].map(th => th.textContent)"
    )
    assert len(shown) == 2
    assert all("BMS" in text for text in shown)


def test_every_table_and_figure_can_be_downloaded(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["desktop"])
    page.evaluate(OPEN_ALL)
    tables, panels = (page.evaluate(f"document.querySelectorAll('{what}').length") for what in ("table", ".panel"))
    names = page.evaluate("[...document.querySelectorAll('.tools button')].map(button => button.textContent)")
    assert (names.count("CSV"), names.count("SVG")) == (tables, panels)
    with page.expect_download() as table:
        page.locator("section[aria-labelledby=table-5] .tools button").first.click()
    rows = list(csv.reader(Path(table.value.path()).read_text(encoding="utf-8").splitlines()))
    assert rows[0][:4] == ["group", "Preprocessing", "Inductive (NCM) 1-shot", "Inductive (NCM) 1-shot ci95"]
    assert rows[1][1] == "None"
    assert 50 < float(rows[1][2]) < 60
    with page.expect_download() as figure:
        page.locator("section[aria-labelledby=figure-epochs] .panel .tools button").first.click()
    drawing = ElementTree.parse(figure.value.path())
    assert drawing.getroot().tag.endswith("svg")
    colours = drawing.find("{http://www.w3.org/2000/svg}style")
    assert colours is not None
    assert "--series-1: #" in (colours.text or "")


def test_the_theme_can_be_chosen_and_is_kept(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["desktop"])
    ground = "getComputedStyle(document.body).backgroundColor"
    page.select_option(".theme select", "dark")
    assert brightness(page.evaluate(ground)) < 60
    page.reload()
    assert brightness(page.evaluate(ground)) < 60
    page.select_option(".theme select", "light")
    assert brightness(page.evaluate(ground)) > 200


def test_contents_stay_at_hand(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", **SCREENS["phone"])
    page.evaluate("window.scrollTo(0, 9000)")
    assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0
    page.click(".bar summary")
    page.click(".bar a[href='#table-7']")
    page.wait_for_function("Math.abs(document.querySelector('#table-7').getBoundingClientRect().top) < 120")
    assert page.evaluate("document.querySelector('#table-7').getBoundingClientRect().top") > 40
    assert page.evaluate("document.querySelector('.bar details').open") is False


def test_without_a_script_everything_can_be_read(chromium_browser: Any, folder: Path) -> None:
    context = chromium_browser.new_context(java_script_enabled=False, viewport=SCREENS["desktop"])
    page = context.new_page()
    page.goto((folder / "index.html").as_uri())
    assert page.locator(".tools, .theme").count() == 0
    assert page.locator("section[aria-labelledby=table-5] td").first.is_visible()
    context.close()


def test_folded_parts_are_printed(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", width=680, height=1000)
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelectorAll('main details:not([open])').length") > 5
    page.wait_for_function(  # what is shown is decided in the first frame after the change of media
        "() => [...document.querySelectorAll('main details:not([open])')].every(part => part.lastElementChild"
        ".checkVisibility({contentVisibilityAuto: true}) && part.lastElementChild.getBoundingClientRect().height)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 680


def test_page_prints_within_its_margins(browser_page: BrowserPages, folder: Path) -> None:
    page = browser_page(folder / "index.html", width=680, height=1000)  # as wide as A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    page.pdf(path=PICTURES / "print.pdf", width="8.27in", height="11.69in", prefer_css_page_size=True)
    assert 5 <= (PICTURES / "print.pdf").read_bytes().count(b"/Type /Page\n") <= 40
