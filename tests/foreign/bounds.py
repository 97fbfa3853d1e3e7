"""Limits of a read: memory of Python and NumPy, and processor time."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded(memory: int = 64 << 20, seconds: float = 20.0) -> Iterator[None]:
    """Fail if the block needs more memory or processor time than this, which a busy machine does not change."""
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        peak, took = tracemalloc.get_traced_memory()[1], time.process_time() - began
    finally:
        tracemalloc.stop()
    assert peak < memory, f"{peak / 1e6:.0f} MB were taken"
    assert took < seconds, f"{took:.1f} s were taken"
