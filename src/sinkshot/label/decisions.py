"""Decisions of a person about items, in `decisions.jsonl`: each is on the disk before it counts, and none is rewritten.

    {"number": 7, "id": "…", "time": "…", "kind": "label", "items": ["a.jpg", "b.jpg"], "label": "cat"}

`label` gives items a class, or `_none` to known outsiders; `reject` says that items are not of a class; `undo` takes
back the decision `of`; `draw` begins a random audit and keeps what was predicted then. Items go by their names, so that
decisions outlive changes of the input. A killed writer can leave half a line at the end, which was never acknowledged
and is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from sinkshot.errors import InputError
from sinkshot.files import reach_the_disk, replacing
from sinkshot.foreign.files import content
from sinkshot.foreign.limits import LIST
from sinkshot.foreign.texts import json_object
from sinkshot.label.classifier import Answers
from sinkshot.label.items import OUTSIDER, Items

NAME = "decisions.jsonl"
Kind = Literal["label", "reject", "undo", "draw"]
RuledOut = Mapping[int, frozenset[str]]  # classes that an item does not belong to


@dataclass(frozen=True)
class Decision:
    """One line of the file."""

    number: int  # 1, 2, ... in the file
    id: str  # chosen by who decides, so that a repeated request is no second decision
    time: str
    kind: Kind
    items: tuple[str, ...] = ()
    label: str = ""
    of: int = 0  # the decision that an undo takes back
    audit: bool = False  # an answer of the random audit
    predicted: tuple[str, ...] = ()  # of a draw: the label of each item then, empty where it was unknown

    def line(self) -> bytes:
        """Return the decision as a line of the file, without what it does not use."""
        used = {name: value for name, value in asdict(self).items() if value not in ((), "", 0, False)}
        return json.dumps(used).encode("ascii") + b"\n"


class NotSavedError(InputError):
    """A decision that could not be written; it may be sent again."""


def read(path: Path) -> list[Decision]:
    """Read the decisions of a file; none where there is no file."""
    return _parsed(path)[0]


def standing(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the decisions that no undo took back."""
    decisions = list(decisions)
    undone = {one.of for one in decisions if one.kind == "undo"}
    return [one for one in decisions if one.kind != "undo" and one.number not in undone]


def next_to_undo(decisions: Iterable[Decision]) -> Decision | None:
    """Return the decision that the next undo takes back."""
    return next((one for one in reversed(standing(decisions)) if one.kind != "draw"), None)


def put_onto(items: Items, decisions: Sequence[Decision]) -> tuple[Items, dict[int, frozenset[str]]]:
    """Return items with the labels that were decided, and the classes that were ruled out; the last decision counts."""
    numbers = {name: number for number, name in enumerate(items.names)}
    labels, accepted = list(items.labels), items.accepted.copy()
    ruled_out: dict[int, frozenset[str]] = {}
    for decision in standing(decisions):
        if decision.kind == "draw":
            continue
        for name in decision.items:
            row = numbers.get(name)
            if row is None:  # the item has gone since
                continue
            if decision.kind == "label":
                labels[row], accepted[row] = decision.label, True
                ruled_out[row] = ruled_out.get(row, frozenset()) - {decision.label}
            else:
                ruled_out[row] = ruled_out.get(row, frozenset()) | {decision.label}
                if labels[row] == decision.label:
                    labels[row], accepted[row] = None, False
    return replace(items, labels=tuple(labels), accepted=accepted), {row: out for row, out in ruled_out.items() if out}


def rule_out(answers: Answers, ruled_out: RuledOut, threshold: float | None) -> Answers:
    """Return answers in which no item has a class that was ruled out for it; without any class left it is rejected."""
    if not ruled_out or not answers.classes:
        return answers
    probabilities, unknown = np.array(answers.probabilities), np.array(answers.unknown)
    labels = list(answers.labels)
    for row, names in ruled_out.items():
        if answers.sources[row] != "predicted":
            continue
        kept = np.array([name not in names for name in answers.classes])
        rest = probabilities[row] * kept
        if rest.sum() <= 0:
            rest = kept / max(1, kept.sum())
        if not kept.any():
            unknown[row], labels[row] = 1, ""
            continue
        probabilities[row] = rest / rest.sum()
        rejected = threshold is not None and unknown[row] > threshold
        labels[row] = "" if rejected else answers.classes[int(probabilities[row].argmax())]
    return replace(answers, probabilities=probabilities, unknown=unknown, labels=tuple(labels))


class DecisionLog:
    """The file, open to append; several threads may share it.

    Parameters
    ----------
    path : Path
        The file; it is made where it is missing. Its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decisions, self._size = _parsed(path)
        self._numbers = {one.id: one for one in self.decisions}
        self.seconds = 0.0  # that the last line took to reach the disk
        self._lock, self._torn = threading.Lock(), False  # torn: a failed write may have left half a line
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            reach_the_disk(path.parent)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None

    def append(self, identity: str, kind: Kind, **fields: Any) -> tuple[Decision, bool]:
        """Write a decision; return it once it is on the disk, and whether it is new rather than a repeated request."""
        with self._lock:
            before = self._numbers.get(identity)
            if before is not None:
                return before, False
            if kind == "undo":
                fields["of"] = self._undoable(fields.get("of", 0)).number
            decision = Decision(len(self.decisions) + 1, identity, _now(), kind, **fields)
            self._write(decision.line())
            self.decisions.append(decision)
            self._numbers[identity] = decision
            return decision, True

    def warm(self) -> None:
        """Have the file system write out what other programs left to it, so that the next line need not wait for that.

        On a journalling file system a sync waits for all that was begun before it, such as the files of a browser that
        has just started.
        """
        with self._lock, contextlib.suppress(OSError):
            os.utime(self._file)  # else there is nothing to sync
            os.fsync(self._file)

    def _undoable(self, number: int) -> Decision:
        if not number:
            last = next_to_undo(self.decisions)
            if last is None:
                raise InputError("there is nothing to undo.")
            return last
        for one in standing(self.decisions):
            if one.number == number and one.kind != "draw":
                return one
        raise InputError(f"decision {number} does not exist, or was undone already.")

    def _write(self, line: bytes) -> None:
        """Append a line; if the write fails, cut off what was written of it."""
        begin = time.perf_counter()
        try:
            self._mend()
            self._torn = True
            if os.write(self._file, line) != len(line):
                raise OSError(0, "the disk is full")
            os.fsync(self._file)
            self._size, self._torn = self._size + len(line), False
            self.seconds = time.perf_counter() - begin
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut()
            raise NotSavedError(f"{self.path} cannot be written: {error.strerror or error}.") from None

    def _cut(self) -> None:
        if self._torn:
            os.ftruncate(self._file, self._size)
            self._torn = False

    def _mend(self) -> None:
        """Make sure that the path leads to whole lines and to nothing else: somebody may have removed the file."""
        self._cut()
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            self._write_anew()
            return
        if not os.path.samestat(there, os.fstat(self._file)) or there.st_size != self._size:
            raise NotSavedError(
                f"{self.path} was changed by another program. To go on from what it holds now, end the review with "
                "Ctrl+C and start the same command again."
            )

    def _write_anew(self) -> None:
        """Write all decisions to a new file, since the old one is gone."""
        lines = b"".join(one.line() for one in self.decisions)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(self.path) as temporary:
                temporary.write_bytes(lines)
        except InputError as error:
            raise NotSavedError(str(error)) from None
        opened = os.open(self.path, os.O_RDWR | os.O_APPEND)
        os.close(self._file)
        self._file, self._size = opened, len(lines)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _parsed(path: Path) -> tuple[list[Decision], int]:
    """Return the decisions of a file and the length of its whole lines; half a line at the end is passed over."""
    if not path.exists():
        return [], 0
    written = content(path, LIST)
    whole = written.rfind(b"\n") + 1
    found = [_decision(line, f"{path}, line {number}") for number, line in enumerate(written[:whole].splitlines(), 1)]
    for number, one in enumerate(found, 1):
        if one.number != number:
            raise InputError(f"{path}, line {number} has the number {one.number}; a line is missing or duplicated.")
    return found, whole


def _decision(line: bytes, where: str) -> Decision:
    told = json_object(line, where)
    try:
        given = {**told, "items": tuple(told.get("items", ())), "predicted": tuple(told.get("predicted", ()))}
        decision = Decision(**given)
    except TypeError:
        raise InputError(f"{where} is damaged: {', '.join(map(str, told))} are not the fields of a decision.") from None
    texts = (decision.id, decision.time, decision.label, *decision.items, *decision.predicted)
    if decision.kind not in get_args(Kind) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where} is damaged: it is not a decision.")
    if not all(type(number) is int for number in (decision.number, decision.of)):
        raise InputError(f"{where} is damaged: its number is not an integer.")
    return decision


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


__all__ = [
    "NAME",
    "OUTSIDER",
    "Decision",
    "DecisionLog",
    "NotSavedError",
    "RuledOut",
    "next_to_undo",
    "put_onto",
    "read",
    "rule_out",
    "standing",
]
