"""The field's data sets: which classes are base, validation and novel, and how many images there should be.

The facts stand in `backbones/splits/<name>.json`, with the paper that each split comes from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from sinkshot.errors import InputError, unknown_name

SPLITS = ("base", "validation", "novel")
_OTHER_WORDS = {"train": "base", "val": "validation", "valid": "validation", "test": "novel"}
FOLDER_NAMES = {
    "base": ("train", "base"),
    "validation": ("val", "validation", "valid"),
    "novel": ("test", "novel"),
}
"""How folders and files name a split."""


@dataclass(frozen=True)
class DataSet:
    """A published data set."""

    name: str
    title: str
    splits: Mapping[str, tuple[str, ...]]  # split -> class names
    images_per_class: int | None
    images: Mapping[str, int]  # split -> number of images

    def class_names(self, split: str) -> tuple[str, ...]:
        """Return the classes of a split, or of all splits, sorted."""
        return tuple(sorted(name for part in _parts(split) for name in self.splits[part]))

    def expected(self, split: str, class_names: Sequence[str]) -> dict[str, int]:
        """Return how many images each class has and, under "", how many there are in all, where that is known."""
        if self.images_per_class is not None:
            return dict.fromkeys(class_names, self.images_per_class)
        return {"": sum(self.images[part] for part in _parts(split))}

    def missing(self, split: str, class_names: Collection[str]) -> list[str]:
        """Return a sentence for each class of a split that is not there, or is there and should not be."""
        wanted, found = set(self.class_names(split)), set(class_names)
        absent = [f"class {name!r} of {self.title}, {split}, is missing" for name in sorted(wanted - found)]
        return absent + [f"class {name!r} does not belong to {self.title}, {split}" for name in sorted(found - wanted)]

    def miscounted(self, split: str, count: int) -> list[str]:
        """Return a sentence if a split has not this number of classes, for layouts with names of their own."""
        number = len(self.class_names(split))
        return [] if count == number else [f"{self.title}, {split}: found {count} classes, expected {number}"]


def _parts(split: str) -> tuple[str, ...]:
    return SPLITS if split == "all" else (split,)


@functools.cache
def known() -> dict[str, DataSet]:
    """Return all data sets by their short names."""
    folder = resources.files("sinkshot.backbones") / "splits"
    found = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            facts = json.loads(file.read_text(encoding="utf-8"))
            name = file.name.removesuffix(".json")
            splits = {split: tuple(names) for split, names in facts["splits"].items()}
            per_class, images = (facts.get(key) for key in ("images_per_class", "images"))
            found[name] = DataSet(name, facts["data_set"], splits, per_class, images or {})
    return found


def get(name: str) -> DataSet:
    """Return a data set by its short name."""
    if name not in known():
        raise unknown_name("data set", name, known())
    return known()[name]


def guess(class_names: Collection[str]) -> DataSet | None:
    """Return the data set whose classes, or whose classes of one split, are exactly these."""
    names = set(class_names)
    for data_set in known().values():
        for split in ("all", *SPLITS):
            if names == set(data_set.class_names(split)):
                return data_set
    return None


def split_name(given: str) -> str:
    """Return base, validation, novel or all for any usual name of it."""
    name = _OTHER_WORDS.get(str(given), str(given))
    if name not in (*SPLITS, "all"):
        raise unknown_name("split", str(given), (*SPLITS, "all", *_OTHER_WORDS))
    return name


def no_split(split: str, where: str) -> InputError:
    """Return the error for a split asked of images that have none."""
    return InputError(
        f"{where} has no splits, and its classes are not those of a known data set; use split 'all', or name "
        f"the data set whose {split} classes you want: {', '.join(known())}."
    )
