"""The review in a real browser: by keyboard alone, over a reload and a killed server, and nothing is lost."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from review_server import PATIENCE, labels_of

IDLE = "document.getElementById('state').dataset.kind === 'saved'"
SAVED = "document.getElementById('state').dataset.kind !== 'saving'"
SIZES = [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")]


def until(page, condition, arg=None):
    """Wait for a condition; Playwright's own waiting would need `eval`, which the page's policy forbids."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(condition, arg):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


class Person:
    """Somebody at the keyboard who knows what each item is, and remembers what they decided."""

    def __init__(self, page, server, truth):
        self.page, self.server, self.truth = page, server, truth
        self.names = json.loads(server.ask("items")[1])["names"]
        self.said = {}

    def press(self, key):
        self.page.keyboard.press(key)

    def saved(self):
        until(self.page, SAVED)

    def idle(self):
        until(self.page, IDLE)

    def go(self, text):
        """Reach a link of the sidebar with Tab, and follow it."""
        self.page.evaluate("document.activeElement.blur()")
        for _ in range(60):
            self.press("Tab")
            here = self.page.evaluate("document.activeElement.closest('nav') && document.activeElement.innerText")
            if here and here.split("\n")[0] == text:
                self.press("Enter")
                until(self.page, "text => document.querySelector('h1')?.textContent === text", arg=text)
                return
        raise AssertionError(f"{text} is not reached with Tab")

    def label_one(self, outsider="u"):
        """Label the item that is shown, by the key on the button of its class."""
        shown = self.page.locator(".stage figcaption")
        name = shown.inner_text()
        label = self.truth(name)
        keys = dict(self.page.evaluate(
            "[...document.querySelectorAll('.choice')].map(one => "
            "[one.querySelector('.words').textContent, one.querySelector('kbd')?.textContent])"
        ))  # fmt: skip
        self.press(keys.get(label) or outsider)
        self.said[name] = label if keys.get(label) else "_none"
        until(self.page, "before => document.querySelector('.stage figcaption')?.textContent !== before", arg=name)

    def current(self):
        """Return the name of the item with the focus in a grid."""
        item = self.page.get_by_role("listbox").get_attribute("aria-activedescendant")
        return self.names[int(item.removeprefix("item-"))]


def truth(name):
    return name.split("/")[-1].split("-")[0]


def check(said, server, out):
    """Look that labels.csv holds exactly what was decided, and the labels that were given."""
    found = labels_of(out)
    accepted = {name: label for name, (label, source) in found.items() if source == "accepted"}
    assert accepted == said
    for name, (label, source) in found.items():
        if not name.startswith("_unlabeled") and name not in said:
            assert (label, source) == (name.split("/")[0], "given")


def review_by_keyboard(browser_page, start, source, out, truth, threshold_class, new_class, count=40):
    """Label items, accept a class, undo across a reload, make a class of the unknown, survive a kill, and go on."""
    server = start(source, out)
    server.fitted()
    page = browser_page(server.address, width=1400)
    page.wait_for_selector("body[data-ready]")
    person = Person(page, server, truth)
    person.go("Doubtful")
    page.wait_for_selector(".stage figcaption")
    for _ in range(count):
        person.label_one()
    person.saved()
    person.idle()

    person.go(threshold_class)
    person.idle()
    state = server.fitted()
    code = state["classes"].index(threshold_class)
    rows = zip(person.names, state["label"], state["source"], state["sure"], strict=True)
    sure = [name for name, label, source, share in rows if (label, source) == (code, 0) and share >= 800]
    assert len(sure) > 3
    assert page.locator(".actions .main .words").inner_text() == f"Accept {len(sure):,}"
    person.press("Enter")
    person.saved()
    person.idle()
    assert server.state()["counts"]["accepted"] == len(person.said) + len(sure)

    page.reload()
    page.wait_for_selector("body[data-ready]")
    person.press("Backspace")
    until(page, SAVED)
    server.fitted(server.state()["version"][0])
    assert server.state()["counts"]["accepted"] == len(person.said)
    for _ in range(3):  # further back: three of the single labels, which are then given again
        person.press("Control+z")
    person.saved()
    server.fitted()
    taken_back = list(person.said)[-3:]
    for name in taken_back:
        del person.said[name]
    assert server.state()["counts"]["accepted"] == len(person.said)

    person.go("Unknown")
    person.idle()
    page.wait_for_selector(".tile.current")
    chosen = [person.current()]
    for _ in range(4):
        person.press("Shift+ArrowRight")
        chosen.append(person.current())
    assert page.locator(".tile.selected").count() == len(set(chosen)) == 5
    person.press("n")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type(new_class)
    person.press("Enter")
    person.said |= dict.fromkeys(chosen, new_class)
    until(page, "name => document.querySelector('.class-list')?.innerText.includes(name)", arg=new_class)
    person.saved()

    server.kill()
    page.wait_for_selector("#trouble:not([hidden])")
    assert "All that you decided is saved." in page.locator("#trouble").inner_text()
    page.close()
    browser_page.faults[:] = [fault for fault in browser_page.faults if "net::ERR_" not in fault]
    server = start(source, out)
    server.fitted()
    page = browser_page(server.address, width=1400)
    page.wait_for_selector("body[data-ready]")
    again = Person(page, server, truth)
    again.said = person.said
    again.go("Doubtful")
    page.wait_for_selector(".stage figcaption")
    for _ in range(5):
        again.label_one()
    again.saved()
    page.close()
    code, said = server.interrupt()
    assert code == 0
    assert "labels.csv" in said
    check(again.said, server, out)


@pytest.mark.slow
def test_a_review_by_keyboard_alone_is_exactly_what_was_decided(photos, tmp_path, start, browser_page):
    review_by_keyboard(browser_page, start, photos, tmp_path / "labels", truth, "green", "gold")


@pytest.mark.slow
def test_an_item_that_is_looked_at_stays_when_a_fit_takes_it_for_unknown(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/doubtful", width=1400)
    page.wait_for_selector(".stage figcaption")
    person = Person(page, server, truth)
    name = page.locator(".stage figcaption").inner_text()
    row = person.names.index(name)

    def as_unknown(route):
        answer = route.fetch()
        state = answer.json()
        if state["source"][row] == 0:
            state["label"][row] = -1
        route.fulfill(response=answer, json=state)

    page.route("**/state", as_unknown)
    other = next(one for one in person.names if one.startswith("_unlabeled") and one != name)
    server.decide("label", items=[person.names.index(other)], label=truth(other))
    until(page, "document.querySelector('.counts .accepted dd').textContent === '1'")
    person.idle()
    assert page.locator(".stage figcaption").inner_text() == name
    person.label_one()
    person.saved()
    assert server.state()["source"][row] == 2
    page.keyboard.press("ArrowRight")
    until(page, "name => document.querySelector('.stage figcaption').textContent !== name", arg=name)


@pytest.mark.slow
def test_the_page_fits_wide_and_narrow_screens_in_light_and_dark(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    grounds = set()
    for width, scheme in SIZES:
        page = browser_page(f"{server.address}#/doubtful", width=width, scheme=scheme)
        page.wait_for_selector(".stage figure img")
        for where in ("class/red", "unknown", "next", "suspicious", "audit", "history", "search/red", "doubtful"):
            page.evaluate("where => { location.hash = '#/' + where }", where)
            page.wait_for_selector("h1")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    assert all(address.startswith(server.address) for address in browser_page.requests)


@pytest.mark.slow
def test_an_audit_goes_on_after_a_reload_and_gives_an_interval(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/audit", width=1400)
    page.get_by_role("button", name="Draw 50 at random").click()
    page.wait_for_selector(".stage figcaption")
    person = Person(page, server, truth)
    drawn = server.state()["audit"]["open"]
    assert len({row for row, _ in drawn}) == 50
    for _ in range(6):
        person.label_one()
    person.saved()
    page.reload()
    page.wait_for_selector(".stage figcaption")
    assert page.locator(".place").inner_text() == "1 of 44"
    audit = server.state()["audit"]
    assert audit["open"] == drawn[6:]
    classes = server.state()["classes"]
    expected = sum(
        (classes[code] if code >= 0 else "_none") == person.said[person.names[row]] for row, code in drawn[:6]
    )
    assert (audit["answered"], audit["right"]) == (6, expected)
    low, high = audit["interval"]
    assert 0 <= low < audit["accuracy"] <= high <= 1
    assert page.locator(".estimate strong").inner_text() == f"{100 * expected / 6:.0f} %"


@pytest.mark.slow
def test_two_tabs_see_each_other_and_keys_are_silent_while_typing(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    first = browser_page(f"{server.address}#/doubtful", width=1400)
    second = browser_page(f"{server.address}#/history", width=1400)
    first.wait_for_selector(".stage figcaption")
    second.wait_for_selector(".history .empty")
    first.keyboard.press("/")
    first.keyboard.type("axun 1230")
    assert first.locator("#query").input_value() == "axun 1230"
    first.keyboard.press("Escape")
    assert server.state()["version"][0] == 0
    name = first.locator(".stage figcaption").inner_text()
    first.keyboard.press("1")
    second.wait_for_selector(f".history li:has-text('{name}')")
    second.get_by_role("button", name="Undo decision 1").click()
    second.wait_for_selector(".history .undone")
    until(first, "document.querySelector('.counts .accepted dd').textContent === '0'")
    first.keyboard.press("?")
    assert first.locator("dialog[open] dt").count() == 11
    first.keyboard.press("1")
    first.keyboard.press("Escape")
    assert server.state()["version"][0] == 2


@pytest.mark.slow
def test_shift_click_and_select_all_choose_items_of_a_grid(photos, tmp_path, start, browser_page):
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/class/red", width=1400)
    tiles = page.locator(".tile")
    tiles.nth(1).click()
    tiles.nth(5).click(modifiers=["Shift"])
    assert page.locator(".tile[aria-selected=true]").count() == 5
    assert page.locator(".actions .main .words").inner_text() == "Accept 5 selected"
    page.keyboard.press("Control+a")
    count = int(page.locator(".tile").first.get_attribute("aria-setsize"))
    assert page.locator(".actions .main .words").inner_text() == f"Accept {count} selected"
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    until(page, SAVED)
    assert server.state()["version"][0] == 1
    assert json.loads(server.ask("history")[1])[0]["kind"] == "reject"


def of_texts(folder):
    texts = [f"{'heavy rain and wind' if i % 2 else 'jazz on the piano'} number {i}" for i in range(60)]
    frame = pd.DataFrame({"text": texts, "label": ["music", "weather"] * 4 + [""] * 52})
    frame.to_csv(folder / "texts.csv", index=False)
    return folder / "texts.csv"


def of_embeddings(folder):
    rng, codes = np.random.default_rng(0), np.arange(120) % 3
    features = rng.gamma(1.0 + 5.0 * (codes[:, None] == np.arange(12) % 3)).astype(np.float32)
    labels = np.where(np.arange(120) < 12, codes, -1)
    np.savez(folder / "vectors.npz", features=features, labels=labels, class_names=np.array(["a", "b", "c"]))
    return folder / "vectors.npz"


TEXTS = """
import sys
from pathlib import Path
import numpy as np
from sinkshot.review.server import review

def counts(texts):
    return np.array([[text.count("rain"), text.count("jazz"), 1.0] for text in texts])

options = {"encoder": counts, "name": "counts", "text": "text"} if sys.argv[2].endswith("csv") else {}
review(Path(sys.argv[2]), out=Path(sys.argv[3]), open_browser=False, tell=lambda words: None,
       announce=lambda address: print(address, flush=True), unknown=None, **options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_texts, of_embeddings])
def test_texts_and_embeddings_are_reviewed_like_pictures(make, tmp_path, start, browser_page):
    server = start(make(tmp_path), tmp_path / "labels", program=TEXTS)
    server.fitted()
    page = browser_page(f"{server.address}#/doubtful", width=1400)
    page.wait_for_selector(".stage figcaption")
    name = page.locator(".stage figcaption").inner_text()
    best = page.locator(".choice .words").first.inner_text()
    page.keyboard.press("1")
    until(page, "name => document.querySelector('.stage figcaption').textContent !== name", arg=name)
    page.evaluate("where => { location.hash = '#/class/' + where }", best)
    page.wait_for_selector(".tile")
    assert page.locator(".tile img").count() == 0
    page.keyboard.press("Control+a")
    page.keyboard.press("Enter")
    page.wait_for_selector(".grid-view .empty:not([hidden])")
    until(page, SAVED)
    accepted = server.state()["counts"]["accepted"]
    assert accepted > 10
    page.close()
    assert server.interrupt()[0] == 0
    labels = labels_of(tmp_path / "labels")
    assert labels[name] == (best, "accepted")
    assert sum(source == "accepted" for _, source in labels.values()) == accepted


@pytest.mark.long
def test_a_thousand_birds(tmp_path, start, browser_page):
    """Real images: CUB in a folder that SINKSHOT_CUB names, class folders with images."""
    if "SINKSHOT_CUB" not in os.environ:
        pytest.skip("SINKSHOT_CUB names no folder of class folders with images")
    folders = sorted(path for path in Path(os.environ["SINKSHOT_CUB"]).iterdir() if path.is_dir())[:17]
    kinds = {}
    for folder in folders:
        for number, path in enumerate(sorted(folder.iterdir())):
            kind = folder.name.split(".")[-1].replace("_", " ")
            known = folder in folders[:13]
            target = tmp_path / "birds" / (kind if known and number < 5 else "_unlabeled") / f"{kind} {number}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
            kinds[target.relative_to(tmp_path / "birds").as_posix()] = kind
    assert len(kinds) >= 900
    command = ["-m", "sinkshot", "label", tmp_path / "birds", "--review", "--no-open", "--out"]

    def begun(source, out):
        return start(source, out, *command, out, program="")

    known = folders[0].name.split(".")[-1].replace("_", " ")
    review_by_keyboard(browser_page, begun, tmp_path / "birds", tmp_path / "labels", kinds.get, known, "new bird")
