"""The engine of readable code on NumPy arrays."""

from __future__ import annotations

from sinkshot.engines.readable import ReadableEngine


class NumPyEngine(ReadableEngine):
    """The readable code on NumPy arrays: the reference for all other engines."""

    name = "numpy"
    chunk_bytes = 16 << 20  # with smaller chunks, threads spend their time on the interpreter's lock
