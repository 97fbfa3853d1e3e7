"""The review with Tab and a screen reader: order, roles, names, and a focus that stays."""

from __future__ import annotations

import time

import pytest
from review_server import PATIENCE

FOCUSED = "document.activeElement.className"
CLASSES = "[...document.querySelectorAll('.choice .words')].map(one => one.textContent)"


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_the_focus_stays_among_the_classes_over_decisions_and_fits(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/doubtful", width=1400)
    page.wait_for_selector(".choice")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the items"
    page.keyboard.press("Enter")
    assert "choice" in page.evaluate(FOCUSED)
    assert page.evaluate("location.hash") == "#/doubtful"
    page.keyboard.press("Tab")
    second = page.evaluate(CLASSES)[1]
    name = page.locator(".stage figcaption").inner_text()
    page.keyboard.press("Enter")
    until(lambda: page.locator(".stage figcaption").inner_text() != name)
    until(lambda: "choice" in page.evaluate(FOCUSED))
    page.keyboard.press("Tab")
    page.evaluate("window.held = document.activeElement")
    server.fitted(1)
    until(lambda: int(page.evaluate("document.body.dataset.fit")) > 1)
    assert page.evaluate("window.held === document.activeElement && window.held.isConnected")
    decided = server.ask("history")[1].decode()
    assert f'"label": "{second}"' in decided


@pytest.mark.slow
def test_after_a_link_of_the_sidebar_keys_go_to_the_items(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/history", width=1400)
    page.get_by_role("link", name="Doubtful").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".stage figcaption")
    name = page.locator(".stage figcaption").inner_text()
    page.keyboard.press("Enter")
    until(lambda: page.locator(".stage figcaption").inner_text() != name)


@pytest.mark.slow
def test_a_grid_is_a_list_of_options_with_headings_beside_it(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/unknown", width=1400)
    page.wait_for_selector(".tile.current")
    grid = page.get_by_role("listbox", name="Unknown items in groups of alike ones")
    assert set(grid.evaluate("list => [...list.children].map(one => one.role)")) == {"option"}
    assert grid.evaluate("list => list === document.activeElement")
    current = page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
    assert current.get_attribute("aria-posinset") == "1"
    seen = current.locator(".caption").inner_text().split("\n")
    assert current.get_attribute("aria-label").startswith(" ".join(seen))
    assert page.get_by_role("button", name="Name this group").count() > 0
