"""One part of a bank in parts: a safetensors or Parquet file with the features and labels of some rows.

A safetensors part has the tensors of the native format (`features`, `features.scale` with uint8, `labels`); single rows
are read from it. A Parquet part has the columns `features` (a list of numbers per row) and `label`; it is decoded as a
whole, so it should be small enough for memory.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.folders import Folder, LocalFolder
from sinkshot.foreign.tensors import DamagedTensors, TensorEntry, TensorFile, numpy_type
from sinkshot.formats.native import dequantise, narrow, quantise

SUFFIXES = (".safetensors", ".parquet")
_HASHED = 1 << 20  # bytes read at a time
_TOGETHER = 32 << 20  # bytes of rows that one request may read
_REQUESTS = 64  # at a time


@dataclass(frozen=True)
class Part:
    """What the index says of a part."""

    file: str
    rows: int
    size: int  # bytes
    sha256: str


class TensorPart:
    """A safetensors part; only its header is kept in memory."""

    def __init__(self, folder: Folder, part: Part, width: int) -> None:
        self.folder, self.part = folder, part
        with folder.errors_name(part.file), damaged_is_said(), folder.opened(part.file) as file:
            found = TensorFile(file, "np", folder.size(part.file))
            if missing := {"features", "labels"} - set(found.names):
                raise InputError(f"it holds no tensor {sorted(missing)[0]!r}.")
            self.features, self.labels_entry = found.entry("features"), found.entry("labels")
            scaled = "features.scale" in found.names
            self.scale = found.get_tensor("features.scale") if scaled else None
            _check(self.features.shape, self.labels_entry.shape, (part.rows, width))
            if self.scale is not None and self.scale.shape != (width,):
                raise InputError(f"its scale has shape {list(self.scale.shape)}; [{width}] expected.")
            self.dtype = numpy_type(self.features)
        self.row_bytes = width * self.dtype.itemsize

    def labels(self) -> NDArray[np.int64]:
        """Read the labels of its rows."""
        entry = self.labels_entry
        with self.folder.errors_name(self.part.file):
            (content,) = self._ranges([entry.begin], [entry.end])
        return np.frombuffer(content, numpy_type(entry)).astype(np.int64)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read rows by their numbers in the part, which rise; those near each other are read together."""
        found = np.empty((len(numbers), self.features.shape[1]), np.float32)
        runs = _runs(numbers, max(0, self.folder.gap // self.row_bytes), max(1, _TOGETHER // self.row_bytes))
        with self.folder.errors_name(self.part.file):
            for some in (runs[at : at + _REQUESTS] for at in range(0, len(runs), _REQUESTS)):
                begins = [self.features.begin + int(numbers[run.start]) * self.row_bytes for run in some]
                ends = [self.features.begin + int(numbers[run.stop - 1] + 1) * self.row_bytes for run in some]
                for run, content in zip(some, self._ranges(begins, ends), strict=True):
                    stored = np.frombuffer(content, self.dtype).reshape(-1, found.shape[1])
                    chosen = stored[numbers[run] - numbers[run.start]]
                    found[run] = chosen if self.scale is None else dequantise(chosen.astype(np.float32), self.scale)
        return found

    def _ranges(self, begins: list[int], ends: list[int]) -> list[bytes]:
        found = self.folder.ranges(self.part.file, begins, ends)
        for content, begin, end in zip(found, begins, ends, strict=True):
            if len(content) != end - begin:
                raise InputError("it was cut short after it was opened; make this part again.")
        return found


class ParquetPart:
    """A Parquet part, decoded when it is first read and kept as long as the object."""

    def __init__(self, folder: Folder, part: Part, width: int) -> None:
        self.folder, self.part, self.width = folder, part, width
        self._decoded: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    def labels(self) -> NDArray[np.int64]:
        """Read the labels of its rows."""
        return self._arrays()[1]

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows by their numbers in the part."""
        return self._arrays()[0][numbers]

    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self._decoded is None:
            from sinkshot.foreign.parquet import columns

            with self.folder.errors_name(self.part.file), local_copy(self.folder, self.part.file) as path:
                found = columns(path)
                if missing := {"features", "label"} - set(found):
                    raise InputError(f"it has no column {sorted(missing)[0]!r}.")
                try:
                    features, labels = np.asarray(found["features"], np.float32), np.asarray(found["label"], np.int64)
                except (ValueError, TypeError) as error:
                    raise InputError(f"its columns are not numbers ({error}).") from error
                _check(features.shape, labels.shape, (self.part.rows, self.width))
            self._decoded = features, labels
        return self._decoded


AnyPart = TensorPart | ParquetPart


def open_part(folder: Folder, part: Part, width: int) -> AnyPart:
    """Open a part; its size must be what the index says."""
    with folder.errors_name(part.file):
        if (size := folder.size(part.file)) != part.size:
            raise InputError(
                f"this part has {size:,} bytes, but the index says {part.size:,}; it is damaged: make it again."
            )
    kind = ParquetPart if part.file.endswith(".parquet") else TensorPart
    return kind(folder, part, width)


def write_part(folder: Folder, file: str, features: NDArray[np.float32], labels: NDArray[np.int64], store: str) -> Part:
    """Write rows as a part, which appears under its name when it is complete."""
    with folder.writing(file) as temporary:
        if file.endswith(".parquet"):
            _write_parquet(temporary, features, labels, store)
        else:
            _write_tensors(temporary, features, labels, store)
        size = temporary.stat().st_size
        with temporary.open("rb") as written:
            digest = _digest(written)
    return Part(file, len(features), size, digest)


def verify(folder: Folder, part: Part) -> None:
    """Read a part and compare it with the digest in the index."""
    with folder.errors_name(part.file), folder.opened(part.file) as file:
        if _digest(file) != part.sha256:
            raise InputError("this part is not what the index says (its digest differs); make it again.")


@contextmanager
def local_copy(folder: Folder, file: str) -> Iterator[Path]:
    """Yield a local copy of a file, or the file itself if it is on this machine."""
    if isinstance(folder, LocalFolder):
        yield folder.path / file
        return
    with tempfile.TemporaryDirectory(prefix="sinkshot-") as local:
        path = Path(local) / Path(file).name
        with folder.opened(file) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _HASHED)
        yield path


@contextmanager
def damaged_is_said() -> Iterator[None]:
    """Turn errors of a damaged safetensors file into an InputError."""
    try:
        yield
    except DamagedTensors as error:
        raise InputError(f"this part is truncated or damaged ({error}); make it again.") from error


def _check(features: tuple[int, ...], labels: tuple[int, ...], wanted: tuple[int, int]) -> None:
    if features != wanted or labels != wanted[:1]:
        raise InputError(
            f"it has features {list(features)} and labels {list(labels)}, but the index says {list(wanted)}."
        )


def _runs(numbers: NDArray[np.int64], gap: int, longest: int) -> list[slice]:
    """Cut rising numbers where more than `gap` numbers are left out, or where a run would span more than `longest`."""
    if not len(numbers):
        return []
    cuts = np.diff(numbers) > gap + 1
    cuts |= np.diff(numbers // longest) > 0
    starts = np.concatenate([[0], np.flatnonzero(cuts) + 1, [len(numbers)]]).tolist()
    return [slice(start, stop) for start, stop in pairwise(starts)]


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while content := file.read(_HASHED):
        digest.update(content)
    return digest.hexdigest()


def _write_tensors(path: Path, features: NDArray[np.float32], labels: NDArray[np.int64], store: str) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, NDArray[Any]] = {"labels": labels.astype(np.int32)}
    if store == "uint8":
        tensors["features"], tensors["features.scale"] = quantise(features)
    else:
        tensors["features"] = narrow(features, store)
    try:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _write_parquet(path: Path, features: NDArray[np.float32], labels: NDArray[np.int64], store: str) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Parquet parts need pyarrow: pip install 'sinkshot[parquet]'.") from None
    if store == "uint8":
        raise InputError("Parquet parts hold float32 or float16; use --store float16.")
    flat = pyarrow.array(narrow(features, store).ravel())
    column = pyarrow.FixedSizeListArray.from_arrays(flat, features.shape[1])
    parquet.write_table(pyarrow.table({"features": column, "label": labels.astype(np.int32)}), path)


__all__ = ["SUFFIXES", "AnyPart", "Part", "TensorEntry", "open_part", "verify", "write_part"]
