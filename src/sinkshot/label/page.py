"""The page of `label`: what was found, to look at. One file, nothing external, no script."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import __version__
from sinkshot.encoders.images import as_seen
from sinkshot.foreign.pictures import picture, room_for
from sinkshot.label.engine import Answers
from sinkshot.label.items import Items
from sinkshot.report.figures.svg import SERIES, Key, Panel, marker_sign, panel
from sinkshot.report.page import write_page

if TYPE_CHECKING:
    from sinkshot.label.run import Labelled

SHOWN = 8  # items of each class, most and least certain
MOST_CARDS = 1_200  # items with a thumbnail on one page
SIDE = 96  # pixels of a thumbnail
_LONGEST = 240  # characters of a text
_MAP_POINTS = 4_000
_REJECTED = SERIES[4]  # colour of rejected items on the map
_MOST_KEYS = 35  # classes whose marks on the map differ


@dataclass(frozen=True)
class Card:
    """One item as it is shown."""

    name: str
    picture: str  # data address, or empty
    text: str
    label: str
    confidence: float
    note: str = ""


def write(path: Path, found: Labelled) -> None:
    """Write the page of a labelled input."""
    if found.answers is None:
        return
    items, answers = found.items, found.answers
    cards = _Cards(items, answers)
    order = np.argsort(-answers.confidence, kind="stable")
    predicted = np.array([source == "predicted" for source in answers.sources])
    labels = np.array(answers.labels, dtype=object)
    classes = []
    shown = max(2, min(SHOWN, MOST_CARDS // max(1, 2 * len(answers.classes))))
    for name in answers.classes:
        rows = [int(row) for row in order if predicted[row] and labels[row] == name]
        sure, doubtful = rows[:shown], rows[shown:][-shown:][::-1]
        classes.append(
            {
                "name": name,
                "count": int(np.sum(labels == name)),
                "estimated": found.summary["estimated_sizes"].get(name),
                "sure": [cards.card(row) for row in sure],
                "doubtful": [cards.card(row) for row in doubtful],
            }
        )
    rejected = [int(row) for row in np.argsort(-answers.unknown, kind="stable") if not labels[row]]
    write_page(
        path,
        "label.html.jinja",
        sinkshot=__version__,
        kind=items.kind,
        summary=found.summary,
        classes=classes,
        unknown=[cards.card(row) for row in rejected[: 3 * SHOWN]],
        unknown_count=len(rejected),
        suspicious=[
            (cards.card(one.row), one, [cards.card(row) for row in one.neighbours]) for one in answers.suspicious[:20]
        ],
        next_items=[cards.card(row) for row in answers.next_rows],
        left_out=items.left_out[:100],
        panels=_panels(found, answers, predicted),
        key=_key(answers),
    )


class _Cards:
    """Items as cards; thumbnails are re-encoded, so that nothing of a file but its pixels reaches the page."""

    def __init__(self, items: Items, answers: Answers) -> None:
        self.items, self.answers, self.confidence = items, answers, answers.confidence

    def card(self, row: int) -> Card:
        """Return the card of an item."""
        items = self.items
        text = items.texts[row][:_LONGEST] if items.texts else ""
        shown = thumbnail(items.paths[row]) if items.paths else ""
        label = self.answers.labels[row] or "unknown"
        return Card(items.names[row], shown, text, label, float(self.confidence[row]))


def thumbnail(path: Path) -> str:
    """Return a small JPEG of an image as a data address; empty where it cannot be read any more."""
    small = jpeg(path, 2 * SIDE)
    return "" if small is None else f"data:image/jpeg;base64,{base64.b64encode(small).decode()}"


def jpeg(path: Path, side: int) -> bytes | None:
    """Return an image as a JPEG of at most `side` pixels, decoded and encoded anew; None where it cannot be read."""
    try:
        with picture(path) as image, room_for(image.width * image.height):
            image.draft("RGB", (2 * side, 2 * side))
            small = as_seen(image)
            small.thumbnail((side, side))
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=70)
    except Exception:  # Pillow's decoders raise almost anything at a damaged file
        return None
    return stream.getvalue()


def _panels(found: Labelled, answers: Answers, predicted: NDArray[np.bool_]) -> list[Panel]:
    """A histogram of the confidence, and a map of the pool in two dimensions."""

    def confidence(axes: Any) -> None:
        axes.hist(answers.confidence[predicted], bins=np.linspace(0, 1, 21), color=SERIES[0])
        axes.set_xlabel("confidence")
        axes.set_ylabel(found.items.kind)

    points, rows = _plane(found.features, answers.model)
    best = answers.probabilities.argmax(axis=1)[rows]
    rejected = np.array([not answers.labels[row] for row in rows])

    def plane(axes: Any) -> None:
        for number in range(len(answers.classes)):
            mask = (best == number) & ~rejected
            marker, colour = _mark(number)
            axes.scatter(*points[mask].T, s=9, marker=marker, c=colour, linewidths=0, alpha=0.6)
        axes.scatter(*points[rejected].T, s=12, marker="x", c=_REJECTED, linewidths=0.8)
        axes.set_xticks([])
        axes.set_yticks([])

    size = f"{int(predicted.sum()):,} predicted {found.items.kind}"
    return [
        panel("confidence", "Confidence", f"Histogram of the confidence of {size}", confidence),
        panel(
            "map",
            "Map of the pool",
            "The pool in two dimensions, by predicted class; rejected items are crosses",
            plane,
        ),
    ]


def _mark(number: int) -> tuple[str, str]:
    """Return the marker and the colour of a class on the map."""
    return "osv^DPX"[number // len(SERIES) % 7], SERIES[number % len(SERIES)]


def _key(answers: Answers) -> list[Key]:
    """The legend of the map: the classes, unless they are too many, and the cross of rejected items."""
    names = answers.classes if len(answers.classes) <= _MOST_KEYS else ()
    key = [Key(marker_sign(*_mark(number)), name) for number, name in enumerate(names)]
    rejected = any(not label for label in answers.labels)
    return [*key, Key(marker_sign("x", _REJECTED, hollow=True), "rejected")] if rejected else key


def _plane(features: NDArray[Any], model: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Two directions in which the class means differ most, of at most a few thousand rows."""
    rows = np.arange(0, len(features), -(-len(features) // _MAP_POINTS))
    x = np.asarray(features[rows], dtype=np.float64)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    x = x - x.mean(axis=0)
    means = x
    if model is not None and model.label_distributions_.shape[1] > 2:
        weights = model.label_distributions_[rows].astype(np.float64)
        means = (weights.T @ x) / np.maximum(weights.sum(axis=0)[:, None], 1e-12)
        means = means - means.mean(axis=0)
    _, _, directions = np.linalg.svd(means, full_matrices=False)
    plane = x @ directions[:2].T
    if plane.shape[1] < 2:
        plane = np.column_stack([plane, np.zeros((len(plane), 2 - plane.shape[1]))])
    return plane, rows
