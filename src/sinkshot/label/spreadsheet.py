"""CSV files that are safe to open in a spreadsheet, and read back as they were.

A cell that begins with =, +, -, @, a tab or a carriage return would be run as a formula. A path that begins so gets
`./` in front, any other text an apostrophe; reading removes both. Characters that would act on a terminal are written
as escapes, all but line ends, which CSV quotes; `label_files` recognises such names. Numbers are written by the
program, not by strangers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from sinkshot.errors import InputError, printable_lines
from sinkshot.foreign.texts import must_be_narrow
from sinkshot.foreign.texts import rows as text_of

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKS = re.compile('[,"\r\n]')  # a cell with one of these is quoted


def safe_path(path: str) -> str:
    """Return a relative path that no spreadsheet takes for a formula."""
    path = printable_lines(path)
    return f"./{path}" if path.startswith(_FORMULA) or path.startswith("'") else path


def plain_path(cell: str) -> str:
    """Return the path that `safe_path` wrote, in the shape of a relative POSIX path."""
    return PurePosixPath(cell).as_posix() if cell else cell


def safe_text(value: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    value = printable_lines(value)
    return f"'{value}" if value.startswith((*_FORMULA, "'")) else value


def plain_text(cell: str) -> str:
    """Return the text that `safe_text` wrote."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*_FORMULA, "'")) else cell


def write_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    """Return a CSV file as UTF-8 bytes."""
    lines = (",".join(map(_quoted, row)) for row in (header, *rows))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _quoted(cell: str) -> str:
    """A cell as CSV; a lone carriage return is quoted too, which the csv module leaves bare."""
    return '"' + cell.replace('"', '""') + '"' if _MARKS.search(cell) else cell


def read_rows(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of a UTF-8 CSV file and its rows, each with its line number."""
    reader = csv.reader(io.StringIO(text_of(path), newline=""), strict=True)
    try:
        header = next(reader)
    except StopIteration:
        raise InputError(f"{path} is empty; a first line with column names is expected.") from None
    except csv.Error as error:
        raise InputError(f"{path}, line 1: {error}.") from None

    must_be_narrow(len(header), path)

    def rows() -> Iterator[tuple[int, list[str]]]:
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(f"{path}, line {line}: {error}.") from None
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(f"{path}, line {line} has {len(row)} cells; the header has {len(header)}.")
            yield line, row

    return [name.strip() for name in header], rows()
