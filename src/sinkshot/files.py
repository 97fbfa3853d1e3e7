"""Write files atomically."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

from sinkshot.errors import InputError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be renamed
    _LOCKS = False
else:
    _LOCKS = True

_SWEPT: set[Path] = set()  # folders


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file beside `path` that replaces `path` once it is on disk.

    A killed or failed write leaves `path` unchanged. Errors become an InputError with the path.
    """
    try:
        file = Path(os.path.realpath(path))
    except OSError as error:  # the working folder was deleted
        raise InputError(f"{os.fsdecode(path)} cannot be written: {error.strerror or error}.") from error
    if not file.parent.is_dir():
        raise InputError(f"{file} cannot be written: there is no folder {file.parent}; create it first.")
    if file.exists() and not file.is_file():
        raise InputError(f"{file} cannot be written: a folder or device has that name; choose another.")
    temporary = file.with_name(f".sinkshot-{os.getpid()}-{token_hex(8)}.tmp")
    try:
        _sweep(file.parent)
        with _held(temporary):
            mode = stat.S_IMODE((file if file.exists() else temporary).stat().st_mode)
            yield temporary
            os.chmod(temporary, mode)  # some libraries make their files private
            reach_the_disk(temporary)
            os.replace(temporary, file)
        reach_the_disk(file.parent)
    except InputError as error:
        raise InputError(f"{file} cannot be written: {error}") from error
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def _held(temporary: Path) -> Iterator[None]:
    """Create a temporary file and hold a lock on it, so that no other process removes it as abandoned."""
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    if not _LOCKS:
        os.close(handle)
        yield
        return
    try:
        _try_lock(handle)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove the temporary files of killed processes from a folder; once per folder and process.

    A file is in use if a process holds its lock, or if the process whose number is in its name is running.
    """
    if folder in _SWEPT or not _LOCKS:
        return
    _SWEPT.add(folder)
    for left in folder.glob(".sinkshot-*.tmp"):
        number = left.name.split("-")[1]
        if not number.isdigit() or _lives(int(number)):
            continue
        with contextlib.suppress(OSError):
            handle = os.open(left, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if _try_lock(handle):
                    left.unlink()
            finally:
                os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock a file; False if another process holds the lock or the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lives(process: int) -> bool:
    """Whether a process with this number exists, of any user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def reach_the_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
