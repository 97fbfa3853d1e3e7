"""Image folders: `root/<class>/*`, and `root/{train,val,test}/<class>/*` with a folder for each split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import FOLDER_NAMES, SPLITS, DataSet, guess, no_split
from sinkshot.backbones.datasets.sources import Files
from sinkshot.errors import InputError
from sinkshot.foreign.pictures import suffixes


def is_split_folders(path: Path) -> bool:
    """Whether a folder has a folder for the base and one for the novel classes, with folders of classes in them."""
    found = [split_folder(path, split) for split in ("base", "novel")]
    return all(folder is not None and class_folders(folder) for folder in found)


def is_folder(path: Path) -> bool:
    """Whether a folder has folders with images in them."""
    return any(images_in(path / name) for name in class_folders(path))


def read_folder(path: Path, split: str, data_set: DataSet | None) -> Images:
    """List `path/<class>/*`; the split is read from the classes of the data set that is named or recognised."""
    names = class_folders(path)
    data_set = data_set or guess(names)
    if data_set is None:
        if split != "all":
            raise no_split(split, f"the folder {path}")
        return listed(path, names, {"layout": "folder", "split": "all"})
    if split == "all":  # the folder may hold the classes of one split, and those alone
        split = next((part for part in SPLITS if set(names) == set(data_set.class_names(part))), split)
    wanted = data_set.class_names(split)
    meta = {"data_set": data_set.title, "split": split, "layout": "folder"}
    return listed(path, [name for name in wanted if name in names], meta, data_set)


def read_split_folders(path: Path, split: str, data_set: DataSet | None) -> Images:
    """List `path/<split>/<class>/*` for one split or for all."""
    folders = [split_folder(path, part) for part in (SPLITS if split == "all" else (split,))]
    there = [folder for folder in folders if folder is not None]
    if not there:
        raise InputError(
            f"{path} has no folder for the {split} classes ({' or '.join(FOLDER_NAMES[split])}); add one, or, for "
            "training, give validation images separately (--validation)."
        )
    names = [f"{folder.name}/{name}" for folder in there for name in class_folders(folder)]
    data_set = data_set or guess([name.partition("/")[2] for name in names])
    meta = {"split": split, "layout": "split-folders"}
    return listed(path, names, {"data_set": data_set.title, **meta} if data_set else meta, data_set)


def listed(root: Path, folders: Sequence[str], meta: dict[str, str], data_set: DataSet | None = None) -> Images:
    """Return the images of the given folders below `root`, each the class of its last name, sorted within it."""
    names = [folder.rpartition("/")[2] for folder in folders]
    if twice := {name for name, count in Counter(names).items() if count > 1}:
        raise InputError(
            f"{root}: the class {min(twice)!r} is in more than one split; choose one split, or rename the class."
        )
    files = [images_in(root / folder) for folder in folders]
    paths = [f"{folder}/{file}" for folder, inside in zip(folders, files, strict=True) for file in inside]
    labels = np.repeat(np.arange(len(folders)), [len(inside) for inside in files])
    faults = data_set.missing(meta["split"], names) if data_set else []
    expected = data_set.expected(meta["split"], names) if data_set else {}
    return Images(Files(root, paths), labels, tuple(names), meta=meta, expected=expected, faults=tuple(faults))


def split_folder(path: Path, split: str) -> Path | None:
    """Return the folder of a split, if there is one."""
    return next((path / name for name in FOLDER_NAMES[split] if (path / name).is_dir()), None)


def class_folders(path: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted; hidden ones are left out."""
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def images_in(folder: Path) -> list[str]:
    """Return the names of the image files in a folder, sorted; others and hidden ones are left out."""
    files = (entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(name for name in files if Path(name).suffix.lower() in suffixes())
