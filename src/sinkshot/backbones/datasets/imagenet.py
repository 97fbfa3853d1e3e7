"""miniImageNet as class lists in CSV, and the pickled forms of miniImageNet, tieredImageNet, CIFAR-FS and FC100.

    images/*.jpg, {train,val,test}.csv with `filename,label`                    Ravi and Larochelle
    {train,val,test}_images_png.pkl or _images.npz, {train,val,test}_labels.pkl    tieredImageNet, Ren et al.
    <name>_{train,val,test}.pickle with `data` and `labels`                     others, for all but CUB

Pickles are read by an unpickler that makes arrays and plain containers and nothing else.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sinkshot.backbones.datasets import known, pickled
from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import FOLDER_NAMES, SPLITS, DataSet
from sinkshot.backbones.datasets.packs import mapped
from sinkshot.backbones.datasets.sources import Encoded, Files, Pixels, Source, joined
from sinkshot.errors import InputError
from sinkshot.foreign import texts
from sinkshot.foreign.pictures import suffixes

_PICKLES = {
    "cifar-fs": "CIFAR_FS_{}.pickle",
    "fc100": "FC100_{}.pickle",
    "mini-imagenet": "miniImageNet_category_split_{}.pickle",
}


def is_csv(path: Path) -> bool:
    """Whether a folder has `images` and lists of them by split."""
    return (path / "images").is_dir() and any(_list(path, split) is not None for split in SPLITS)


def read_csv(path: Path, split: str, data_set: DataSet | None) -> Images:
    """List the images that the split's CSV names, whether they are there or not."""
    data_set = data_set or known.get("mini-imagenet")
    parts = [part for part in SPLITS if split in (part, "all")]
    lists = {part: _list(path, part) for part in parts}
    if absent := [part for part, file in lists.items() if file is None]:
        named = ", ".join(f"{FOLDER_NAMES[part][0]}.csv" for part in absent)
        raise InputError(f"{path} has no list of the {' and '.join(absent)} images ({named}).")
    rows = [row for file in lists.values() if file is not None for row in _rows(file)]
    names = sorted({label for _, label in rows})
    number = {name: i for i, name in enumerate(names)}
    rows.sort(key=lambda row: number[row[1]])  # class by class; the file's order within
    return Images(
        Files(path / "images", [name for name, _ in rows]),
        np.array([number[label] for _, label in rows], np.int64),
        tuple(names),
        meta={"data_set": data_set.title, "split": split, "layout": "csv"},
        expected=data_set.expected(split, names),
        faults=tuple(data_set.missing(split, names)),
    )


def _list(path: Path, split: str) -> Path | None:
    candidates = (folder / f"{name}.csv" for folder in (path, path / "splits") for name in FOLDER_NAMES[split])
    return next((file for file in candidates if file.is_file()), None)


def _rows(file: Path) -> list[tuple[str, str]]:
    table = list(csv.reader(texts.lines(file)))
    if not table or table[0][:2] != ["filename", "label"]:
        raise InputError(f"{file} does not begin with the line 'filename,label', so it is not a list of images.")
    for line, row in enumerate(table[1:], start=2):
        if row and (len(row) < 2 or not row[1] or Path(row[0]).suffix.lower() not in suffixes()):
            raise InputError(f"{file}, line {line}: expected a file name and a label, found {','.join(row)!r}.")
    return [(row[0], row[1]) for row in table[1:] if row]


def is_tiered(path: Path) -> bool:
    """Whether a folder has the pickled labels of tieredImageNet and images beside them."""
    return any((path / f"{name}_labels.pkl").is_file() for name in ("train", "val", "test"))


def read_tiered(path: Path, split: str, data_set: DataSet | None) -> Images:
    """Read tieredImageNet's pickles or, for the images, the archives of plain pixels made from them."""
    return _several(path, split, data_set or known.get("tiered-imagenet"), "tiered-pickles", _tiered_part)


def _tiered_part(path: Path, word: str, data_set: DataSet) -> tuple[Source, list[str]]:
    labels = pickled.read(path / f"{word}_labels.pkl")
    texts = pickled.flat(labels["label_specific_str"])
    named = [str(texts[int(i)]) for i in pickled.flat(labels["label_specific"])]
    pixels = path / f"{word}_images.npz"
    if pixels.is_file():
        images = pickled.pixels(mapped(pixels, "images"))
        if images.ndim != 4 or images.shape[-1] != 3:
            raise ValueError(f"expected images [n, h, w, 3], found an array of shape {images.shape}")
        return Pixels(images[..., ::-1], pixels.name), named  # OpenCV wrote them: blue comes first
    encoded = pickled.read(path / f"{word}_images_png.pkl")
    return Encoded([pickled.pixels(image) for image in encoded], f"{word}_images_png.pkl"), named


def is_pickles(path: Path) -> bool:
    """Whether a folder has `<name>_{train,val,test}.pickle` files of a known data set."""
    return _pickled_set(path) is not None


def read_pickles(path: Path, split: str, data_set: DataSet | None) -> Images:
    """Read `data` [n, h, w, 3] and `labels` [n] of the split's pickle."""
    name = _pickled_set(path)
    if data_set is not None and data_set.name != name:
        raise InputError(f"{path} holds the pickles of {name}, not of {data_set.name}.")
    return _several(path, split, known.get(str(name)), "pickles", _pickled_part)


def _pickled_set(path: Path) -> str | None:
    found = (name for name, form in _PICKLES.items() if any((path / form.format(w)).is_file() for w in ("test", "val")))
    return next(found, None)


def _pickled_part(path: Path, word: str, data_set: DataSet) -> tuple[Source, list[str]]:
    mini_base = data_set.name == "mini-imagenet" and word == "train"
    file = path / _PICKLES[data_set.name].format("train_phase_train" if mini_base else word)
    content = pickled.read(file)
    pixels = pickled.pixels(content["data"])
    if pixels.ndim != 4 or pixels.shape[-1] != 3:
        raise ValueError(f"expected images [n, h, w, 3], found an array of shape {pixels.shape}")
    return Pixels(pixels, file.name), [str(label) for label in pickled.flat(content["labels"])]


Part = Callable[[Path, str, DataSet], tuple[Source, list[str]]]


def _several(path: Path, split: str, data_set: DataSet, layout: str, part: Part) -> Images:
    """Put together the parts of a split, or of all."""
    sources, named = [], []
    for word in (FOLDER_NAMES[p][0] for p in SPLITS if split in (p, "all")):
        try:
            source, classes = part(path, word, data_set)
        except InputError as error:
            raise InputError(f"{path}, {word}: {error}") from error
        except Exception as error:  # a damaged file makes its parsers raise almost anything
            raise InputError(f"{path}: the {word} files are damaged ({type(error).__name__}: {error}).") from error
        if len(source) != len(classes) or not classes:
            raise InputError(f"{path}: the {word} files hold {len(source)} images and {len(classes)} labels.")
        sources.append(source)
        named += classes
    names, labels = _numbered(named)
    return Images(
        joined(sources),
        labels,
        names,
        meta={"data_set": data_set.title, "split": split, "layout": layout},
        expected=data_set.expected(split, names),
        faults=tuple(data_set.miscounted(split, len(names))),  # pickles have numbers or words for names
    )


def _numbered(named: Sequence[str]) -> tuple[tuple[str, ...], Any]:
    names = tuple(dict.fromkeys(named))
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number[name] for name in named], np.int64)
