"""Where decisions come in: each is checked, written to the disk, and passed on to the process that keeps the state.

The server's own process does nothing that takes long, so that no decision waits. What the page shows comes ready, as
bytes, from the process of `keeper_main`; if that ends, it is started again with all decisions so far.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError
from sinkshot.label.decisions import NAME, Decision, DecisionLog, Kind
from sinkshot.label.items import OUTSIDER, Items
from sinkshot.review.child_process import ChildProcess
from sinkshot.review.fit_process import Setup

NICE = 1  # how much lower the keeper's priority is than that of the server and the browser
LONGEST_NAME = 200  # characters of a class name
SHOWN_TEXT = 240  # characters of a text in a grid
MOST_ENDS = 3  # ends of the keeper in a row after which it starts again only with the next request
_NO_NEWS: dict[str, Any] = {"version": [], "busy": False, "seeking": False, "trouble": ""}


@dataclass(frozen=True)
class KeeperSetup:
    """What the process that keeps the state must know."""

    items: Items  # with their given labels
    folder: Path
    fitting: Setup
    decisions: tuple[Decision, ...] = ()


class Keeper(ChildProcess):
    """The process that keeps the state; `setup` and `log` must be set before the first question."""

    def __init__(self) -> None:
        self.setup: KeeperSetup | None = None
        self.log: DecisionLog | None = None
        super().__init__("sinkshot.review.keeper_main", NICE)

    def current_setup(self) -> KeeperSetup | None:
        """Return the setup with all decisions so far."""
        if self.setup is None or self.log is None:
            return self.setup
        return replace(self.setup, decisions=tuple(self.log.decisions))


class Desk:
    """Takes decisions, and asks the keeper for the rest; threads share it.

    Parameters
    ----------
    keeper : Keeper
        Not set up yet.
    setup : KeeperSetup
    """

    def __init__(self, keeper: Keeper, setup: KeeperSetup) -> None:
        self.items, self.folder = setup.items, setup.folder
        self.log = DecisionLog(setup.folder / NAME)
        self.news = json.dumps(_NO_NEWS).encode()  # the version and the status, as the page is told of them
        self.changed: Callable[[], None] = lambda: None  # called when the news have changed
        self._classes = {*setup.items.classes, *(one.label for one in self.log.decisions if one.label)}
        self._guard, self._ends = threading.Lock(), 0
        keeper.setup, keeper.log, keeper.told, keeper.ended = setup, self.log, self._told, self._ended
        self.keeper = keeper

    def ask(self, what: str, *arguments: Any) -> Future[Any]:
        """Ask the keeper; JSON comes as bytes."""
        return self.keeper.send(what, *arguments)

    def decide(self, told: Any) -> dict[str, Any]:
        """Take a decision from the page; return what to tell it, once the decision is on the disk."""
        identity, kind, fields = self._checked(told)
        with self._guard:  # so that the keeper hears of decisions in their order
            decision, new = self.log.append(identity, kind, **fields)
            if new:
                self._classes.add(decision.label)
                self.keeper.send("decided", decision)
        return {"number": decision.number, "of": decision.of, "new": new}

    def _checked(self, told: Any) -> tuple[str, Kind, dict[str, Any]]:
        """Return the parts of a decision, or raise an error that says what is wrong with it."""
        if not isinstance(told, dict):
            raise InputError("a decision is a JSON object.")
        identity, kind = told.get("id"), told.get("kind")
        if not isinstance(identity, str) or not 8 <= len(identity) <= 64 or not identity.isascii():
            raise InputError("a decision has an id of 8 to 64 characters.")
        if kind == "draw":
            return identity, "draw", self.keeper.ask("draw")
        if kind == "undo":
            of = told.get("of", 0)
            if type(of) is not int or of < 0:
                raise InputError("an undo names the number of a decision, or none.")
            return identity, "undo", {"of": of}
        if kind not in ("label", "reject"):
            raise InputError("the kind of a decision is label, reject, undo or draw.")
        rows = told.get("items")
        if not isinstance(rows, list) or not rows or not all(type(row) is int for row in rows):
            raise InputError("a decision names its items by number.")
        if not all(0 <= row < len(self.items) for row in rows):
            raise InputError(f"items have the numbers 0 to {len(self.items) - 1}.")
        names = tuple(self.items.names[row] for row in dict.fromkeys(rows))
        label = told.get("label")
        if not isinstance(label, str) or label not in self._classes or not label:
            label = class_name(label)
        return identity, kind, {"items": names, "label": label, "audit": told.get("audit") is True}

    def constants(self) -> bytes:
        """Return, as JSON, what does not change while the server runs."""
        items = self.items
        told = {
            "kind": items.kind,
            "names": items.names,
            "texts": [text[:SHOWN_TEXT] for text in items.texts],
            "file": str(self.folder / "labels.csv"),
        }
        return json.dumps(told, separators=(",", ":")).encode("ascii")

    def _told(self, news: bytes) -> None:
        self.news, self._ends = news, 0
        self.changed()

    def _ended(self, how: str) -> None:
        """Report that the keeper has ended, and restart it, unless it keeps ending."""
        self._ends += 1
        trouble = (
            f"the process that keeps the predictions has ended {how}; it starts again. All that you decided is saved."
        )
        self.news = json.dumps({**json.loads(self.news), "busy": False, "seeking": False, "trouble": trouble}).encode()
        if self._ends < MOST_ENDS:
            self.keeper.send("hello")
        self.changed()


def class_name(given: Any) -> str:
    """Return the name of a class as a person typed it, or raise an error that says what is wrong with it."""
    if not isinstance(given, str):
        raise InputError("a class has a name.")
    name = " ".join(given.split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"a class name has 1 to {LONGEST_NAME} printable characters.")
    if name != OUTSIDER and (name.startswith("_") or name.casefold() in ("unknown", "-1")):
        raise InputError(f"{name} is reserved and cannot name a class; choose another name.")
    return name
