"""What is to be labelled: images, texts or embeddings, with the labels that some of them have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["images", "texts", "embeddings"]
OUTSIDER = "_none"  # the label of an item that is known to belong to no class
SUMMARY = "summary.json"  # by which a folder of answers is recognised


@dataclass(frozen=True)
class LeftOut:
    """Something that was not labelled, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Items:
    """Items in the order of the input; a label is None where there is none yet."""

    kind: Kind
    names: tuple[str, ...]  # relative POSIX paths of images; ids of others
    labels: tuple[str | None, ...]
    accepted: NDArray[np.bool_]  # labels that a person accepted rather than gave
    paths: tuple[Path, ...] = ()  # of images
    texts: tuple[str, ...] = ()
    features: NDArray[Any] | None = None  # of embeddings, [n, d]
    left_out: tuple[LeftOut, ...] = ()
    notices: tuple[str, ...] = ()  # what a person should know before work begins
    root: Path | None = None  # what paths are relative to
    column: str = field(default="id")  # of labels.csv: file_name for images, else id

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str]:
        """Class names that have a label, sorted."""
        return sorted({label for label in self.labels if label is not None and label != OUTSIDER})

    @property
    def names_alike(self) -> list[str]:
        """Sentences about class names that differ only in upper and lower case."""
        spelled: dict[str, str] = {}
        found = []
        for name in self.classes:
            other = spelled.setdefault(name.casefold(), name)
            if other != name:
                found.append(f"the classes {other!r} and {name!r} differ only in case; they count as two")
        return found

    @property
    def description(self) -> str:
        """One line: what was recognised."""
        labelled = sum(label not in (None, OUTSIDER) for label in self.labels)
        outsiders = sum(label == OUTSIDER for label in self.labels)
        count = len(self.classes)
        parts = [f"{len(self):,} {self.kind}", f"{labelled:,} labelled in {count} class{'' if count == 1 else 'es'}"]
        if outsiders:
            parts.append(f"{outsiders:,} known outsiders")
        parts.append(f"{len(self) - labelled - outsiders:,} to label")
        if self.left_out:
            parts.append(f"{len(self.left_out):,} left out")
        return ", ".join(parts)

    def only(self, kept: NDArray[np.bool_], left_out: Sequence[LeftOut] = ()) -> Items:
        """Return the items of a mask; the others are left out for the reasons given."""
        rows = np.flatnonzero(kept)

        def pick(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[i] for i in rows) if values else ()

        return replace(
            self,
            names=pick(self.names),
            labels=pick(self.labels),
            accepted=self.accepted[rows],
            paths=pick(self.paths),
            texts=pick(self.texts),
            features=None if self.features is None else self.features[rows],
            left_out=(*self.left_out, *left_out),
        )

    def slice(self, begin: int, end: int) -> Items:
        """Return the items from `begin` up to `end`, without what was said of the whole."""
        return replace(
            self,
            names=self.names[begin:end],
            labels=self.labels[begin:end],
            accepted=self.accepted[begin:end],
            paths=self.paths[begin:end],
            texts=self.texts[begin:end],
            features=None if self.features is None else self.features[begin:end],
            left_out=(),
            notices=(),
        )


def unlabelled(count: int) -> tuple[None, ...]:
    """Labels for items that have none yet."""
    return (None,) * count
