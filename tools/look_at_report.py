"""Look at a report in Chromium: pictures at 1400 and 400 pixels, a PDF, and whether anything does not fit.

    sinkshot reproduce --episodes 10000 --out sinkshot-report
    python tools/look_at_report.py sinkshot-report build/report    # writes 1400.png, 400.png and report.pdf

It needs Playwright and an installed Chromium. It exits with 1 where something is wider than the screen or the paper, or
where the page reports an error or asks for anything but itself.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
WIDTHS = (1400, 400)
PAPER = 680  # pixels between the margins of A4
PATIENCE = 180_000  # milliseconds: a page of all studies is long, and a machine may be busy
WIDER = """width => [...document.querySelectorAll('main *, header *')]
    .filter(one => !one.closest('.scroll, svg, pre') && one.getBoundingClientRect().right > width + 0.5)
    .map(one => one.outerHTML.slice(0, 120))"""

TORN = """() => document.querySelectorAll('.unseen').forEach(one => one.hidden = true)
    ?? [...document.querySelectorAll('td')].filter(cell => {
        const text = document.createRange();
        text.selectNodeContents(cell);
        return text.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1;
    }).map(cell => cell.textContent.replace(/\\s+/g, ' '))"""  # text that reaches into the next cell


def opened(browser: Browser, file: Path, width: int, faults: list[str]) -> Any:
    """Open the page in a window of this width; what goes wrong is added to `faults`."""
    context = browser.new_context(viewport={"width": width, "height": 900}, is_mobile=width < 600)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: faults.append(f"{width} px: {error}"))
    page.on("console", lambda told: faults.append(f"{width} px: {told.text}") if told.type == "error" else None)
    page.on("request", lambda asked: faults.append(f"asks for {asked.url}") if asked.url != file.as_uri() else None)
    page.goto(file.as_uri())
    return page


def look(browser: Browser, file: Path, out: Path) -> list[str]:
    """Take the pictures and return what is wrong."""
    faults: list[str] = []
    for width in WIDTHS:
        page = opened(browser, file, width, faults)
        page.screenshot(path=out / f"{width}.png", full_page=True)
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        faults += [f"{width} px: wider than the screen: {one}" for one in page.evaluate(WIDER, width)[:5]]
        faults += [f"{width} px: wider than its cell: {one}" for one in page.evaluate(TORN)[:5]]
    page = opened(browser, file, PAPER, faults)
    page.emulate_media(media="print")
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > PAPER:
        faults.append(f"on paper: {wide} pixels wide, of {PAPER}")
    page.pdf(path=out / "report.pdf", width="8.27in", height="11.69in", prefer_css_page_size=True)
    return faults


def main() -> None:
    """Look at the report, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="folder with index.html")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=list(FLAGS))
        faults = look(browser, (args.report / "index.html").resolve(), args.out)
        browser.close()
    pages = (args.out / "report.pdf").read_bytes().count(b"/Type /Page\n")
    print(f"{args.out}: {', '.join(f'{width}.png' for width in WIDTHS)}, report.pdf of {pages} pages")
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
