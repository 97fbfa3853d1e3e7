"""A native file that is written row by row: for banks larger than memory, and for work that may be killed at any
moment.

`<path>.part` holds the finished file from the first row on, with space for its header. `<path>.part.json` records which
work it belongs to, how many rows are safely on disk, and a checksum of the source of each row, to detect changes. The
same work resumes from there, other work starts again, and after the last row the file is renamed to `path`.
`<path>.part.lock` excludes other processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sinkshot import locks
from sinkshot.arrays import blocks
from sinkshot.errors import InputError
from sinkshot.files import reach_the_disk, replacing
from sinkshot.foreign import limits, texts
from sinkshot.foreign.files import content
from sinkshot.formats.native import header_of, narrow

STORES: dict[str, tuple[str, np.dtype[Any]]] = {
    "float32": ("F32", np.dtype("<f4")),
    "float16": ("F16", np.dtype("<f2")),
}


class ResumableWriter:
    """Writes a bank to a file; use it in a `with`, `append` rows in order, then `finish`."""

    def __init__(
        self,
        path: Path,
        labels: NDArray[np.int64],
        class_names: Sequence[str],
        meta: Mapping[str, str],
        *,
        width: int,
        store: str,
        work: Mapping[str, str],
        prefixes: Sequence[str] = (),
        stamps: NDArray[np.uint32] | None = None,
    ) -> None:
        """Start or resume a file; `work` is everything that determines its rows, `prefixes` those of possible base
        means.

        `stamps` [n], if given, has a checksum per row that changes with the source of the row.
        """
        self.path, self.labels, self.shape, self.store = path, labels, (len(labels), width), store
        self.part, self.state, self.marks = (
            path.with_name(f"{path.name}.part{ending}") for ending in ("", ".json", ".stamps")
        )
        self.text = header_of(tuple(class_names), meta)
        self.room = len(self._beginning(prefixes))  # bytes before the labels
        identity = json.dumps([self.text, self.shape, store, self.room, sorted(work.items())])
        self.work = hashlib.sha256(identity.encode() + labels.astype("<i8").tobytes()).hexdigest()
        self.stamps = np.zeros(len(labels), np.uint32) if stamps is None else stamps
        self.rows = 0  # rows that are on disk
        self.other = False  # whether the existing file belongs to other work
        self.changed = np.empty(0, np.int64)  # existing rows whose source has changed since
        self.file: BinaryIO

    def __enter__(self) -> ResumableWriter:
        with _sentences(self.path), contextlib.ExitStack() as held:
            self._must_fit()
            held.enter_context(locks.alone(*_lock(self.path)))
            self.file = held.enter_context(self.part.open("r+b" if self.part.exists() else "w+b"))
            self.rows = self._safe_rows()
            if self.rows == 0:
                self.state.unlink(missing_ok=True)
                self.file.truncate(0)
                self.file.write(b" " * self.room + self.labels.astype("<i8").tobytes())
            self.file.seek(self._place(self.rows))
            self.file.truncate()
            with replacing(self.marks) as temporary:
                temporary.write_bytes(self.stamps.astype("<u4").tobytes())
            self.held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def append(self, features: NDArray[np.float32]) -> None:
        """Add rows [m, width]; when this returns they are on disk."""
        with _sentences(self.path):
            self.file.write(narrow(features, self.store).data)
            self.file.flush()
            os.fsync(self.file.fileno())
            self.rows += len(features)
            with replacing(self.state) as temporary:
                temporary.write_text(json.dumps({"work": self.work, "rows": self.rows}))

    def stored(self) -> Iterator[NDArray[Any]]:
        """Yield the rows so far as they are stored, block by block."""
        for rows in blocks(self.rows, self.shape[1]):
            self.file.seek(self._place(rows.start))
            content = self.file.read(self._place(rows.stop) - self._place(rows.start))
            yield np.frombuffer(content, STORES[self.store][1]).reshape(-1, self.shape[1])

    def finish(self, base: Mapping[str, NDArray[np.float32]]) -> None:
        """Add the base means and the header, and rename the file to its final name."""
        with _sentences(self.path):
            self.file.seek(self._place(self.rows))
            self.file.write(b"".join(mean.astype("<f4").tobytes() for mean in base.values()))
            self.file.truncate()
            self.file.seek(0)
            self.file.write(self._beginning(tuple(base), self.room))
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self.part, self.path)
            reach_the_disk(self.path.parent)
            self.state.unlink(missing_ok=True)
            self.marks.unlink(missing_ok=True)

    def _beginning(self, prefixes: Sequence[str], least: int = 0) -> bytes:
        """Return the start of a safetensors file: the length of a JSON object, and the object, padded with spaces."""
        (rows, width), (kind, dtype), at = self.shape, STORES[self.store], 0
        entries: dict[str, Any] = {"__metadata__": {"sinkshot": self.text}}
        tensors = [
            ("labels", "I64", [rows], 8 * rows),
            ("features", kind, [rows, width], dtype.itemsize * rows * width),
        ]
        for name, code, shape, length in [*tensors, *((f"base.{p}", "F32", [width], 4 * width) for p in prefixes)]:
            entries[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + length]}
            at += length
        text = json.dumps(entries).encode()
        length = max(len(text) + -len(text) % 8, least - 8)
        return length.to_bytes(8, "little") + text.ljust(length)

    def _place(self, row: int) -> int:
        """Return the offset of a row in the file."""
        return self.room + 8 * self.shape[0] + row * self.shape[1] * STORES[self.store][1].itemsize

    def _safe_rows(self) -> int:
        """Return the number of rows of the same work in the file."""
        try:
            state = texts.json_object(texts.text(self.state, limits.JSON))
            rows, self.other = int(state["rows"]), state["work"] != self.work
            stamps = np.frombuffer(content(self.marks, limits.LIST), "<u4")[:rows]
        except FileNotFoundError:
            self.other = self.state.exists()
            return 0
        except (OSError, ValueError, KeyError, TypeError):  # damaged, or written by a version without stamps
            self.other = True
            return 0
        whole = 0 <= rows <= self.shape[0] and self._place(rows) <= self.part.stat().st_size
        if self.other or not whole or len(stamps) != rows:
            return 0
        self.changed = np.flatnonzero(stamps != self.stamps[:rows])
        return 0 if len(self.changed) else rows

    def _must_fit(self) -> None:
        if not self.path.parent.is_dir():
            raise InputError(f"there is no folder {self.path.parent}; create it first.")
        if self.path.is_dir():
            raise InputError("a folder has that name; choose another.")
        need = self._place(self.shape[0])
        free = shutil.disk_usage(self.path.parent).free + (self.part.stat().st_size if self.part.exists() else 0)
        if free < need:
            raise InputError(f"it needs {need / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there.")


@contextlib.contextmanager
def _sentences(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


def must_be_free(path: Path) -> None:
    """Refuse a bank that another process is writing."""
    with _sentences(path):
        locks.must_be_free(*_lock(path))


def _lock(path: Path) -> tuple[Path, str, str]:
    return path.with_name(path.name + ".part.lock"), "it is being written", "give the bank another name"
