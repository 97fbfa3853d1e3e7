"""A folder for each class, with links to the images, or copies where links cannot be made; nothing is ever moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from sinkshot.errors import InputError
from sinkshot.label.exports.exported import Exported
from sinkshot.label.items import Items

REJECTED = "_unknown"
FOLDER = "folders"
MARK = ".made-by-sinkshot"  # a folder without this file is somebody's own and is never replaced
_LONGEST = 200  # bytes of a name; file systems take 255


def write(folder: Path, items: Items, answers: Exported) -> str:
    """Link every image into the folder of its label; an older export is replaced."""
    if items.kind != "images":
        raise InputError(f"--export folders is for images, but the input holds {items.kind}; leave it out.")
    root, fresh = folder / FOLDER, folder / f".{FOLDER}.tmp"
    if root.exists() and not (root / MARK).exists():
        raise InputError(f"{root} exists and was not made by this export; move it away, or choose another --out.")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        (fresh / MARK).touch()
        for i, path in enumerate(items.paths):
            inside = fresh / folder_name(answers.labels[i] or REJECTED)
            inside.mkdir(exist_ok=True)
            _link(path.resolve(), _free(inside, flat_name(items.names[i])))
        shutil.rmtree(root, ignore_errors=True)
        os.replace(fresh, root)
    except OSError as error:
        raise InputError(f"{root} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return f"{root} has a folder for each class, with links to the images."


def folder_name(label: str) -> str:
    """Return a label as a valid folder name, whatever its characters."""
    safe = "".join("_" if character in '/\\:*?"<>|' or ord(character) < 32 else character for character in label)
    return "_" if not safe.strip(". ") else _short(safe)


def flat_name(name: str) -> str:
    """Return a relative path as one file name, cut at the front if it is too long."""
    return _short("__".join(PurePosixPath(name).parts)[::-1])[::-1]


def _short(name: str) -> str:
    """A name cut to the length that file systems accept."""
    while len(name.encode("utf-8")) > _LONGEST:
        name = name[:-1]
    return name


def _free(folder: Path, name: str) -> Path:
    """A path in the folder that is not taken: writing to a link would overwrite the image behind it."""
    path, number = folder / name, 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{number}-{name}"
    return path


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
