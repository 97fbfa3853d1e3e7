"""A folder of images: class folders with a few images each, the rest loose, in `_unlabeled`, or labelled by a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sinkshot.errors import InputError, printable
from sinkshot.foreign.limits import LIST
from sinkshot.foreign.pictures import suffixes
from sinkshot.foreign.texts import json_value, text
from sinkshot.label.items import OUTSIDER, SUMMARY, Items, LeftOut

POOL = ("_unlabeled", "_unlabelled")
ALSO_POOL = ("unlabeled", "unlabelled", "unknown")  # taken as the pool, with a notice
_NOTICE = "the folder {0}/ is taken as images without a label yet; {1}/ says so without a notice."


def read(root: Path, skip: Path | None = None) -> Items:
    """List the images below a folder; the first folder of an image's path is its class."""
    left_out: list[LeftOut] = []
    answers: list[str] = []
    names, paths, labels, pools = [], [], [], set()
    for path in _files(root, skip, left_out, answers):
        relative = path.relative_to(root)
        name = relative.as_posix()
        if not _is_utf8(name):
            left_out.append(LeftOut(printable(name), "its name is not UTF-8; rename it"))
            continue
        if path.suffix.lower() not in suffixes():
            left_out.append(LeftOut(name, "not an image by its name"))
            continue
        top = relative.parts[0] if len(relative.parts) > 1 else ""
        if top.lower() in ALSO_POOL:
            pools.add(top)
        in_pool = not top or top.lower() in (*POOL, *ALSO_POOL)
        names.append(name)
        paths.append(path)
        labels.append(None if in_pool else OUTSIDER if top == OUTSIDER else top)
    if not names:
        found = f"; it holds {left_out[0].name} ({left_out[0].reason})" if left_out else ""
        raise InputError(f"there are no images below {root}{found}. Images end in {', '.join(sorted(suffixes()))}.")
    return Items(
        kind="images",
        names=tuple(names),
        labels=tuple(labels),
        accepted=np.zeros(len(names), dtype=bool),
        paths=tuple(paths),
        left_out=tuple(left_out),
        notices=(
            *(_NOTICE.format(name, POOL[0]) for name in sorted(pools)),
            *(f"the folder {name}/ holds the results of an earlier run and is skipped." for name in answers),
        ),
        root=root,
        column="file_name",
    )


def _is_utf8(name: str) -> bool:
    """Whether a name can be written to a UTF-8 file; others hold surrogates for their odd bytes."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _holds_answers(folder: Path) -> bool:
    """Whether `label` wrote this folder, by its summary.json."""
    try:
        told = json_value(text(folder / SUMMARY, LIST), limit=LIST)
    except (OSError, InputError):
        return False
    return isinstance(told, dict) and {"kind", "items", "left_out_items"} <= set(told)


def _files(root: Path, skip: Path | None, left_out: list[LeftOut], answers: list[str]) -> Iterator[Path]:
    """Yield files below a folder in the order of their names; each folder once, even if several links lead to it."""
    seen: set[tuple[int, int]] = set()
    skipped = None if skip is None else skip.resolve()

    def walk(folder: Path) -> Iterator[Path]:
        try:
            facts = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            left_out.append(LeftOut(printable(folder.relative_to(root).as_posix()), error.strerror or "cannot be read"))
            return
        if (facts.st_dev, facts.st_ino) in seen or folder.resolve() == skipped:
            return
        seen.add((facts.st_dev, facts.st_ino))
        if folder != root and any(entry.name == SUMMARY for entry in entries) and _holds_answers(folder):
            answers.append(printable(folder.relative_to(root).as_posix()))
            return
        folders = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                is_folder = entry.is_dir()
            except OSError as error:
                name = printable(Path(entry.path).relative_to(root).as_posix())
                left_out.append(LeftOut(name, error.strerror or "unreadable"))
                continue
            if is_folder:
                folders.append(Path(entry.path))
            else:
                yield Path(entry.path)
        for inside in folders:
            yield from walk(inside)

    yield from walk(root)
