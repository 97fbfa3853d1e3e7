"""The report of `label` as a web page: one file, nothing external, no script."""

from __future__ import annotations

import base64
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import __version__
from sinkshot.encoders.images import as_seen
from sinkshot.foreign.pictures import picture, room_for
from sinkshot.label import page_figures as figures
from sinkshot.label.classifier import Answers
from sinkshot.label.items import Items
from sinkshot.report.page import write_page

if TYPE_CHECKING:
    from sinkshot.label.run import Labelled

SHOWN = 8  # items of each class, most and least certain
MOST_CARDS = 1_200  # items with a thumbnail on one page
SIDE = 96  # pixels of a thumbnail
_TILE = 112  # pixels of the image that stands for a class
_LONGEST = 240  # characters of a text
_ACCEPT = (0.99, 0.95, 0.9, 0.8, 0.5)  # confidences from which labels might be taken as they are
_CLOSE = 0.2  # two best classes closer than this are in doubt
_MOST_CONFUSED = 8  # pairs of classes


@dataclass(frozen=True)
class Card:
    """One item as it is shown."""

    name: str
    picture: str = ""  # data address
    text: str = ""
    label: str = ""
    confidence: float = 0.0
    second: str = ""  # the next best class
    second_confidence: float = 0.0

    @property
    def shown(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2] or self.name


@dataclass(frozen=True)
class Accepted:
    """How many labels reach a confidence, and what share of them is expected to be right."""

    threshold: float
    count: int
    share: float
    expected: float


@dataclass(frozen=True)
class Confused:
    """Two classes, their numbers on the page, and how many items are in doubt between them."""

    first: str
    second: str
    first_number: int
    second_number: int
    count: int


def write(path: Path, found: Labelled) -> None:
    """Write the page of a labelled input, or of one without labels: what to label first."""
    if found.answers is None:
        _write_first(path, found)
        return
    items, answers = found.items, found.answers
    cards = _Cards(items, answers)
    predicted = np.array([source == "predicted" for source in answers.sources])
    labels = np.array(answers.labels, dtype=object)
    rejected = [int(row) for row in np.argsort(-answers.unknown, kind="stable") if not labels[row]]
    write_page(
        path,
        "label.html.jinja",
        sinkshot=__version__,
        kind=items.kind,
        summary=found.summary,
        classes=_classes(found, answers, cards, predicted, labels),
        accept=_accept(answers.confidence[predicted & (labels != "")]),
        confused=_confused(answers, predicted),
        unknown=[cards.card(row) for row in rejected[: 3 * SHOWN]],
        unknown_count=found.summary["unknown"],
        suspicious=[
            (cards.card(one.row), one, [cards.card(row) for row in one.neighbours]) for one in answers.suspicious[:20]
        ],
        suspicious_count=len(answers.suspicious),
        next_items=[cards.card(row) for row in answers.next_rows[: 3 * SHOWN]],
        left_out=items.left_out[:100],
        panels=figures.panels(items.kind, found.features, answers, predicted),
        key=figures.key(answers),
    )


def _write_first(path: Path, found: Labelled) -> None:
    items, numbers = found.items, {name: row for row, name in enumerate(found.items.names)}
    rows = [numbers[name] for name in found.summary["next"]]
    write_page(
        path,
        "label_first.html.jinja",
        sinkshot=__version__,
        kind=items.kind,
        summary=found.summary,
        next_items=[Card(items.names[row], _picture(items, row), _text(items, row)) for row in rows],
        left_out=items.left_out[:100],
        panels=[figures.pool_map(items.kind, found.features, rows)],
        key=[],
    )


def _classes(
    found: Labelled, answers: Answers, cards: _Cards, predicted: NDArray[np.bool_], labels: NDArray[np.object_]
) -> list[dict[str, Any]]:
    """What the page says of each class: its size, and its most and least certain items."""
    order = np.argsort(-answers.confidence, kind="stable")
    shown = max(2, min(SHOWN, MOST_CARDS // max(1, 2 * len(answers.classes))))
    counts = found.summary["counts"]
    most = max([counts[name] for name in answers.classes], default=1) or 1
    rows_of: dict[str, list[int]] = {name: [] for name in answers.classes}
    for row in order:
        if predicted[row] and labels[row] in rows_of:
            rows_of[labels[row]].append(int(row))
    told = []
    for name, rows in rows_of.items():
        given = np.flatnonzero(~predicted & (labels == name))
        face = int(given[0]) if len(given) else rows[0] if rows else None
        told.append(
            {
                "name": name,
                "count": counts[name],
                "share": counts[name] / most,
                "given": len(given),
                "estimated": found.summary["estimated_sizes"].get(name),
                "picture": "" if face is None or not found.items.paths else _address(found.items.paths[face], _TILE),
                "sure": [cards.card(row) for row in rows[:shown]],
                "doubtful": [cards.card(row) for row in rows[shown:][-shown:][::-1]],
            }
        )
    return told


def _accept(confidence: NDArray[Any]) -> list[Accepted]:
    """How many of the predicted labels reach each confidence, and what share of them is expected to be right."""
    found = []
    for threshold in _ACCEPT if len(confidence) else ():
        sure = confidence[confidence >= threshold]
        expected = float(sure.mean()) if len(sure) else 0.0
        found.append(Accepted(threshold, len(sure), len(sure) / len(confidence), expected))
    return found


def _confused(answers: Answers, predicted: NDArray[np.bool_]) -> list[Confused]:
    """Pairs of classes between which most items are in doubt."""
    if len(answers.classes) < 2:
        return []
    ranked = answers.ranked[:, :2]
    best = np.take_along_axis(answers.probabilities, ranked, axis=1)
    kept = predicted & (best[:, 0] - best[:, 1] < _CLOSE) & np.array([bool(label) for label in answers.labels])
    pairs = Counter(tuple(sorted(map(int, pair))) for pair in ranked[kept])
    names = answers.classes
    return [Confused(names[a], names[b], a + 1, b + 1, count) for (a, b), count in pairs.most_common(_MOST_CONFUSED)]


class _Cards:
    """Items as cards; thumbnails are re-encoded, so that nothing of a file but its pixels reaches the page."""

    def __init__(self, items: Items, answers: Answers) -> None:
        self.items, self.answers, self.confidence = items, answers, answers.confidence
        self.ranked = answers.ranked

    def card(self, row: int) -> Card:
        """Return the card of an item; with its second best class if it is uncertain."""
        items, answers = self.items, self.answers
        own, second, chance = float(self.confidence[row]), "", 0.0
        rejected = not answers.labels[row]
        if answers.sources[row] == "predicted" and len(answers.classes) > 1:
            other = int(self.ranked[row, 0 if rejected else 1])
            chance = float(answers.probabilities[row, other] * (1 - answers.unknown[row]))
            second = answers.classes[other] if chance >= 0.005 else ""
        label = answers.labels[row] or "none of these"
        return Card(items.names[row], _picture(items, row), _text(items, row), label, own, second, chance)


def _picture(items: Items, row: int) -> str:
    return thumbnail(items.paths[row]) if items.paths else ""


def _text(items: Items, row: int) -> str:
    return items.texts[row][:_LONGEST] if items.texts else ""


def thumbnail(path: Path) -> str:
    """Return a small JPEG of an image as a data address; empty where it cannot be read any more."""
    return _address(path, 2 * SIDE)


def _address(path: Path, side: int) -> str:
    small = jpeg(path, side)
    return "" if small is None else f"data:image/jpeg;base64,{base64.b64encode(small).decode()}"


def jpeg(path: Path, side: int, quality: int = 70) -> bytes | None:
    """Return an image as a JPEG of at most `side` pixels, decoded and encoded anew; None where it cannot be read."""
    try:
        with picture(path) as image, room_for(image.width * image.height):
            image.draft("RGB", (2 * side, 2 * side))
            small = as_seen(image)
            small.thumbnail((side, side))
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=quality)
    except Exception:  # Pillow's decoders raise almost anything at a damaged file
        return None
    return stream.getvalue()
