"""Backbones from ONNX files. Needs the extra `sinkshot[onnx]`."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkshot.backbones.backbone import IMAGENET, Backbone
from sinkshot.errors import InputError


def load(path: Path, name: str | None = None, size: int | None = None) -> Backbone:
    """Read a model that takes images [n, 3, h, w] and gives features [n, d], or maps [n, d, h, w], which are pooled.

    Its first input and first output are used. Where the model does not fix the size of images, give it. Images are
    normalised as ImageNet's.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        raise InputError(f"{path} needs onnxruntime: pip install 'sinkshot[onnx]'.")
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())
    except Exception as error:  # onnxruntime has an exception class for each status
        raise InputError(f"{path} is truncated, damaged or no ONNX model ({str(error).strip():.160}).") from error
    shape = session.get_inputs()[0].shape
    if len(shape) != 4 or (isinstance(shape[1], int) and shape[1] != 3):
        raise InputError(f"{path} takes inputs of shape {shape}; images [n, 3, height, width] are expected.")
    fixed = shape[2] if isinstance(shape[2], int) else None
    if fixed is not None and size not in (None, fixed):
        raise InputError(f"{path} takes images of {fixed} pixels, not of {size}.")
    side = fixed or size
    if side is None:
        raise InputError(f"{path} takes images of any size; say which (size=, --size).")
    model = _Model(session, shape[0] if isinstance(shape[0], int) else None)
    try:
        width = model(torch.zeros(1, 3, side, side)).shape[1]
    except Exception as error:
        raise InputError(f"{path} does not run on an image of {side} pixels ({str(error).strip():.160}).") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Backbone(model, name or path.stem, width, side, *IMAGENET, digest)


class _Model:
    def __init__(self, session: Any, batch: int | None) -> None:
        self.session, self.batch = session, batch  # batch: the only number of images that the model takes
        self.input, self.output = session.get_inputs()[0].name, session.get_outputs()[0].name
        self.half = "float16" in session.get_inputs()[0].type

    def __call__(self, images: Tensor) -> Tensor:
        rows = images.cpu().numpy().astype(np.float16 if self.half else np.float32)
        step = self.batch or len(rows)
        found = np.concatenate([self._run(rows[at : at + step]) for at in range(0, len(rows), step)])
        return torch.from_numpy(found)

    def _run(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        short = 0 if self.batch is None else self.batch - len(rows)
        whole = np.pad(rows, ((0, short), (0, 0), (0, 0), (0, 0)))
        found = np.asarray(self.session.run([self.output], {self.input: whole})[0], np.float32)[: len(rows)]
        if found.ndim not in (2, 4):
            raise InputError(f"its output has shape {found.shape}; features [n, d] or maps [n, d, h, w] are expected.")
        return found if found.ndim == 2 else found.mean(axis=(2, 3))
