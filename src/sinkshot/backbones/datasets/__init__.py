"""Labelled images from the layouts in which they come: `load` recognises them, `check` looks at every image.

images = load("cifar-100-python.tar.gz", split="novel", size=32)
check(images)
images.pixels([0, 1, 2])  # uint8 [3, 32, 32, 3]
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sinkshot.backbones.datasets import cifar, cub, folders, imagenet, known, packs
from sinkshot.backbones.datasets.images import MARGIN, Images, check
from sinkshot.backbones.datasets.known import DataSet
from sinkshot.backbones.datasets.object_store import read_objects
from sinkshot.errors import InputError, number, unknown_name, whole
from sinkshot.foreign.folders import is_address
from sinkshot.formats import as_path

__all__ = ["LAYOUTS", "MARGIN", "Images", "check", "layout_of", "load"]


class Layout(NamedTuple):
    """One way to lay out images on a disk."""

    recognises: Callable[[Path], bool]
    read: Callable[[Path, str, DataSet | None], Images]
    inside: tuple[str, ...] = ()  # folders that may stand between what was given and the layout


LAYOUTS = {
    "cifar-100-python": Layout(cifar.is_python, cifar.read_python, ("cifar-100-python",)),
    "cifar-fs": Layout(cifar.is_bertinetto, cifar.read_bertinetto, ("cifar100",)),
    "cub": Layout(cub.is_cub, cub.read_cub, ("CUB_200_2011",)),
    "csv": Layout(imagenet.is_csv, imagenet.read_csv),
    "tiered-pickles": Layout(imagenet.is_tiered, imagenet.read_tiered, ("tiered-imagenet",)),
    "pickles": Layout(imagenet.is_pickles, imagenet.read_pickles),
    "pack": Layout(packs.is_pack, packs.read_packs),
    "split-folders": Layout(folders.is_split_folders, folders.read_split_folders),
    "folder": Layout(folders.is_folder, folders.read_folder),
}
"""In the order in which they are tried."""


def load(
    path: str | os.PathLike[str],
    layout: str = "auto",
    split: str = "all",
    *,
    data_set: str | None = None,
    size: int | None = None,
    margin: float | None = None,
) -> Images:
    """List the images of a data set; nothing is decoded yet, and only `check` says whether all can be.

    Parameters
    ----------
    path : path
        A folder or a file in one of the `LAYOUTS`, or an address such as `s3://bucket/photos` with a folder per class.
    layout : str
        Its name, or "auto" to recognise it.
    split : str
        base, validation, novel (or train, val, test), or all.
    data_set : str, optional
        Whose classes make the splits (cifar-fs, fc100, mini-imagenet, tiered-imagenet, cub), where the layout
        and the classes themselves do not say so. CIFAR-100 alone is split as CIFAR-FS unless FC100 is named.
    size : int, optional
        Side of the square images that `pixels` gives; None: as they are.
    margin : float, optional
        The short side is first brought to `margin * size`, and the middle cut out; 1 keeps the largest square. Without
        it, images are brought down to 1.15 times the size, as the field tests its networks, and small ones stay whole.
    """
    if size is not None:
        whole("size", size, 8)
    if margin is not None and number("margin", margin, above=0.0) < 1:
        raise InputError(f"margin must be at least 1; {margin!r} was given.")
    shape = {"size": size, "margin": None if margin is None else float(margin)}
    if is_address(path):
        found = read_objects(os.fsdecode(path), known.split_name(split))
        return replace(found, **shape, meta={**found.meta, "source": os.fsdecode(path)})  # type: ignore[arg-type]
    (root, kind), name = _recognised(as_path(path), layout), known.split_name(split)
    chosen = None if data_set is None else known.get(data_set)
    try:
        images = LAYOUTS[kind].read(root, name, chosen)
    except OSError as error:
        raise InputError(f"{error.filename or path} cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"a list of images in {path} is not UTF-8 text ({error}); save it as UTF-8.") from error
    if len(images) == 0:
        raise InputError(f"{path} holds no images of the split {name!r}. {' '.join(images.faults[:3])}".rstrip())
    return replace(images, **shape, meta={**images.meta, "source": root.name})  # type: ignore[arg-type]


def layout_of(path: str | os.PathLike[str], layout: str = "auto") -> str:
    """Return the name of the layout that `load` would read a path in."""
    return _recognised(as_path(path), layout)[1]


def _recognised(path: Path, layout: str) -> tuple[Path, str]:
    if layout != "auto" and layout not in LAYOUTS:
        raise unknown_name("layout", layout, ("auto", *LAYOUTS))
    if not path.exists():
        raise InputError(f"{path} does not exist (in {Path.cwd()}); give a folder of images or a data set.")
    tried = LAYOUTS if layout == "auto" else {layout: LAYOUTS[layout]}
    for name, kind in tried.items():
        for root in (path, *(path / inside for inside in kind.inside)):
            if root.exists() and _holds(kind, root):
                return root, name
    what = "no known layout" if layout == "auto" else f"not the layout {layout!r}"
    raise InputError(
        f"{path} has {what}. A folder of images has one folder per class (or train, val and test folders with "
        f"those in them); the layouts are {', '.join(LAYOUTS)}."
    )


def _holds(kind: Layout, root: Path) -> bool:
    try:
        return kind.recognises(root)
    except (NotADirectoryError, FileNotFoundError):
        return False
    except OSError as error:
        raise InputError(f"{root} cannot be read: {error.strerror or error}.") from error
