"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

from sinkshot.errors import InputError


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give out a temporary file beside `path` to write to; once it has reached the disk, it takes the name.

    A killed or failed write leaves what `path` held. Whatever goes wrong comes out as an InputError with the path.
    """
    file = Path(os.path.realpath(path))
    if not file.parent.is_dir():
        raise InputError(f"{file} cannot be written: there is no folder {file.parent}; make it first.")
    if file.exists() and not file.is_file():
        raise InputError(f"{file} cannot be written: a folder or device has that name; choose another.")
    temporary = file.with_name(f".sinkshot-{token_hex(8)}.tmp")
    try:
        temporary.touch(exist_ok=False)
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


def reach_the_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
