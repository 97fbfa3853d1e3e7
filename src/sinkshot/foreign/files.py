"""Open files: regular ones only, so that no pipe, device or socket blocks, and none that is too long."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from sinkshot.errors import InputError
from sinkshot.foreign.limits import Limit, amount


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Anything else raises an InputError; the caller handles OSErrors."""
    try:
        _must_be_regular(os.stat(path).st_mode, path)  # before opening: opening a device may have effects
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a null character in the name
        if isinstance(error, InputError):
            raise
        raise InputError(f"{str(path)!r} cannot be the name of a file: {error}.") from error
    try:
        _must_be_regular(os.fstat(handle).st_mode, path)  # after opening, because the file may have been replaced
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def is_regular(path: Path) -> bool:
    """Whether there is a regular file of that name, or a link to one."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def content(path: str | os.PathLike[str], limit: Limit) -> bytes:
    """Return all bytes of a regular file that is not longer than the limit."""
    with opened(path) as file:
        if (size := size_of(file)) > limit.value:
            raise InputError(f"{path} has {amount(size)}, more than the {amount(limit.value)} of {limit.bounds}.")
        return file.read(size)


def _must_be_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder, not a file.")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a regular file (it is a pipe, device or socket); copy its content into one.")
