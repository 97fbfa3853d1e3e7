"""Measure how long a folder of many tiny images takes to be listed and planned, and how much memory.

The images are hard links of twenty small files, in a hundred folders. Each line of JSON is a process of its own: what
`extract` lists and plans, up to the first part, and what `label` lists and cuts into parts.

    python tools/measure_listing.py work --images 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from measure_growth import network

FILES, FOLDERS = 20, 100


class PlannedError(Exception):
    """Raised when the first part would begin."""


def make(folder: Path, count: int) -> Path:
    """Write the images, if they are not there yet."""
    from PIL import Image

    path, first = folder / f"tiny-{count}", folder / "tiny"
    if path.exists():
        return path
    first.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for number in range(FILES):
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(first / f"{number}.png")
    for number in range(FOLDERS):
        place = path / f"class-{number:02d}"
        place.mkdir(parents=True)
        for image in range(count * number // FOLDERS, count * (number + 1) // FOLDERS):
            os.link(first / f"{image % FILES}.png", place / f"{image:07d}.png")
    return path


def of_extract(folder: Path, photos: Path) -> dict[str, Any]:
    """List and plan as `extract` does."""
    from sinkshot.backbones import datasets
    from sinkshot.encoders.extract_parts import EncoderChoice, extract_parts

    began = time.monotonic()
    images = datasets.load(photos, size=64)
    listed = time.monotonic() - began

    def stop(*_: int) -> None:
        raise PlannedError

    choice = EncoderChoice(network(folder), (("size", 64),))
    with suppress(PlannedError):
        extract_parts(choice, images, str(folder / "listed"), progress=stop)
    return {"images": len(images), "listed": listed, "planned": time.monotonic() - began}


def of_label(photos: Path) -> dict[str, Any]:
    """List and cut into parts as `label --workers` does."""
    from sinkshot.label import inputs
    from sinkshot.label.encode_parts import PART_ITEMS

    began = time.monotonic()
    items = inputs.read(photos)
    listed = time.monotonic() - began
    parts = [items.slice(at, at + PART_ITEMS) for at in range(0, len(items), PART_ITEMS)]
    return {"images": sum(map(len, parts)), "listed": listed, "planned": time.monotonic() - began}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to keep images")
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["extract", "label"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    photos = make(asked.folder.resolve(), asked.images)
    if asked.only is None:
        network(asked.folder.resolve())
        for command in ("extract", "label"):
            subprocess.run([sys.executable, *sys.argv, "--only", command], check=True)
        return
    found = of_extract(asked.folder.resolve(), photos) if asked.only == "extract" else of_label(photos)
    found = {name: round(value, 1) for name, value in found.items()}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"command": asked.only, **found, "mebibytes": most}), flush=True)


if __name__ == "__main__":
    main()
