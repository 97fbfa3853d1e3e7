"""CIFAR-100, of which CIFAR-FS and FC100 are two splits by class, in the two forms in which it is distributed.

cifar-100-python.tar.gz, or its folder      Krizhevsky's pickles: `train`, `test` and `meta`
cifar100/{data/<class>/*.png, splits/bertinetto/{train,val,test}.txt}       Bertinetto's folder of CIFAR-FS
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sinkshot.backbones.datasets import folders, known, pickled
from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import FOLDER_NAMES, SPLITS, DataSet
from sinkshot.backbones.datasets.sources import Pixels
from sinkshot.errors import InputError
from sinkshot.foreign import archives, texts
from sinkshot.formats.plk import unpickle

PICKLES = ("meta", "train", "test")


def is_python(path: Path) -> bool:
    """Whether a path is CIFAR-100's python tarball or the folder that comes out of it."""
    if path.is_file():
        return path.name.startswith("cifar-100-python") and archives.is_tar(path)
    return all((path / name).is_file() for name in PICKLES)


def read_python(path: Path, split: str, data_set: DataSet | None) -> Images:
    """Read the pickles, train and test together; classes are those of CIFAR-FS unless FC100 is named."""
    data_set = data_set or known.get("cifar-fs")
    try:
        content = _pickles(path)
        names = [str(name) for name in pickled.flat(content["meta"]["fine_label_names"])]
        halves = [content["train"], content["test"]]
        pixels = np.concatenate([pickled.pixels(half["data"]).reshape(-1, 3, 32, 32) for half in halves])
        fine = np.concatenate([np.array(pickled.flat(half["fine_labels"]), np.int64) for half in halves])
        if len(fine) != len(pixels) or len(fine) == 0 or not 0 <= fine.min() <= fine.max() < len(names):
            raise ValueError("labels and images do not fit together")
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # a damaged file makes its parsers raise almost anything
        raise InputError(
            f"{path} is damaged or not CIFAR-100 ({type(error).__name__}: {error}); download it again."
        ) from error
    wanted = [name for name in data_set.class_names(split) if name in names]
    number = np.full(len(names), -1)
    number[[names.index(name) for name in wanted]] = np.arange(len(wanted))
    rows = np.flatnonzero(number[fine] >= 0)
    rows = rows[np.argsort(number[fine[rows]], kind="stable")]  # class by class, as all our layouts
    return Images(
        Pixels(pixels.transpose(0, 2, 3, 1)[rows], path.name),
        number[fine[rows]],
        tuple(wanted),
        meta={"data_set": data_set.title, "split": split, "layout": "cifar-100-python"},
        expected=data_set.expected(split, wanted),
        faults=tuple(data_set.missing(split, wanted)),
    )


def _pickles(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return {name: pickled.read(path / name) for name in PICKLES}
    return {name: unpickle(content) for name, content in archives.members(path, PICKLES).items()}


def is_bertinetto(path: Path) -> bool:
    """Whether a folder has `data` and the class lists of CIFAR-FS beside it."""
    return (path / "data").is_dir() and (path / "splits" / "bertinetto").is_dir()


def read_bertinetto(path: Path, split: str, data_set: DataSet | None) -> Images:
    """List the classes that the split's own text files name."""
    data_set = data_set or known.get("cifar-fs")
    lists = [
        path / "splits" / "bertinetto" / f"{FOLDER_NAMES[part][0]}.txt" for part in SPLITS if split in (part, "all")
    ]
    if absent := [str(file) for file in lists if not file.is_file()]:
        raise InputError(f"{absent[0]}, which names the {split} classes, is missing; download the data set again.")
    wanted = sorted({line.strip() for file in lists for line in texts.lines(file) if line.strip()})
    there = set(folders.class_folders(path / "data"))
    meta = {"data_set": data_set.title, "split": split, "layout": "cifar-fs"}
    return folders.listed(path, [f"data/{name}" for name in wanted if name in there], meta, data_set)
