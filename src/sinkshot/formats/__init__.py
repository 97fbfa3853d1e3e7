"""File formats of banks, chosen by suffix: one module per format, each with `read`, two of them with `write`.

They read and write `BankContent`, plain arrays and strings; `sinkshot.bank` makes a checked FeatureBank from it.

Any fault of a file raises an InputError that begins with its path. Writing is atomic: the new content goes to a
temporary file in the same folder, is flushed to disk, and then replaces the old file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, resources
from pathlib import Path

from sinkshot.errors import InputError, unknown_name, whole
from sinkshot.files import replacing
from sinkshot.foreign.files import opened
from sinkshot.formats.content import BankContent

__all__ = [
    "READERS",
    "STORES",
    "WRITERS",
    "BankContent",
    "as_path",
    "bundled",
    "errors_name",
    "in_parts",
    "located",
    "must_be_readable",
    "read",
    "source",
    "write",
    "write_parts",
]

READERS = {".safetensors": "native", ".npz": "npz", ".npy": "npy", ".plk": "plk", ".pkl": "plk", ".pickle": "plk"}
WRITERS = {".safetensors": "native", ".npz": "npz"}
PART_FORMATS = ("safetensors", "parquet")
STORES = ("float32", "float16", "uint8")


@contextmanager
def located(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Return the file at a path, or the file of the bundled bank with this name."""
    file = as_path(path)
    if str(file) in bundled() and not file.is_file():
        with resources.as_file(resources.files("sinkshot") / "data" / f"{file}.safetensors") as inside:
            yield inside
    else:
        yield file


def in_parts(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder with the index of a bank in parts, or an address of another machine."""
    from sinkshot.foreign.folders import is_address
    from sinkshot.formats.parts import INDEX

    return is_address(path) or os.path.isfile(as_path(path) / INDEX)  # False for a name that no file can have


def read(file: Path, labels: str | os.PathLike[str] | None = None) -> BankContent:
    """Read the content of a file; `labels` is the labels file of an `.npy`."""
    must_be_readable(file)
    kind = _kind(file, READERS)
    if labels is not None and kind != "npy":
        raise InputError(f"{file} holds its own labels; a labels file is for .npy only, so leave it out.")
    options = {"labels": as_path(labels)} if labels is not None else {}
    with errors_name(file):
        content: BankContent = import_module(f"sinkshot.formats.{kind}").read(file, **options)
    return content


@contextmanager
def errors_name(file: Path) -> Iterator[None]:
    """Turn any exception about a file into an InputError that begins with its path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    except MemoryError:  # says nothing about the file
        raise
    except Exception as error:  # a damaged file makes its parser raise almost anything
        reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
        raise InputError(
            f"{file} is truncated, damaged or not a {file.suffix} file ({reason}); make it again."
        ) from error


def write(bank: BankContent, path: str | os.PathLike[str], store: str = "float32") -> None:
    """Write a bank atomically: `path` holds either all of it or what it held before."""
    file = as_path(path)
    kind = _kind(file, WRITERS)
    if store not in STORES:
        raise unknown_name("store", str(store), STORES)
    with replacing(file) as temporary:
        import_module(f"sinkshot.formats.{kind}").write(bank, temporary, store)


def write_parts(bank: BankContent, path: str | os.PathLike[str], store: str, part_rows: int, part_format: str) -> None:
    """Write a bank in parts of `part_rows` rows; it can be read once the last part is written."""
    from sinkshot.formats import parts

    whole("the number of rows in a part", part_rows, 1)
    if store not in STORES:
        raise unknown_name("store", str(store), STORES)
    if part_format not in PART_FORMATS:
        raise unknown_name("format of parts", part_format, PART_FORMATS)
    parts.write(bank, path, store=store, part_rows=part_rows, suffix=f".{part_format}")


def bundled() -> tuple[str, ...]:
    """Return the names of the banks that come with the package."""
    names = [file.name for file in (resources.files("sinkshot") / "data").iterdir()]
    return tuple(sorted(name.removesuffix(".safetensors") for name in names if name.endswith(".safetensors")))


def source(path: Path) -> dict[str, str]:
    """Return the meta of a bank imported from another program's file: its name and its SHA-256."""
    with opened(path) as file:
        return {"source": path.name, "source_sha256": hashlib.file_digest(file, "sha256").hexdigest()}  # type: ignore[arg-type]


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return the given path as a Path."""
    try:
        return Path(os.fsdecode(path))
    except TypeError as error:
        raise InputError(f"{path!r} was given where the path of a file is expected.") from error


def must_be_readable(file: Path) -> None:
    """Raise an InputError unless there is a regular file with something in it."""
    try:
        found = file.stat()
        if stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its other end
            opened(file).close()
    except FileNotFoundError as error:
        known = ", ".join(bundled())
        here = f"the working folder is {Path.cwd()}"
        raise InputError(f"{file} does not exist ({here}); bundled banks: {known}.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{str(file)!r} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{file} is a folder; give a file of features. `sinkshot extract` makes one from images.")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{file} is not a regular file; copy its content into one first.")
    if found.st_size == 0:
        raise InputError(f"{file} is empty (0 bytes); make it again.")


def _kind(file: Path, known: dict[str, str]) -> str:
    kind = known.get(file.suffix.lower())
    if kind is None:
        what = f"the suffix {file.suffix!r}" if file.suffix else "no suffix"
        raise InputError(f"{file} has {what}; expected one of {', '.join(known)}.")
    return kind
