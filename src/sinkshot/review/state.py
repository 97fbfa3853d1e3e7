"""What a review knows: the items, what was decided, what is predicted, and what the page shows of it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.label.answers import labels_csv
from sinkshot.label.classifier import Answers, labels_and_sources
from sinkshot.label.decisions import Decision, next_to_undo, put_onto, rule_out
from sinkshot.label.items import OUTSIDER, Items
from sinkshot.review import audit
from sinkshot.review.likeness import Likeness

_WHOLE_TEXT = 20_000
_NEAR = 8  # labelled items beside the one in question
_SOURCES = ("predicted", "given", "accepted")
_OUT = -2  # in columns, the label of a known outsider; -1 is none


@dataclass(frozen=True)
class Fit:
    """Predictions, and what follows from them."""

    number: int
    decided: int  # decisions that it knows
    answers: Answers
    next_rows: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    seconds: float = 0.0


class Review:
    """The state of a review; threads share it.

    Parameters
    ----------
    items : Items
        With their given labels.
    features : array of shape (n, d)
    folder : Path
        Where labels.csv is; it exists.
    unknown : float or None
        The probability of belonging to no class above which an item is rejected.
    decisions : sequence of Decision
        What was decided before.
    """

    def __init__(
        self,
        items: Items,
        features: NDArray[Any],
        folder: Path,
        unknown: float | None = 0.5,
        decisions: Sequence[Decision] = (),
    ) -> None:
        self.given, self.folder, self.unknown = items, folder, unknown
        self.likeness = Likeness(features)
        self.guard = threading.RLock()
        self.decisions = list(decisions)
        self.items, self.ruled_out = put_onto(items, decisions)
        self.fit = Fit(0, -1, _no_answers(len(items)))
        self.busy = False  # a fit runs
        self.seeking = False  # what to label next is sought
        self.trouble = ""  # what the person should know: a fit that failed
        self.unwritten = ""  # why labels.csv is not written
        self._searched = [text.casefold() for text in (items.texts or items.names)]
        self._answers: tuple[Answers, Items, Answers] | None = None  # the newest, and what they were made of
        self._columns: tuple[tuple[int, ...], bytes] | None = None

    def decided(self, decision: Decision) -> None:
        """Take a decision that is on the disk; one that is known already changes nothing."""
        with self.guard:
            if decision.number <= len(self.decisions):
                return
            self.decisions.append(decision)
            self.items, self.ruled_out = put_onto(self.given, self.decisions)

    def draw(self) -> dict[str, Any]:
        """Draw items at random from those that nobody has looked at."""
        with self.guard:
            answers = self.answers()
            rows = audit.draw([row for row, source in enumerate(answers.sources) if source == "predicted"])
            if not rows or not answers.classes:
                raise InputError("there is nothing to audit: no item is predicted.")
            names = tuple(self.given.names[row] for row in rows)
            return {"items": names, "predicted": tuple(answers.labels[row] for row in rows)}

    def answers(self) -> Answers:
        """Return the newest predictions under the newest decisions: what labels.csv says."""
        with self.guard:
            fitted, items, ruled_out, kept = self.fit.answers, self.items, self.ruled_out, self._answers
        if kept is not None and kept[0] is fitted and kept[1] is items:
            return kept[2]
        if fitted.classes:
            best = np.asarray(fitted.classes)[fitted.probabilities.argmax(axis=1)]
            labels, sources = labels_and_sources(items, best, self.unknown, fitted.unknown)
        else:
            labels, sources = labels_and_sources(items, np.full(len(items), ""), None, fitted.unknown)
        newest = rule_out(replace(fitted, labels=labels, sources=sources), ruled_out, self.unknown)
        self._answers = fitted, items, newest
        return newest

    def publish(self, fit: Fit) -> None:
        """Make a fit the newest."""
        with self.guard:
            self.fit = fit

    def amend(self, **fields: Any) -> None:
        """Add what follows from the newest fit."""
        with self.guard:
            self.fit = replace(self.fit, **fields)

    def labels_csv(self) -> bytes:
        """Return labels.csv as it stands now."""
        return labels_csv(self.items, self.answers())

    @property
    def version(self) -> tuple[int, ...]:
        """What the page compares: it changes with every decision and every fit, and with what follows from them."""
        fit = self.fit
        shown = hash((fit.next_rows, fit.groups)) & 0xFFFFFFFF
        return len(self.decisions), fit.number, fit.decided, shown

    @property
    def status(self) -> dict[str, Any]:
        """What goes with every version: what is running, and what went wrong."""
        return {"busy": self.busy, "seeking": self.seeking, "trouble": self.unwritten or self.trouble}

    def columns(self) -> bytes:
        """Return what the page shows, as JSON: an entry for each item in columns, the queues, and the status."""
        version, kept = self.version, self._columns
        if kept is None or kept[0] != version:  # built without the guard, so that decisions do not wait
            kept = version, json.dumps(self._told(version), separators=(",", ":")).encode("ascii")
            self._columns = kept
        return kept[1][:-1] + b"," + json.dumps(self.status).encode("ascii")[1:]

    def _told(self, version: tuple[int, ...]) -> dict[str, Any]:
        answers, fit = self.answers(), self.fit
        classes = sorted({*self.items.classes, *answers.classes})
        code = {"": -1, OUTSIDER: _OUT, **{name: number for number, name in enumerate(classes)}}
        ranked = answers.ranked
        several = len(answers.classes) > 1
        second = [code[answers.classes[one]] for one in ranked[:, 1]] if several else [-1] * len(self.given)
        sources = [_SOURCES.index(source) for source in answers.sources]
        counts = Counter(answers.sources)
        unknown = sum(not label for label in answers.labels)
        last = next_to_undo(self.decisions)
        return {
            "version": list(version),
            "classes": classes,
            "label": [code[label] for label in answers.labels],
            "source": sources,
            "sure": np.rint(1000 * answers.confidence).astype(int).tolist(),
            "second": second,
            "counts": {
                "given": counts["given"],
                "accepted": counts["accepted"],
                "predicted": counts["predicted"] - unknown,
                "unknown": unknown,
            },
            "suspicious": [
                {"row": one.row, "label": code.get(one.label, -1), "suggested": code.get(one.suggested, -1)}
                | {"probability": one.probability, "near": one.neighbours}
                for one in answers.suspicious
                if answers.sources[one.row] == "given"
            ],
            "next": [row for row in fit.next_rows if sources[row] == 0],
            "groups": fit.groups,
            "audit": self._audit(code),
            "undo": None if last is None else self._shown(last),
            "fit": {"number": fit.number, "seconds": fit.seconds, "behind": version[0] - max(0, fit.decided)},
            "warnings": list(answers.warnings),
        }

    def _audit(self, code: dict[str, int]) -> dict[str, Any]:
        found = audit.of_decisions(self.decisions)
        rows = {name: row for row, name in enumerate(self.given.names)}
        open_items = [
            (rows[name], code.get(label, -1))
            for name, label in zip(found.items, found.predicted, strict=True)
            if name in rows and name not in found.answered
        ]
        return {
            "number": found.number,
            "drawn": len(found.items),
            "answered": len(found.answered),
            "right": found.right,
            "accuracy": found.accuracy,
            "interval": found.interval if found.answered else None,
            "open": open_items,
        }

    def item(self, row: int) -> dict[str, Any]:
        """Return what is known of one item: its text, class probabilities, and the nearest labelled items."""
        answers, items = self.answers(), self.items
        labelled = np.array([label is not None for label in items.labels])
        probabilities, known = answers.probabilities[row], 1 - float(answers.unknown[row])
        if labelled[row] and answers.left_out is not None:
            probabilities = answers.left_out[row]  # what the others say of it
        order = np.argsort(-probabilities, kind="stable")
        return {
            "row": row,
            "name": items.names[row],
            "text": items.texts[row][:_WHOLE_TEXT] if items.texts else "",
            "classes": [[answers.classes[one], known * float(probabilities[one])] for one in order],
            "unknown": float(answers.unknown[row]),
            "near": [
                {"row": one, "label": items.labels[one], "cosine": cosine}
                for one, cosine in self.likeness.nearest(row, labelled, _NEAR)
            ],
        }

    def search(self, query: str) -> list[int]:
        """Return the items whose name, text or label contains the words, ignoring case."""
        words = query.casefold().split()
        if not words:
            return []
        names, labels = self.given.names, self.answers().labels
        return [
            row
            for row, text in enumerate(self._searched)
            if all(word in text or word in names[row].casefold() or word == labels[row].casefold() for word in words)
        ]

    def history(self, before: int, count: int) -> list[dict[str, Any]]:
        """Return decisions, the newest first, from a number downwards."""
        decisions = self.decisions[: before - 1] if before else list(self.decisions)
        undone = {one.of for one in self.decisions if one.kind == "undo"}
        return [self._shown(one) | {"undone": one.number in undone} for one in reversed(decisions[-count:])]

    def _shown(self, decision: Decision) -> dict[str, Any]:
        return {
            "number": decision.number,
            "kind": decision.kind,
            "time": decision.time,
            "label": decision.label,
            "count": len(decision.items),
            "first": list(decision.items[:3]),
            "of": decision.of,
        }


def _no_answers(count: int) -> Answers:
    """Answers before the first fit."""
    nothing = np.zeros((count, 0)), np.zeros(count)
    return Answers((), *nothing, ("",) * count, ("predicted",) * count, (), (), None)
