"""How much of the paper is covered: each value of its tables and curves, and whether it can be measured here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sinkshot.methods.needs_training import NEEDS_TRAINING
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.resolve import without_selection
from sinkshot.studies.study import Entry, Row, Study

Cover = Literal["same", "same head", "stand-in", "head", "no features", "no method"]
"""Of a value: it is measured on the same data set and backbone; there, but only by the classifier of a method that
trains its backbone; on another bank; by such a classifier on another backbone or bank; there is a method, and no
features are here; there is no method."""

COVERS: tuple[Cover, ...] = ("same", "same head", "stand-in", "head", "no features", "no method")
_REASONS = {row: one.reason for one in NEEDS_TRAINING for row in one.rows}
_OTHER_REASONS = {
    "OpenMax": "OpenMax needs two supports of each class.",
}


@dataclass(frozen=True)
class CoveredValue:
    """One value of the paper, and how it is covered."""

    study: str
    sheet: str
    row: str
    column: str
    value: str
    cover: Cover
    reason: str = ""  # why not on the same data set and backbone


def covered_values(studies: Sequence[Study], catalogue: Catalogue) -> Iterator[CoveredValue]:
    """Yield every value that the paper prints in the tables and curves of expanded studies (`expand`)."""
    for study in studies:
        for sheet in (one for one in study.sheets if not one.elsewhere):
            moved = any(other.elsewhere == sheet.label for other in study.sheets)
            for row in sheet.rows:
                for column, entry in zip(sheet.columns, row.entries, strict=True):
                    if entry.paper is not None:
                        where = f"{column.group} {column.label}".strip()
                        cover, reason = _cover(row, entry, moved, catalogue)
                        yield CoveredValue(study.name, sheet.label, row.label, where, entry.paper.text, cover, reason)


def _cover(row: Row, entry: Entry, moved: bool, catalogue: Catalogue) -> tuple[Cover, str]:
    if entry.cell is None:
        return "no method", _REASONS.get(row.label) or _OTHER_REASONS[row.label]
    key = without_selection(entry.cell.bank)
    found = catalogue.files(key)
    missing = f"Features of {key} are not here." if isinstance(found, Missing) else ""
    if missing and not moved:
        return "no features", missing
    if row.head:
        trained = _REASONS.get(row.label, "The paper's row has another backbone, of the method's authors.")
        same = not missing and catalogue.title(key).rpartition(", ")[2] in row.details
        return "same head" if same else "head", trained
    return ("stand-in", missing) if missing else ("same", "")


def summary(studies: Sequence[Study], catalogue: Catalogue) -> dict[str, Any]:
    """Return how many values there are, how many have a method, how each is covered, and the reasons."""
    values = list(covered_values(studies, catalogue))
    counts = Counter(one.cover for one in values)
    reasons: dict[str, Counter[str]] = {cover: Counter() for cover in COVERS[1:]}
    for one in values:
        if one.reason:
            reasons[one.cover][one.reason] += 1
    return {
        "values": len(values),
        "with_method": len(values) - counts["no method"],
        **{cover.replace("-", "_").replace(" ", "_"): counts[cover] for cover in COVERS},
        "reasons": {cover.replace("-", "_").replace(" ", "_"): dict(of) for cover, of in reasons.items()},
    }
