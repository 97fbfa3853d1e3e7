"""ONNX networks of strangers, in a process whose time and memory are bounded. Arrays in, arrays out; no torch."""

from __future__ import annotations

import hashlib
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.child import Child, as_float32
from sinkshot.foreign.files import opened, size_of
from sinkshot.foreign.limits import BATCH, NETWORK_MEMORY, NETWORK_SECONDS, SIDE, admit

SPEED = 50_000_000  # bytes of a file that take another second to read, at most


class OnnxNetwork:
    """A network that takes images [n, 3, h, w] and gives features [n, d], or maps [n, d, h, w], which are averaged.

    Its first input and first output are used. Where the file does not fix the size of images, give it.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise InputError(f"{path} needs onnxruntime: pip install 'sinkshot[onnx]'.")
        with opened(path) as file:
            length = size_of(file)
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        self.path, self.seconds = path, NETWORK_SECONDS.value + length / SPEED
        self.memory = 4 * length + NETWORK_MEMORY.value
        self.growth, self.pace = 0, 0.0  # bytes and seconds for an image
        self.child = Child("onnxruntime")
        try:
            self._open()
            self.side = self._side(size)
            admit(12 * self.side**2 * (self.batch or 1), length, f"{path}: the images that it takes at a time")
            self.width = self._first().shape[1]
        except BaseException:
            self.child.end()
            raise

    def _open(self) -> None:
        """Read the file in the other process, and keep what it says of its inputs."""
        try:
            answer, _ = self.child.ask({"do": "load", "path": str(self.path)}, None, self.seconds, self.memory)
            if "error" in answer:
                raise InputError(str(answer["error"])[:160])
        except InputError as error:
            raise InputError(f"{self.path} is truncated, damaged or not an ONNX model ({error}).") from error
        if not answer["inputs"] or not answer["outputs"]:
            raise InputError(f"{self.path} has no inputs or no outputs; expected a network that takes images.")
        self.peak, self.shape = answer["peak"], [_dimension(entry) for entry in answer["inputs"][0]["shape"]]
        begin = self.shape[0] if self.shape else None
        self.batch = begin if isinstance(begin, int) else None  # the only number of images that it takes
        self.half = "float16" in answer["inputs"][0]["type"]

    def _side(self, size: int | None) -> int:
        """Return the side of the images that the network is shown."""
        path, shape = self.path, self.shape
        if len(shape) != 4 or (isinstance(shape[1], int) and shape[1] != 3):
            raise InputError(f"{path} takes inputs of shape {shape}; images [n, 3, height, width] are expected.")
        fixed = shape[2] if isinstance(shape[2], int) else None
        if fixed is not None and size not in (None, fixed):
            raise InputError(f"{path} takes images of {fixed} pixels, not {size}.")
        side = fixed or size
        if side is None:
            raise InputError(f"{path} takes images of any size; choose one with --size (size=).")
        if not 1 <= side <= SIDE.value or not 1 <= (self.batch or 1) <= BATCH.value:
            raise InputError(
                f"{path} takes {self.batch or 1:,} images of {side:,} pixels at a time, which is too much."
            )
        return side

    def _first(self) -> NDArray[np.float32]:
        """Run it on one image, and keep what that took."""
        try:
            return self(np.zeros((1, 3, self.side, self.side), np.float32))
        except InputError as error:
            raise InputError(f"{self.path} fails on an image of {self.side} pixels ({error}).") from error

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features [n, width] of normalised images [n, 3, side, side]."""
        rows = images.astype(np.float16 if self.half else np.float32, copy=False)
        step = self.batch or len(rows)
        return np.concatenate([self._run(rows[at : at + step]) for at in range(0, len(rows), step)])

    def _run(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        short = 0 if self.batch is None else self.batch - len(rows)
        padded = np.pad(rows, ((0, short), (0, 0), (0, 0), (0, 0)))
        began, known = time.monotonic(), self.pace > 0
        seconds = self.seconds + 20 * self.pace * len(padded)
        growth = 2 * self.growth * len(padded) + (NETWORK_MEMORY.value if known else 0)
        memory = self.memory + 4 * padded.nbytes + growth
        answer, found = self.child.ask({"do": "run", "rows": len(rows)}, padded, seconds, memory)
        if "error" in answer:
            raise InputError(str(answer["error"])[:160])
        if "wrong" in answer:
            shape = tuple(answer["wrong"])
            raise InputError(f"its output has shape {shape}; features [n, d] or maps [n, d, h, w] are expected.")
        if not known:
            self.pace, self.growth = (time.monotonic() - began) / len(padded), max(0, answer["peak"] - self.peak)
        return as_float32(found, len(rows))


def _dimension(entry: Any) -> int | str | None:
    return entry if isinstance(entry, int | str) else None
