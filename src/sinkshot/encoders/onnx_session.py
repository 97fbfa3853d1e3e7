"""Run ONNX models of images: a session on this machine's cores, and the function from images to features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError
from sinkshot.threads import cores


def open_session(model: bytes | str, name: str) -> Any:
    """Return an onnxruntime session for a serialised model or a file."""
    try:
        import onnxruntime
    except ImportError:
        raise InputError(f"the encoder {name} needs onnxruntime: pip install 'sinkshot[images]'.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=onnxruntime.get_available_providers())


def image_function(session: Any, images: ImageInput) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    """Return the function from pixels [n, size, size, 3] to features [n, width]; maps are averaged."""
    source, target = session.get_inputs()[0], session.get_outputs()[0].name
    half = "float16" in source.type
    fixed = source.shape[0] if isinstance(source.shape[0], int) else None  # the only batch size that the model takes

    def run(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        short = 0 if fixed is None else fixed - len(rows)
        padded = np.pad(rows, ((0, short), (0, 0), (0, 0), (0, 0))) if short else rows
        values = padded.astype(np.float16) if half else padded
        found = np.asarray(session.run([target], {source.name: values})[0], np.float32)[: len(rows)]
        if found.ndim not in (2, 4):
            raise InputError(f"its output has shape {found.shape}; features [n, d] or maps [n, d, h, w] are expected.")
        return found if found.ndim == 2 else found.mean(axis=(2, 3))

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        rows = images.normalised(pixels)
        step = fixed or len(rows)
        return np.concatenate([run(rows[at : at + step]) for at in range(0, len(rows), step)])

    return encode
