"""Run ONNX models of images that this package builds: a session, and the function from images to features.

On a CPU every core takes small batches of its own, and encodes a batch where it was decoded: cores do not wait for each
other. Images of a batch go through the network one by one, because what lies between its layers then stays in the
processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError
from sinkshot.threads import cores

CORE_BATCH = 8  # images that a core decodes, encodes and hands over
_AT_ONCE = 1  # images in the network


def core_batch() -> int | None:
    """Return how many images a core takes at once; None where onnxruntime runs on a GPU, which takes any number."""
    import onnxruntime

    return None if onnxruntime.get_device() == "GPU" else CORE_BATCH


def open_session(model: bytes, name: str) -> Any:
    """Return an onnxruntime session for a serialised model."""
    try:
        import onnxruntime
    except ImportError:
        raise InputError(f"the encoder {name} needs onnxruntime: pip install 'sinkshot[images]'.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=onnxruntime.get_available_providers())


def image_function(session: Any, images: ImageInput) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    """Return the function from pixels [n, size, size, 3] to features [n, width]; many images go to all cores."""
    step, source = core_batch(), session.get_inputs()[0].name

    def run(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        parts = (
            [pixels]
            if step is None or not len(pixels)
            else [pixels[at : at + _AT_ONCE] for at in range(0, len(pixels), _AT_ONCE)]
        )
        found = [session.run(None, {source: images.normalised(part)})[0] for part in parts]
        return np.concatenate(found).astype(np.float32, copy=False)

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        if step is None or len(pixels) <= step:
            return run(pixels)
        with ThreadPoolExecutor(cores()) as pool:
            return np.concatenate(list(pool.map(run, (pixels[at : at + step] for at in range(0, len(pixels), step)))))

    return encode
