"""The limits for untrusted files, in one table, and the memory that a file may use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sinkshot.errors import LONGEST, InputError

VARIABLE = "SINKSHOT_MAX_MEMORY"  # environment variable, set by --max-memory
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Limit:
    """One row of the table."""

    value: int
    unit: str
    bounds: str  # what it bounds


MEMORY = Limit(256 << 20, "bytes", "memory that any file may ask for, however small it is")
RATIO = Limit(20, "times the file", "memory that a larger file may ask for; `--max-memory` replaces both rows")
LABELS = Limit(64 << 20, "bytes", "labels or class names in an array, unless the file is a twentieth as large")
ARRAY_HEADER = Limit(10_000, "bytes", "header of an array in `.npy` and `.npz`")
DIMENSIONS = Limit(16, "dimensions", "an array or tensor")
MEMBERS = Limit(100_000, "members", "a zip archive (`.npz`, `.pt`) or a tar archive")
DIRECTORY = Limit(32 << 20, "bytes", "directory of a zip archive, or header of a `.safetensors` file")
STEPS = Limit(100_000_000, "instructions", "a pickle (`.plk`, `.pkl`, `.pt`)")
DEPTH = Limit(64, "levels", "containers within containers in a pickle, TOML or JSON file")
INTEGER = Limit(64, "bits", "an integer in a TOML file")
INTEGER_IN_PICKLE = Limit(128, "bits", "an integer in a pickle")
TOML = Limit(1 << 20, "bytes", "a TOML file: study, recipe, `banks.toml`")
JSON = Limit(16 << 20, "bytes", "a JSON text: header of a bank or of weights, state of a run")
LIST = Limit(256 << 20, "bytes", "a text file of labels or of image names")
LINES = Limit(5_000_000, "lines", "a text file of image names")
ROW = Limit(200, "bytes", "memory that counts for a row of features, a table or texts, against the first two rows")
WIDTH = Limit(1_000_000, "features", "a row of an archive (`.npz`)")
COLUMNS = Limit(100_000, "columns", "a table")
CELL = Limit(256 << 20, "bytes", "an entry of a database: results, cached features")
PIXELS = Limit(105_000_000, "pixels", "an image, as stored and as resized")
SCANS = Limit(100, "scans", "a JPEG image; each goes over all pixels")
IMAGE = Limit(1 << 28, "bytes", "an image file")
PARAMETERS = Limit(1 << 28, "parameters", "a network that a recipe asks for; `--max-memory` raises it")
LAYERS = Limit(2_000, "layers", "depth of such a network")
SIDE = Limit(4_096, "pixels", "side of the images that a recipe or a network file asks for")
BATCH = Limit(65_536, "images", "a batch that a recipe or a network file asks for")
PIXELS_OF_A_BATCH = Limit(1 << 30, "bytes", "pixels of a batch that a recipe asks for; `--max-memory` replaces it")
NETWORK_SECONDS = Limit(30, "seconds", "reading an ONNX network and its first image")
NETWORK_MEMORY = Limit(768 << 20, "bytes", "an ONNX network beyond four times its file, for its first image")
TABLE_SECONDS = Limit(30, "seconds", "decoding a Parquet file, and a second for each 20 MB of it")
MESSAGE = Limit(LONGEST, "characters", "a line of an error message")


def table() -> dict[str, Limit]:
    """Return all limits by name."""
    return {name: limit for name, limit in globals().items() if isinstance(limit, Limit)}


def markdown() -> str:
    """Return the table as docs/security.md shows it."""
    rows = [f"| {limit.bounds} | {_shown(limit)} |" for limit in table().values()]
    return "\n".join(["| what | limit |", "|---|---|", *rows])


def _shown(limit: Limit) -> str:
    if limit.unit == "bytes" and limit.value % (1 << 20) == 0:
        return f"{limit.value >> 20:,} MiB"
    return f"{limit.value:,} {limit.unit}"


def max_memory() -> int | None:
    """Return the memory that the user allows per file in bytes, or None if the table applies."""
    given = os.environ.get(VARIABLE, "")
    return size_of(given) if given else None


def size_of(text: str) -> int:
    """Read an amount of memory.

    >>> size_of("8G"), size_of("500 M"), size_of("1.5g")
    (8589934592, 524288000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise InputError(f"an amount of memory is written as 8G or 500M; {text!r:.40} was given.")
    return int(float(match[1]) * _SIZES[match[2].upper()])


def allowed(size: int, least: Limit = MEMORY) -> int:
    """Return the bytes of memory that a file of `size` bytes may use."""
    given = max_memory()
    return max(least.value, RATIO.value * size) if given is None else given


def admit(need: int, size: int, what: str, least: Limit = MEMORY) -> None:
    """Raise an error if `need` bytes of memory are more than a file of `size` bytes may use."""
    if need <= (most := allowed(size, least)):
        return
    asked = f"{what} would take {amount(need)} of memory"
    if max_memory() is not None:
        raise InputError(f"{asked}, more than the {amount(most)} allowed by --max-memory ({VARIABLE}).")
    raise InputError(
        f"{asked}, which is too much for a file of {amount(size)}. If you trust the file, allow it with --max-memory "
        f"(or {VARIABLE}) and an amount such as 8G."
    )


def admit_rows(rows: int, size: int, what: str) -> None:
    """Raise an error if a file of `size` bytes has so many rows that what is kept of each takes too much memory."""
    admit(ROW.value * rows, size, f"{what} of {rows:,} rows")


def amount(size: int) -> str:
    """Return a number of bytes in readable units.

    >>> amount(3), amount(2_500_000), amount(20 << 30)
    ('3 bytes', '2.5 MB', '21.5 GB')
    """
    if size >= 10**21:
        return "more than 10^21 bytes"
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"
