"""A folder for each class, with links to the images, or copies where links cannot be made; nothing is ever moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from sinkshot.errors import InputError
from sinkshot.label.engine import Answers
from sinkshot.label.items import Items

REJECTED = "_unknown"
FOLDER = "folders"


def write(folder: Path, items: Items, answers: Answers) -> str:
    """Link every image into the folder of its label; the folder is made anew."""
    if items.kind != "images":
        raise InputError(f"folders hold images, and the input holds {items.kind}; leave that export out.")
    root, fresh = folder / FOLDER, folder / f".{FOLDER}.tmp"
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        for i, path in enumerate(items.paths):
            target = fresh / folder_name(answers.labels[i] or REJECTED) / flat_name(items.names[i])
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(path.resolve(), target)
        shutil.rmtree(root, ignore_errors=True)
        os.replace(fresh, root)
    except OSError as error:
        raise InputError(f"{root} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return f"{root} has a folder for each class, with links to the images."


def folder_name(label: str) -> str:
    """Return a label as the name of one folder, whatever it holds."""
    safe = "".join("_" if character in '/\\:*?"<>|' or ord(character) < 32 else character for character in label)
    return "_" if not safe.strip(". ") else safe[:200]


def flat_name(name: str) -> str:
    """Return a relative path as one file name that no other path has."""
    return "__".join(PurePosixPath(name.replace("__", "____")).parts)[-240:]


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
