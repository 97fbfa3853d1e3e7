"""Compile kernels with numba, cache them on disk, and run them over batches of episodes in threads."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from sinkshot.kernels import numba_environment  # noqa: F401  before Numba reads it

# isort: split
from numba import config, njit
from numba.core import event

from sinkshot import settings
from sinkshot.threads import cores

_COMPILED_IN = (Path(__file__).parent, Path(settings.__file__).parent)  # folders of compiled code


def cached(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function and cache its machine code on disk, if a folder is writable.

    Numba checks only the function's own file for changes; an engine has several files, so their digest is part of the
    name.
    """
    function.__qualname__ += f"_{_digest_of_sources()[:12]}"
    try:
        return njit(cache=True, error_model="numpy", **options)(function)
    except RuntimeError:  # no writable cache folder: compile in every process
        return njit(error_model="numpy", **options)(function)


@cache
def _digest_of_sources() -> str:
    """Return the SHA-256 of all files that compiled code comes from; read once per process."""
    sources = [source for package in _COMPILED_IN for source in sorted(package.glob("*.py"))]
    sources.append(Path(__file__).parents[1] / "calibration.py")
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def engine(function: Callable[..., Any]) -> Any:
    """Compile a loop over episodes that releases the GIL."""
    return cached(function, nogil=True, fastmath={"contract"})


class _Announcement(event.Listener):  # type: ignore[misc]
    """Logs once per process that a kernel is being compiled."""

    said = False

    def __init__(self, engines: tuple[Any, ...]) -> None:
        self.engines = engines

    def on_start(self, compilation: Any) -> None:
        """Log for whole kernels, not for their parts."""
        if compilation.data["dispatcher"] in self.engines and not _Announcement.said:
            _Announcement.said = True
            logging.getLogger("sinkshot").info("compiling the CPU engine (once; later runs load it from disk)")

    def on_end(self, compilation: Any) -> None:
        """Nothing to add."""


def announced(*engines: Any) -> AbstractContextManager[object]:
    """Log if one of these kernels has to be compiled inside the `with`."""
    telling: AbstractContextManager[object] = event.install_listener("numba:compile", _Announcement(engines))
    return telling


def workers() -> int:
    """Number of threads: this process's cores, or numba's limit if lower, which joblib sets in its workers."""
    return min(cores(), int(config.NUMBA_NUM_THREADS))


def in_batches(compiled: Any, episodes: int, classify: Callable[[slice], None], threads: int | None = None) -> None:
    """Call `classify`, which runs `compiled`, on slices of the episodes, in threads."""
    threads = threads or workers()
    size = max(1, min(64, episodes // (4 * threads)))
    batches = [slice(first, first + size) for first in range(0, episodes, size)]
    with announced(compiled), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(classify, batches):
            pass
