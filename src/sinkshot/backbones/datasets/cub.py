"""CUB-200-2011: `images/<class>/*.jpg`, listed in `images.txt` and `image_class_labels.txt`; whole images, no boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sinkshot.backbones.datasets import known
from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import DataSet
from sinkshot.backbones.datasets.sources import Files
from sinkshot.errors import InputError
from sinkshot.foreign import texts


def is_cub(path: Path) -> bool:
    """Whether a folder has CUB's lists."""
    return (path / "images.txt").is_file() and (path / "image_class_labels.txt").is_file()


def read_cub(path: Path, split: str, data_set: DataSet | None) -> Images:
    """List the images of a split's classes, in the order of `images.txt`, whether they are there or not."""
    data_set = data_set or known.get("cub")
    paths, classes = _pairs(path / "images.txt"), _pairs(path / "image_class_labels.txt")
    names = _pairs(path / "classes.txt") if (path / "classes.txt").is_file() else {}
    faults = [f"image {number} ({name}) has no label" for number, name in paths.items() if number not in classes]
    faults += [f"image {number} has a label but no file name" for number in classes if number not in paths]
    whole = [number for number in paths if number in classes]
    named = {number: names.get(classes[number], paths[number].rpartition("/")[0]) for number in whole}
    wanted = [name for name in data_set.class_names(split) if name in set(named.values())]
    place = {name: i for i, name in enumerate(wanted)}
    chosen = sorted((n for n in whole if named[n] in place), key=lambda n: place[named[n]])
    return Images(
        Files(path / "images", [paths[number] for number in chosen]),
        np.array([place[named[number]] for number in chosen], np.int64),
        tuple(wanted),
        meta={"data_set": data_set.title, "split": split, "layout": "cub"},
        expected=data_set.expected(split, wanted),
        faults=tuple(faults + data_set.missing(split, wanted)),
    )


def _pairs(file: Path) -> dict[str, str]:
    """Read lines of a number and a word."""
    found = {}
    for line, text in enumerate(texts.lines(file), start=1):
        number, _, word = text.strip().partition(" ")
        if text.strip() and not word:
            raise InputError(f"{file}, line {line}: expected a number and a word, found {text!r}.")
        if word:
            found[number] = word
    return found
