"""Safetensors files: regular ones with a header of bounded length; the safetensors library checks sizes and offsets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sinkshot.errors import InputError
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import DIRECTORY, amount


@contextmanager
def tensors(path: str | os.PathLike[str], framework: str) -> Iterator[Any]:
    """Open a safetensors file for NumPy (`np`) or torch (`pt`)."""
    from safetensors import safe_open

    with opened(path) as file:
        length, size = int.from_bytes(file.read(8), "little"), size_of(file)
    if DIRECTORY.value < length <= size:
        raise InputError(f"its header is longer than {amount(DIRECTORY.value)}.")
    with safe_open(path, framework=framework) as found:
        yield found
