"""Make the pictures of docs/review.md: draw some images, review them, and look at the page.

    python tools/draw_review.py docs/pictures

It needs the extras app and images, Playwright, and an installed Chromium.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import sync_playwright

SIDE = 320
SHAPES = ("star", "moon", "drop", "leaf", "ring", "house")
STRANGERS = ("arrow",)  # drawn, and never labelled
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
PICTURES = {  # name: view, width, height, scheme
    "review-class": ("class/star", 1280, 800, "light"),
    "review-doubtful": ("doubtful", 1280, 800, "dark"),
}


def outline(kind: str) -> list[tuple[float, float]]:
    """Return the corners of a shape between -1 and 1."""
    turn = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    if kind == "star":
        radius = np.where(np.arange(10) % 2, 0.42, 1.0)
        return [(r * np.sin(a), -r * np.cos(a)) for r, a in zip(radius, np.arange(10) * np.pi / 5, strict=True)]
    if kind == "drop":
        return [(0.62 * np.sin(a) * np.sin(a / 2) ** 1.5, -np.cos(a)) for a in turn]
    if kind == "leaf":
        return [(0.55 * np.sin(a) * abs(np.sin(a / 2)), 1.0 * np.cos(a) + 0.15 * np.sin(2 * a)) for a in turn]
    if kind == "house":
        return [(-0.75, 0.9), (-0.75, -0.1), (-1, -0.1), (0, -0.95), (1, -0.1), (0.75, -0.1), (0.75, 0.9)]
    if kind == "arrow":
        return [(-1, -0.25), (0.1, -0.25), (0.1, -0.7), (1, 0), (0.1, 0.7), (0.1, 0.25), (-1, 0.25)]
    return [(np.sin(a), np.cos(a)) for a in turn]


def draw(kind: str, rng: np.random.Generator) -> Image.Image:
    """Draw a shape in some colour, size and direction on a soft ground."""
    hue = rng.uniform(0, 255)
    ground, paint = (int(hue), int(rng.uniform(20, 70)), int(rng.uniform(205, 245))), (
        int(hue + rng.uniform(70, 185)) % 256,
        int(rng.uniform(110, 190)),
        int(rng.uniform(95, 200)),
    )  # fmt: skip
    image = Image.new("HSV", (4 * SIDE, 4 * SIDE), ground)
    pen = ImageDraw.Draw(image)
    size, angle = rng.uniform(0.9, 1.45) * SIDE, np.deg2rad(rng.uniform(-25, 25))
    middle = 2 * SIDE + rng.uniform(-0.3, 0.3, 2) * SIDE
    spin = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = [tuple(middle + size * (spin @ point)) for point in np.array(outline(kind))]
    pen.polygon(corners, fill=paint)
    if kind in ("ring", "moon"):
        shift = np.array([0.0, 0.0]) if kind == "ring" else size * (spin @ np.array([0.45, -0.2]))
        inner = 0.55 if kind == "ring" else 0.85
        pen.polygon([tuple(middle + shift + inner * size * np.array(point)) for point in outline("ring")], fill=ground)
    return image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS).filter(ImageFilter.SMOOTH)


def draw_folder(root: Path, each: int = 36) -> None:
    """Draw a folder with five labelled images of each shape, and many without a label."""
    rng = np.random.default_rng(7)
    for kind in (*SHAPES, *STRANGERS):
        for number in range(each):
            inside = kind if kind in SHAPES and number < 5 else "_unlabeled"
            file = root / inside / f"{kind}-{number:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            draw(kind, rng).save(file)


@contextmanager
def served(root: Path, out: Path) -> Iterator[str]:
    """Review a folder; yield the address of the page once predictions are there."""
    words = [sys.executable, "-m", "sinkshot", "label", root, "--review", "--no-open", "--out", out]
    server = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        while (state := asked(f"{address}state"))["busy"] or not state["fit"]["number"]:
            time.sleep(0.2)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def asked(address: str) -> Any:
    """Return the JSON at an address."""
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def small(picture: bytes) -> bytes:
    """Return a PNG in few colours."""
    stream = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        stream, "PNG", optimize=True
    )
    return stream.getvalue()


def main() -> None:
    """Write the pictures into a folder."""
    target = Path(sys.argv[1])
    chromium = next(
        found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))
    )
    with tempfile.TemporaryDirectory() as work:
        draw_folder(Path(work) / "shapes")
        with served(Path(work) / "shapes", Path(work) / "labels") as address, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
            for name, (view, width, height, scheme) in PICTURES.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(f"{address}#/{view}")
                page.wait_for_selector("body[data-ready]")
                page.wait_for_timeout(2_000)
                (target / f"{name}.png").write_bytes(small(page.screenshot()))
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
