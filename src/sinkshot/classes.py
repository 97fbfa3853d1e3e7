"""Select classes of a bank by number, and check which classes may be used to choose hyper-parameters."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError

_JUDGED = ("novel", "test")
_SEEN = ("base", "train")
_KEPT = ("validation", "val", "valid")


def check_split(bank: FeatureBank, name: str = "") -> str:
    """Refuse novel classes, which results are reported on; return a note on other classes, if there is one.

    The split is read from the bank's meta, or else from the file name, `<data set>_<backbone>_<split>`.
    """
    said = bank.meta.get("split", "")
    where = f"its meta says split {said!r}" if said else f"its name is {Path(name).name}"
    words = set(re.split(r"[^a-z]+", (said or Path(name).stem.rpartition("_")[2]).lower()))
    if words & set(_JUDGED):
        raise InputError(
            f"these are novel classes ({where}). Hyper-parameters chosen on the classes that a result is reported on "
            "make that result too good; choose them on validation or base classes, or reserve some classes of this "
            "bank for it (--classes 0-9) and report on the others only."
        )
    if words & set(_SEEN):
        return "These are base classes, which the backbone was trained on: novel classes are harder to separate."
    if words & set(_KEPT):
        return ""
    return "The split of this bank is unknown (no split in meta): do not report results on its classes."


def part(bank: FeatureBank, classes: str) -> FeatureBank:
    """Return the rows of some classes, by their numbers from 0: "0-9,12"."""
    wanted = sorted(_numbers(classes, bank.classes))
    rows = np.isin(bank.labels, wanted)
    names = tuple(bank.class_names[number] for number in wanted)
    labels = np.searchsorted(wanted, bank.labels[rows])
    return FeatureBank(bank.features[rows], labels, names, {**bank.meta, "classes": classes}, bank.base)


def others(bank: FeatureBank, classes: str) -> str:
    """Return all classes that are not in `classes`, in the same notation.

    >>> import sinkshot
    >>> others(sinkshot.load("cifar-fs_wrn-28-10_novel"), "0-9,12")
    '10-11,13-19'
    """
    left = [c for c in range(bank.classes) if c not in set(_numbers(classes, bank.classes))]
    ends = [i for i in range(len(left)) if i + 1 == len(left) or left[i + 1] != left[i] + 1]
    runs = [left[begin : end + 1] for begin, end in zip([0, *(e + 1 for e in ends)], ends, strict=False)]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _numbers(classes: str, count: int) -> list[int]:
    found: dict[int, None] = {}
    for piece in classes.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", piece)
        if match is None:
            raise InputError(f"classes are numbers from 0, such as 0-9,12; {classes!r} was given.")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < count:
            raise InputError(f"classes {piece.strip()!r} do not exist; the bank has classes 0 to {count - 1}.")
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)
