"""A full disk, a sleeping server, a browser offline, two tabs at once, killed writers: no decision is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest
from review_server import PATIENCE, labels_of

from sinkshot.label.decisions import read
from sinkshot.label.items import Items
from sinkshot.review.refit import Saver
from sinkshot.review.state import Review

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
AHEAD = "performance.getEntriesByType('resource').filter(one => /item.[0-9]+$/.test(one.name)).length"
SAVED = "document.getElementById('state').dataset.kind !== 'saving'"


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def said(page):
    """Return the sentence about trouble, or nothing."""
    return page.locator("#trouble").inner_text() if page.locator("#trouble").is_visible() else ""


@pytest.fixture
def opened(photos, tmp_path, start, browser_page):
    """Open the doubtful items of a server; what the browser itself says about failed requests is expected here."""
    server = start(photos, tmp_path / "labels")
    server.fitted()
    page = browser_page(f"{server.address}#/doubtful", width=1400)
    page.wait_for_selector(".stage figcaption")
    until(lambda: page.evaluate(AHEAD) > 2)
    yield server, page
    page.close()
    browser_page.faults[:] = [fault for fault in browser_page.faults if "Failed to load resource" not in fault]


def label_shown(page):
    """Label the item that is shown with the first class; return its name and the class."""
    name, label = page.locator(".stage figcaption").inner_text(), page.locator(".choice .words").first.inner_text()
    page.keyboard.press("1")
    until(lambda: page.locator(".stage figcaption").inner_text() != name)
    return name, label


def check(server, decided):
    assert server.interrupt()[0] == 0
    labels = labels_of(server.out)
    assert {name: label for name, (label, source) in labels.items() if source == "accepted"} == decided
    assert len(read(server.out / "decisions.jsonl")) == len(decided)


@linux
@pytest.mark.slow
def test_decisions_wait_for_a_full_disk_also_over_a_reload(opened):
    server, page = opened
    decided = dict([label_shown(page)])
    until(lambda: page.evaluate(SAVED))
    size = (server.out / "decisions.jsonl").stat().st_size
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
    decided |= dict([label_shown(page)])
    until(lambda: "1 decision is not saved yet" in said(page))
    assert "decisions.jsonl cannot be written" in said(page)
    decided |= dict([label_shown(page)])
    until(lambda: "2 decisions are not saved yet" in said(page))
    page.on("dialog", lambda dialog: dialog.accept())  # the browser asks whether to leave
    page.reload()
    until(lambda: "2 decisions are not saved yet" in said(page))
    assert (server.out / "decisions.jsonl").stat().st_size == size
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    until(lambda: page.evaluate(SAVED) and not said(page))
    check(server, decided)


@linux
@pytest.mark.slow
def test_decisions_wait_for_a_server_that_sleeps(opened):
    server, page = opened
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        decided = dict([label_shown(page)])
        until(lambda: "The server does not answer. 1 decision is not saved yet" in said(page))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    until(lambda: page.evaluate(SAVED) and not said(page))
    decided |= dict([label_shown(page)])
    until(lambda: page.evaluate(SAVED))
    check(server, decided)


@pytest.mark.slow
def test_decisions_wait_for_a_browser_that_is_offline(opened):
    server, page = opened
    page.context.set_offline(True)
    decided = dict([label_shown(page)])
    until(lambda: "1 decision is not saved yet" in said(page))
    page.context.set_offline(False)
    until(lambda: page.evaluate(SAVED) and not said(page))
    assert server.decide("label", items=[0], label="red")[0] == 200
    until(lambda: page.locator(".counts .accepted dd").inner_text() == "2")  # the page hears of others again
    decided |= {next(iter(labels_of(server.out))): "red"}
    check(server, decided)


@pytest.mark.slow
def test_nothing_is_said_of_an_item_that_is_not_shown(opened):
    server, page = opened
    page.context.set_offline(True)
    for _ in range(page.evaluate(AHEAD) + 2):  # until the next item is one that was not fetched
        before = page.locator("#state").inner_text()
        for key in ("u", "1", "x", "n", "Enter"):
            page.keyboard.press(key)
            page.keyboard.press("Escape")
        page.wait_for_timeout(100)
        if page.locator("#state").inner_text() == before:
            break
    else:
        raise AssertionError("items that cannot be seen are decided")
    waiting = int(page.locator("#state").inner_text().split()[-1])
    page.context.set_offline(False)
    until(lambda: page.evaluate(SAVED))
    assert len(read(server.out / "decisions.jsonl")) == waiting


@pytest.mark.slow
def test_two_tabs_that_label_an_item_at_once_agree_on_the_last(photos, tmp_path, start):
    server = start(photos, tmp_path / "labels")
    row = server.fitted()["source"].index(0)
    for _ in range(5):
        threads = [
            threading.Thread(target=server.decide, args=("label",), kwargs={"items": [row], "label": label})
            for label in ("red", "blue")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = read(server.out / "decisions.jsonl")
    assert [one.number for one in written] == list(range(1, 11))
    assert server.interrupt()[0] == 0
    assert labels_of(server.out)[written[-1].items[0]] == (written[-1].label, "accepted")


@linux
@pytest.mark.slow
def test_labels_csv_is_whole_whenever_its_writer_is_killed(tmp_path):
    names = tuple(map(str, range(2_000)))
    items = Items("embeddings", names, ("a", "b", *[None] * 1_998), np.zeros(2_000, dtype=bool))
    review = Review(items, np.ones((2_000, 2), dtype=np.float32), tmp_path)
    saver, rng = Saver(review), random.Random(0)
    saver.save()
    whole = (tmp_path / "labels.csv").read_bytes()

    def over_and_over():
        while True:
            saver._saved = None
            saver.save()

    for _ in range(40):
        writer = multiprocessing.get_context("fork").Process(target=over_and_over)
        writer.start()
        time.sleep(rng.uniform(0.005, 0.04))
        writer.kill()
        writer.join()
        assert (tmp_path / "labels.csv").read_bytes() == whole


def test_a_labels_csv_that_cannot_be_written_is_told_and_tried_again(tmp_path):
    items = Items("embeddings", ("a", "b"), ("x", "y"), np.zeros(2, dtype=bool))
    told, review = [], Review(items, np.ones((2, 2), dtype=np.float32), tmp_path / "labels")
    saver = Saver(review, lambda: told.append(review.status["trouble"]))
    saver.save()
    (tmp_path / "labels").mkdir()
    saver.save()
    saver.save()
    assert [("there is no folder" in one, "It is tried again" in one, one == "") for one in told] == [
        (True, True, False),
        (False, False, True),
    ]
    assert set(labels_of(tmp_path / "labels")) == {"a", "b"}
