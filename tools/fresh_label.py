"""Time `sinkshot label` as a newcomer meets it: install, label 1,000 images, add ten labels, label again.

    python tools/fresh_label.py CLASSES --work DIR

CLASSES is a folder with a folder of images for each class (docs/label.md: the novel classes of CUB at 96 pixels). The
first 15 classes of 60 images or more are labelled, five images each; the other 55 of each and 100 images of further
classes are the pool. The wheel of this checkout goes into a new virtual environment in DIR with the extra `images`,
from wherever pip finds packages. Then the command runs, ten pool images go to the folders of their classes, and it
runs again. Start-up is the time until the command's first line. Prints one JSON object; nothing is cached before.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLASSES, LABELS, EACH, STRANGERS, ADDED = 15, 5, 60, 100, 10
ROOT = Path(__file__).resolve().parents[1]


def make_pool(source: Path, photos: Path) -> dict[str, str]:
    """Copy the images into class folders and `_unlabeled`; return the class of each pool image, "" of strangers."""
    classes = {folder.name: sorted(folder.iterdir()) for folder in sorted(source.iterdir()) if folder.is_dir()}
    chosen = [name for name, files in classes.items() if len(files) >= EACH][:CLASSES]
    truth: dict[str, str] = {}

    def put(file: Path, folder: str, name: str) -> None:
        target = photos / folder / f"{name}-{file.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)

    for number, name in enumerate(chosen):
        for i, file in enumerate(classes[name][:EACH]):
            put(file, name if i < LABELS else "_unlabeled", str(number))
            if i >= LABELS:
                truth[f"_unlabeled/{number}-{file.name}"] = name
    others = [file for name, files in classes.items() if name not in chosen for file in files]
    step = len(others) // STRANGERS
    for i, file in enumerate(others[: STRANGERS * step : step]):
        put(file, "_unlabeled", f"stranger{i}")
        truth[f"_unlabeled/stranger{i}-{file.name}"] = ""
    return truth


def run(*words: Any, folder: Path) -> dict[str, float]:
    """Run a command; return its seconds, and those until its first line."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    began, first = time.perf_counter(), None
    process = subprocess.Popen(
        list(map(str, words)), cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        first = time.perf_counter() - began if first is None else first
        lines.append(line)
    if process.wait():
        sys.exit(f"{' '.join(map(str, words))} failed:\n{''.join(lines)}")
    return {"seconds": round(time.perf_counter() - began, 2), "start_up": round(first or 0.0, 2)}


def checked(labels: Path, truth: dict[str, str]) -> dict[str, float]:
    """Compare labels.csv with the truth: accuracy of members, rejected ones counted as wrong, and of strangers."""
    with labels.open(newline="", encoding="utf-8") as file:
        rows = {row["file_name"]: row["label"] for row in csv.DictReader(file)}
    right = {name: rows[name] == label for name, label in truth.items() if name in rows}
    members = [value for name, value in right.items() if truth[name]]
    strangers = [value for name, value in right.items() if not truth[name]]
    return {"members_right": sum(members) / len(members), "strangers_rejected": sum(strangers) / len(strangers)}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("classes", type=Path)
    arguments.add_argument("--work", type=Path, required=True, help="folder to make; it must not exist")
    given = arguments.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True)
    truth = make_pool(given.classes, work / "photos")
    build = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", work / "wheel", ROOT]
    run(sys.executable, *build, folder=work)
    (wheel,) = (work / "wheel").glob("*.whl")
    load = os.getloadavg()[0]
    began = time.perf_counter()
    run(sys.executable, "-m", "venv", work / "venv", folder=work)
    run(work / "venv/bin/python", "-m", "pip", "install", "-q", f"{wheel}[images]", folder=work)
    installed = round(time.perf_counter() - began, 2)
    command = (work / "venv/bin/sinkshot", "label", "photos", "--out", "labels")
    first = run(*command, folder=work)
    quality = checked(work / "labels/labels.csv", truth)
    moved = [name for name, label in truth.items() if label][:: len(truth) // ADDED][:ADDED]
    for name in moved:
        (work / "photos" / name).rename(work / "photos" / truth[name] / Path(name).name)
    second = run(*command, folder=work)
    print(
        json.dumps(
            {
                "images": sum(
                    1 for file in (work / "photos").rglob("*") if file.is_file() and ".sinkshot" not in file.parts
                ),
                "install_seconds": installed,
                "first_run": first,
                "page_bytes": (work / "labels/report.html").stat().st_size,
                "until_the_page_seconds": round(installed + first["seconds"], 2),
                "second_run": second,
                "load": load,
                **quality,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
