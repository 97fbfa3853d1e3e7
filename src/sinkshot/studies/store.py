"""The store of results: one SQLite file with every cell's settings and the accuracy of every episode.

    cells      what was measured: settings (JSON: bank, recipe, method, chain, all hyper-parameters, what is used of the
               base classes), seed, bank (hash of its content), engine, version (of the code). Together they are unique.
    chunks     what came out, for `count` episodes of a cell from number `first` on: accuracy of each, and in
               an open set AUROC, AUPR and FPR95 (float64, little-endian), seconds (JSON), on which machine, when.
    machines   hardware and versions (JSON), each kind once.
    facts      what was measured of features themselves: question and answer (JSON), bank, version.

A chunk is written in one transaction when it is done, so a kill loses only unfinished chunks. Several processes may
write at once: SQLite serialises them, and they compute the same numbers.

Files of older formats lack columns: 1 has no AUPR and FPR95, 2 no macro accuracy, Brier score, log loss and histogram
of confidences. They get them when they are opened for writing, and what was measured before stays readable without
these numbers. A run measures such cells again, since their code version differs.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.calibration import Confidence
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.evaluate import Result
from sinkshot.foreign import databases
from sinkshot.foreign.files import is_regular
from sinkshot.metrics import PER_EPISODE
from sinkshot.studies.chunks import ChunkResult
from sinkshot.studies.resolve import ResolvedCell, canonical
from sinkshot.studies.study import BankKey

FORMAT = 3
_MARK = 0x53696E6B  # "Sink", SQLite's application_id of our files
_MOST = {"brier": 2.0 + 1e-3, "nll": 16.0}  # what values of a metric cannot be above, where that is not 1
_PATIENCE = 60.0  # seconds to wait for another process that is writing
_TRIES = 500  # a hundredth of a second apart
_SCHEMA = """
CREATE TABLE machines (id INTEGER PRIMARY KEY, description TEXT NOT NULL UNIQUE);
CREATE TABLE cells (
    id INTEGER PRIMARY KEY, settings TEXT NOT NULL, seed INTEGER NOT NULL, bank TEXT NOT NULL, engine TEXT NOT NULL,
    version TEXT NOT NULL, UNIQUE (settings, seed, bank, engine, version)
);
CREATE TABLE chunks (
    cell INTEGER NOT NULL REFERENCES cells (id), first INTEGER NOT NULL, count INTEGER NOT NULL,
    accuracy BLOB NOT NULL, auroc BLOB, seconds TEXT NOT NULL, machine INTEGER NOT NULL REFERENCES machines (id),
    finished TEXT NOT NULL, aupr BLOB, fpr95 BLOB, macro_accuracy BLOB, brier BLOB, nll BLOB, confidence BLOB,
    PRIMARY KEY (cell, first)
);
CREATE TABLE facts (
    question TEXT NOT NULL, bank TEXT NOT NULL, version TEXT NOT NULL, answer TEXT NOT NULL,
    PRIMARY KEY (question, bank, version)
);
"""
_VALUES = ("count", *PER_EPISODE, "confidence", "seconds", "machine", "finished")  # columns of a chunk but its key
_ADD_CHUNK = f"""
INSERT INTO chunks (cell, first, {", ".join(_VALUES)}) VALUES (?, ?, {", ".join("?" * len(_VALUES))})
ON CONFLICT (cell, first) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _VALUES)}
WHERE excluded.count >= chunks.count
"""
_NEW_IN = {2: ("aupr", "fpr95"), 3: ("macro_accuracy", "brier", "nll", "confidence")}  # columns of chunks by format
_CHUNKS = """
SELECT first, count, seconds, description, finished, {measures} FROM chunks
JOIN machines ON machines.id = chunks.machine WHERE cell = ? ORDER BY first
"""


@dataclass(frozen=True)
class StoredResult(Result):
    """A cell in the store: a `Result`, and the bank, code, hardware and libraries behind it."""

    bank: BankKey = field(default_factory=lambda: BankKey("", ()))
    bank_hash: str = ""  # of the bank's content
    version: str = ""  # of the code: the package's version and a digest of the sources that decide numbers
    hardware: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # Python and libraries
    finished: str = ""  # when its last part was, ISO 8601 in UTC
    histograms: Mapping[int, Confidence | None] = field(default_factory=dict)  # of chunks, by where they end
    settings: str = ""  # canonical JSON of all that a person sets but the seed
    labels: str = ""  # hash of the bank's labels, where a run has opened it; not stored


_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What values of another kind than ours raise where they are used."""


class Store:
    """A file of results, created if missing unless it is opened for reading only."""

    def __init__(self, path: Path, reading: bool = False) -> None:
        self.path = path
        if reading and not path.is_file():
            raise InputError(
                f"there is no file {path}; give a store of results, such as sinkshot-report/results.sqlite."
            )
        if (path.exists() and not is_regular(path)) or not path.parent.is_dir():
            raise InputError(f"cannot keep results in {path}: give the path of a file in an existing folder.")
        with self._sentences():
            self._database = _open_for_reading(path) if reading else databases.connect(path, timeout=_PATIENCE)
        try:
            with self._sentences():
                self._database.isolation_level = None  # transactions are begun by hand
                self._check(reading)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def present(self, resolved: ResolvedCell) -> dict[int, int]:
        """Return the stored chunks of a cell: first episode -> count."""
        with self._sentences():
            cell = self._cell(resolved)
            rows = self._database.execute("SELECT first, count FROM chunks WHERE cell = ?", (cell,))
            return dict(rows.fetchall())

    def add(self, resolved: ResolvedCell, first: int, part: ChunkResult) -> None:
        """Add a finished chunk; an existing one with more episodes stays."""
        description = canonical({"hardware": part.machine.hardware, "versions": dict(part.machine.versions)})
        metrics = {"accuracy": part.accuracy, **part.metrics}
        measures = [_bytes(metrics[name]) if name in metrics else None for name in PER_EPISODE]
        measures.append(None if part.confidence is None else part.confidence.to_bytes())
        with self._sentences(), self._transaction():
            self._database.execute("INSERT OR IGNORE INTO machines (description) VALUES (?)", (description,))
            of_machine = "SELECT id FROM machines WHERE description = ?"
            (machine,) = self._database.execute(of_machine, (description,)).fetchone()
            columns = "settings, seed, bank, engine, version"
            self._database.execute(f"INSERT OR IGNORE INTO cells ({columns}) VALUES (?, ?, ?, ?, ?)", resolved.key)
            seconds = canonical(part.seconds)
            values = (len(part.accuracy), *measures, seconds, machine, _now())
            self._database.execute(_ADD_CHUNK, (self._cell(resolved), first, *values))

    def get(self, resolved: ResolvedCell, episodes: int) -> StoredResult | None:
        """Return the first `episodes` episodes of a cell, or None if they are not all there."""
        with self._sentences():
            cell = self._cell(resolved)
            found = None if cell is None else self._stored(cell, *resolved.key)
        return found if found is None or found.episodes == episodes else _cut(found, episodes)

    def fact(self, question: str, bank: str, version: str) -> dict[str, Any] | None:
        """Return what is known of a bank's features, or None."""
        with self._sentences():
            where = "question = ? AND bank = ? AND version = ?"
            row = self._database.execute(
                f"SELECT answer FROM facts WHERE {where}", (question, bank, version)
            ).fetchone()
            return None if row is None else dict(json.loads(row[0]))

    def add_fact(self, question: str, bank: str, version: str, answer: Mapping[str, Any]) -> None:
        """Write what was measured of a bank's features."""
        with self._sentences(), self._transaction():
            values = (question, bank, version, json.dumps(answer))
            self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", values)

    def everything(self) -> list[StoredResult]:
        """Return every cell with its episodes up to the first gap, latest last."""
        with self._sentences():
            rows = self._database.execute("SELECT id, settings, seed, bank, engine, version FROM cells").fetchall()
            found = [self._stored(*row) for row in rows]
        return sorted((stored for stored in found if stored is not None), key=lambda stored: stored.finished)

    def _check(self, reading: bool) -> None:
        """Refuse foreign or damaged files; create the tables of a new one."""
        ask = self._database.execute
        if reading or ask("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            self._refuse_foreign()
            if not reading:
                self._bring_up_to_date()
            return
        self._write_ahead()
        with self._transaction():
            if ask("SELECT count(*) FROM sqlite_master").fetchone() == (0,):  # nobody else was faster
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    ask(statement)
                ask(f"PRAGMA application_id = {_MARK}")
                ask(f"PRAGMA user_version = {FORMAT}")
        self._refuse_foreign()

    def _write_ahead(self) -> None:
        """Use write-ahead logging, so that readers never wait, if the file system allows it.

        This is the one SQLite command that fails instead of waiting for another process.
        """
        for _ in range(_TRIES):
            with suppress(sqlite3.OperationalError):
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            time.sleep(0.01)

    def _bring_up_to_date(self) -> None:
        """Add the columns that an older format does not have."""
        ask = self._database.execute
        with self._transaction():
            (version,) = ask("PRAGMA user_version").fetchone()
            if version < FORMAT:  # nobody else was faster
                for name in _added_after(version):
                    ask(f"ALTER TABLE chunks ADD COLUMN {name} BLOB")
                ask(f"PRAGMA user_version = {FORMAT}")

    def _refuse_foreign(self) -> None:
        ask = self._database.execute
        if ask("PRAGMA application_id").fetchone() != (_MARK,):
            raise InputError(f"{self.path} is a database, but not a store of results; give another file with --store.")
        (version,) = ask("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise InputError(f"{self.path} has format {version}, this SinkShot reads up to {FORMAT}; upgrade it.")
        if (state := ask("PRAGMA quick_check(1)").fetchone()) != ("ok",):
            raise sqlite3.DatabaseError(str(state[0]).splitlines()[0])
        ask("PRAGMA synchronous = NORMAL")

    def _cell(self, resolved: ResolvedCell) -> int | None:
        where = "settings = ? AND seed = ? AND bank = ? AND engine = ? AND version = ?"
        row = self._database.execute(f"SELECT id FROM cells WHERE {where}", resolved.key).fetchone()
        return None if row is None else int(row[0])

    def _stored(self, cell: int, settings: str, seed: int, bank: str, engine: str, version: str) -> StoredResult | None:
        """Join the chunks of a cell from episode 0 to the first gap."""
        measured: dict[str, list[NDArray[np.float64] | None]] = {name: [] for name in PER_EPISODE}
        histograms: dict[int, Confidence | None] = {}  # by where their episodes end
        seconds: dict[str, float] = {}
        hardware: dict[str, None] = {}
        versions: dict[str, str] = {}
        end, finished = 0, ""
        for first, count, took, description, when, *blobs, histogram in self._database.execute(self._chunks(), (cell,)):
            if first != end:
                break
            for name, blob in zip(PER_EPISODE, blobs, strict=True):
                measured[name].append(None if blob is None else _floats(blob, count, name))
            histograms[first + count] = None if histogram is None else Confidence.from_bytes(histogram)
            for stage, value in json.loads(took).items():
                seconds[stage] = seconds.get(stage, 0.0) + value
            machine = json.loads(description)
            hardware[machine["hardware"]] = None
            versions |= machine["versions"]
            end, finished = first + count, max(finished, when)
        if not end:
            return None
        accuracies = [part for part in measured.pop("accuracy") if part is not None]
        others: dict[str, Any] = {f"{name}_per_episode": _joined(parts) for name, parts in measured.items()}
        what = json.loads(settings)
        what["bank"]["backbones"] = tuple(what["bank"]["backbones"])
        return StoredResult(
            method=what["method"],
            preprocess=what["preprocess"],
            recipe=Recipe(**what["recipe"], episodes=end, seed=seed),
            per_episode=np.concatenate(accuracies),
            seconds=seconds,
            engine=engine,
            hyper=what["hyper"],
            **others,
            confidence=_sum(list(histograms.values())),
            histograms=histograms,
            bank=BankKey(**what["bank"]),
            bank_hash=bank,
            version=version,
            hardware="; ".join(hardware),
            versions=versions,
            finished=finished,
            settings=settings,
        )

    def _chunks(self) -> str:
        """The question for chunks; a file of an older format that is only read has no column for newer measures."""
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        lacking = _added_after(version)
        known = ["NULL" if name in lacking else name for name in (*PER_EPISODE, "confidence")]
        return _CHUNKS.format(measures=", ".join(known))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn errors of SQLite into InputErrors."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"the store {self.path} cannot be used: {error}.") from error
        except (sqlite3.DatabaseError, *_DAMAGE) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{self.path} is damaged or not a store of results ({error}); move it away to start a new one, "
                "or give another file with --store."
            ) from error


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file without writing to it or its folder, if need be."""
    try:
        return databases.connect(path, query="mode=ro", timeout=_PATIENCE)
    except sqlite3.OperationalError:  # in a folder where nothing can be written
        return databases.connect(path, query="immutable=1")


def _cut(stored: StoredResult, episodes: int) -> StoredResult | None:
    """Return the first episodes of a result, and of its seconds their share; None if there are fewer."""
    if stored.episodes < episodes:
        return None
    share = episodes / stored.episodes
    others: dict[str, Any] = {
        f"{name}_per_episode": values[:episodes]
        for name in PER_EPISODE
        if name != "accuracy" and (values := stored.values(name)) is not None
    }
    whole = {end: histogram for end, histogram in stored.histograms.items() if end <= episodes}
    return replace(
        stored,
        recipe=replace(stored.recipe, episodes=episodes),
        per_episode=stored.per_episode[:episodes],
        **others,
        confidence=_sum(list(whole.values())) if episodes in whole else None,
        histograms=whole,
        seconds={stage: share * value for stage, value in stored.seconds.items()},
    )


def _joined(parts: list[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    """Put the episodes of chunks together; None where one of them lacks the measure."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _sum(parts: list[Confidence | None]) -> Confidence | None:
    """Add up the histograms of chunks; None where one of them has none."""
    known = [part for part in parts if part is not None]
    return sum(known, Confidence()) if len(known) == len(parts) else None


def _added_after(version: int) -> list[str]:
    """Columns of chunks that a file of this format lacks."""
    return [name for newer, names in _NEW_IN.items() if newer > version for name in names]


def _bytes(values: NDArray[np.float64]) -> bytes:
    return values.astype("<f8").tobytes()


def _floats(blob: Any, count: int, metric: str) -> NDArray[np.float64]:
    """Read a metric of each episode [count]; most lie between 0 and 1."""
    values = np.frombuffer(blob, "<f8").astype(np.float64)
    most = _MOST.get(metric, 1.0)
    if len(values) != count:
        raise ValueError(f"a chunk has {len(values)} values of {metric}, and {count} episodes")
    if not ((values >= 0) & (values <= most)).all():
        raise ValueError(f"a chunk has values of {metric} that are not from 0 to {most:g}")
    return values


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
