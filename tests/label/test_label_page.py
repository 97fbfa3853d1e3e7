"""The page of `label` in a real browser: quick with 10,000 items, nothing external, no wider than the screen."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from colour_photos import COLOURS, mean_colours, paint

from sinkshot.label.classifier import Answers
from sinkshot.label.page_figures import panels
from sinkshot.label.run import label

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SIZES = [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of images, texts and embeddings, with hostile names and a wrong label."""
    folder, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for i in range(3):
            paint(folder / "photos" / f"{name} <b>&" / f"{i}.png", colour, rng)
        for i in range(12):
            paint(folder / "photos" / f"{name}-{i}-{'long' * 20}.png", colour, rng)
    paint(folder / "photos" / "red <b>&" / "wrong.png", COLOURS["blue"], rng)
    (folder / "photos" / "notes.txt").write_text("not an image")
    label(folder / "photos", encoder=mean_colours, size=8, name="colours", out=folder / "images")
    texts = [f"<script>alert({i})</script> {'rain' if i % 2 else 'jazz'} " + "word" * 60 for i in range(40)]
    pd.DataFrame({"text": texts, "label": ["music", "weather"] * 3 + [""] * 34}).to_csv(folder / "t.csv", index=False)

    def counts(texts):
        return np.array([[text.count("rain"), text.count("jazz"), 1.0] for text in texts])

    label(folder / "t.csv", text="text", encoder=counts, name="counts", out=folder / "texts")
    truth = np.arange(200) % 4
    table = pd.DataFrame(rng.gamma(1.0 + 4.0 * (truth[:, None] == np.arange(12) % 4)))
    table["label"] = np.where(np.arange(200) < 20, [f"kind {code}" for code in truth], "")
    label(table, out=folder / "embeddings")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["images", "texts", "embeddings"])
def test_the_page_fits_wide_and_narrow_screens_in_light_and_dark(pages, browser_page, kind):
    grounds = set()
    for width, scheme in SIZES:
        page = browser_page(pages / kind / "report.html", width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").is_visible()
        assert page.locator("script").count() == 0
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        broken = "[...document.images].filter(image => !image.src.startsWith('data:image/jpeg')).length"
        assert page.evaluate(broken) == 0
    assert len(grounds) == 2
    assert set(browser_page.requests) == {(pages / kind / "report.html").as_uri()} | {
        address for address in browser_page.requests if address.startswith("data:")
    }


@pytest.mark.slow
def test_every_class_is_reached_from_the_top(pages, browser_page):
    page = browser_page(pages / "images" / "report.html", width=1400)
    assert page.locator(".tiles .class").all_inner_texts()[:3] == ["blue <b>&", "green <b>&", "red <b>&"]
    for link in page.locator(".tiles a, .jump a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    assert "wrong.png" in page.locator("section[aria-labelledby=suspicious]").text_content()
    assert "notes.txt" in page.locator("section[aria-labelledby=left-out]").text_content()


@pytest.mark.parametrize("count", [3, 18])
def test_the_histogram_of_a_small_pool_counts_in_whole_items(count):
    sure = np.column_stack([np.full(count, 0.98), np.full(count, 0.02)])
    answers = Answers(("a", "b"), sure, np.zeros(count), ("a",) * count, ("predicted",) * count, (), (), None)
    features = np.random.default_rng(0).random((count, 4))
    histogram, _ = panels("texts", features, answers, np.ones(count, dtype=bool))
    ticks = re.findall(r">([\d.]+)</text>", histogram.svg)
    assert len(ticks) > 2
    assert not [tick for tick in ticks if "." in tick]


@pytest.mark.timing
def test_a_page_of_10_000_items_is_painted_in_a_second_and_a_half(tmp_path, browser_page):
    rng, truth = np.random.default_rng(0), np.arange(10_000) % 40
    for i in range(400):  # files that stand for 10,000: twins share their features
        paint(tmp_path / "files" / f"{i}.png", rng.integers(30, 226, 3), rng)
    photos = tmp_path / "photos"
    for i, code in enumerate(truth):
        inside = photos / (f"class {code:02}" if i < 200 else "_unlabeled")
        inside.mkdir(parents=True, exist_ok=True)
        (inside / f"{i}.png").hardlink_to(tmp_path / "files" / f"{code * 10 + i % 10}.png")
    found = label(photos, encoder=mean_colours, size=8, name="colours", out=tmp_path / "labels")
    assert len(found.items) == 10_000
    seconds = []
    for width, scheme in SIZES:
        page = browser_page(tmp_path / "labels" / "report.html", width=width, scheme=scheme)
        page.wait_for_function(f"{FIRST_PAINT} > 0")
        seconds.append(page.evaluate(FIRST_PAINT) / 1000)
    assert max(seconds) < 1.5, seconds
