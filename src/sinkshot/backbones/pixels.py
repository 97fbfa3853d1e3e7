"""Pixels of a step: a small data set is held on the device, a large one is streamed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkshot.backbones.backbone import Triple
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.plan import Plan, generator
from sinkshot.errors import InputError, unknown_name

SHARE = 0.3  # of a device's free memory that pixels may take
ON_CPU = 4 << 30  # bytes they may take where the device is the CPU
AHEAD = 3  # batches that are decoded before they are needed
SAMPLE = 4096  # images whose mean and deviation stand for all


def hold(images: Images, device: torch.device, wanted: str = "auto") -> Tensor | None:
    """Return all pixels [n, h, w, 3] on the device, or None where they are too many; `wanted` may be yes or no."""
    if wanted not in ("auto", "yes", "no"):
        raise unknown_name("way to hold images", wanted, ("auto", "yes", "no"))
    if images.size is None:
        raise InputError("images for training need a size; give one to `load`.")
    room = SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else ON_CPU
    if wanted == "no" or (wanted == "auto" and len(images) * images.size**2 * 3 > room):
        return None
    return torch.from_numpy(images.held().pixels(np.arange(len(images)))).to(device)


def feed(
    plans: Iterable[Plan], images: Images, held: Tensor | None, device: torch.device
) -> Iterator[tuple[Plan, Tensor]]:
    """Yield each plan with its images' pixels [b, h, w, 3] on the device; streamed ones are decoded ahead."""
    if held is not None:
        for plan in plans:
            yield plan, held[moved(plan.rows, device)]
        return
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[tuple[Plan, Future[Tensor]]] = deque()
        try:
            for plan in plans:
                waiting.append((plan, pool.submit(_decoded, images, plan.rows, device)))
                if len(waiting) > AHEAD:
                    first, pixels = waiting.popleft()
                    yield first, pixels.result().to(device, non_blocking=True)
            while waiting:
                first, pixels = waiting.popleft()
                yield first, pixels.result().to(device, non_blocking=True)
        finally:
            for _, pixels in waiting:
                pixels.cancel()


def moved(values: NDArray[Any], device: torch.device) -> Tensor:
    """Bring a small array to the device without waiting for it."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def colours(images: Images, held: Tensor | None) -> tuple[Triple, Triple]:
    """Return mean and standard deviation of red, green and blue over a fixed sample of the images, four digits."""
    rows = generator(0, len(images)).permutation(len(images))[:SAMPLE]
    pixels = images.pixels(rows) if held is None else held[torch.from_numpy(rows).to(held.device)].cpu().numpy()
    values = pixels.reshape(-1, 3)
    mean = values.mean(axis=0, dtype=np.float64) / 255
    deviation = values.std(axis=0, dtype=np.float64) / 255
    return _triple(mean), _triple(np.maximum(deviation, 1e-3))


def _decoded(images: Images, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    pixels = torch.from_numpy(images.pixels(rows))
    return pixels if device.type == "cpu" else pixels.pin_memory()


def _triple(values: NDArray[np.float64]) -> Triple:
    red, green, blue = (round(float(value), 4) for value in values)
    return red, green, blue
