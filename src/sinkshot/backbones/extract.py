"""Extract features of images into a bank, batch by batch; a stopped run continues."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import __version__
from sinkshot.arrays import blocks
from sinkshot.backbones.backbone import Backbone, normalised
from sinkshot.backbones.datasets import MARGIN, Images
from sinkshot.backbones.fingerprints import fingerprints
from sinkshot.errors import InputError, unknown_name, whole
from sinkshot.foreign import texts
from sinkshot.foreign.tensors import DamagedTensors, tensors
from sinkshot.formats.resumable_writer import STORES, ResumableWriter
from sinkshot.preprocess import parse, run

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PREFIXES = ("", "E", "P", "PE")
"""The chains after which the mean of the base classes is kept."""
CHUNK, SECONDS = 8192, 10.0  # features are written after this many images or seconds
PRECISIONS = ("float32", "bf16")
Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]  # pixels [n, h, w, 3] to features [n, width]

log = logging.getLogger("sinkshot")


@dataclass(frozen=True)
class Extracted:
    """What `extract` did."""

    path: Path
    rows: int
    width: int
    before: int  # rows that an earlier, stopped run had done
    seconds: float


# More than 60 lines: half of them are the documentation of the parameters.
def extract(
    backbone: Backbone,
    images: Images,
    out: str | Path,
    *,
    batch: int = 256,
    device: str = "auto",
    precision: str = "float32",
    store: str = "float16",
    base: Mapping[str, NDArray[Any]] | None = None,
    meta: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Extracted:
    """Write the features of all images to the bank `out`, with at most one chunk in memory.

    A stopped run, even a killed one, continues after its last chunk, and ends with the same bytes on the same machine;
    if images that it had used have changed, it starts again and says so. `check` the images first. For images of the
    base split, their means are stored too; `base` are means to store for others, as `base_means_in` reads them.

    Parameters
    ----------
    backbone : Backbone
        As `checkpoints.load` or `sinkshot.encoders.as_backbone` returns it; images should have its size.
    batch : int
        Batch size.
    device : str
        auto, cpu, cuda or cuda:1 and so on. Networks that are not torch's run where they choose.
    precision : str
        float32, or bf16 (faster on a GPU), which needs a network of torch.
    store : str
        float16 or float32.
    meta : mapping, optional
        Further provenance to store.
    progress : callable, optional
        Called with the number of images done and in total.
    """
    check_settings(batch, precision, store)
    means = dict(base or {})
    if wrong := [prefix for prefix, mean in means.items() if mean.shape != (backbone.width,)]:
        raise InputError(
            f"the base mean {wrong[0]!r} has shape {means[wrong[0]].shape}, but features of {backbone.name} have "
            f"{backbone.width} dimensions; use base means of the same backbone."
        )
    own = images.meta.get("split") == "base" and not means
    facts = {**provenance(backbone, images, precision), **(meta or {})}
    began, encode = time.monotonic(), encoding(backbone, images, device, precision)
    work = {"images": _images_hash(images), "batch": str(batch), "mean": repr(backbone.mean), "std": repr(backbone.std)}
    prefixes = PREFIXES if own else tuple(means)
    layout: dict[str, Any] = {"width": backbone.width, "store": store, "work": work, "prefixes": prefixes}
    layout["stamps"] = fingerprints(images)
    with ResumableWriter(Path(out), images.labels, images.class_names, facts, **layout) as file:
        before = file.rows
        _tell_of_earlier(file, images)
        steps = features_of(backbone, encode, images, batch, first=before)
        for chunk in _chunks(steps):
            must_be_finite(chunk, images, file.rows)
            file.append(chunk)
            if progress is not None:
                progress(file.rows, len(images))
        file.finish(base_means(file.stored()) if own else _float32(means))
    return Extracted(Path(out), len(images), backbone.width, before, time.monotonic() - began)


def check_settings(batch: int, precision: str, store: str) -> None:
    """Refuse a batch size, precision or type of stored features that does not exist."""
    whole("batch", batch, 1)
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if store not in STORES:
        raise unknown_name("store", store, STORES)


def _tell_of_earlier(file: ResumableWriter, images: Images) -> None:
    """Log whether an earlier run is continued and, if not, why."""
    if file.rows:
        log.info(f"{file.rows:,} of {len(images):,} images were done by an earlier run; continuing from there.")
    elif count := len(file.changed):
        many = "1 image" if count == 1 else f"{count:,} images"
        first = images.source.name(int(file.changed[0]))
        log.info(f"{many} changed since an earlier run used them (the first is {first}); starting again.")
    elif file.other:
        left = f"{file.part} is from a run with other images, weights or settings, or from an older SinkShot"
        log.info(f"{left}; starting again.")


def encoding(backbone: Backbone, images: Images, device: str, precision: str) -> Encode:
    """Return the function from pixels to features: the backbone's own, or its torch network on a device."""
    if backbone.encode is not None:
        if device not in ("auto", "cpu") or precision != "float32":
            raise InputError(f"{backbone.name} chooses its device and precision; leave --device and --precision out.")
        return backbone.encode
    import torch

    from sinkshot.backbones.networks import SMALLEST, Network

    if isinstance(backbone.network, Network) and images.size is not None:
        whole(f"the size of images for {backbone.name}", images.size, SMALLEST)
    target = _device(device)
    network: Any = backbone.network
    if isinstance(network, torch.nn.Module):
        network.to(target)

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        shown = torch.from_numpy(pixels).to(target)
        return _forward(network, normalised(shown, backbone.mean, backbone.std), precision)

    return encode


def features_of(
    backbone: Backbone, encode: Encode, images: Images, batch: int, first: int = 0
) -> Iterator[NDArray[np.float32]]:
    """Yield features [batch, width] of the images from `first` on, decoding the next batch while one is computed."""
    parts = [range(start, min(start + batch, len(images))) for start in range(first, len(images), batch)]
    with ThreadPoolExecutor(1) as ahead:
        waiting = [ahead.submit(images.pixels, part) for part in parts[:2]]
        for i, part in enumerate(parts):
            pixels = np.ascontiguousarray(waiting.pop(0).result())
            if i + 2 < len(parts):
                waiting.append(ahead.submit(images.pixels, parts[i + 2]))
            found = encode(pixels)
            if found.shape != (len(part), backbone.width):
                size = "x".join(map(str, pixels.shape[1:3]))
                raise InputError(
                    f"{backbone.name} returns features of shape {found.shape} for {len(part)} images of {size} "
                    f"pixels, expected {backbone.width} per image; give images of the size that it was trained on."
                )
            yield found


def _forward(network: Callable[[Tensor], Tensor], images: Tensor, precision: str) -> NDArray[np.float32]:
    import torch

    same = torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False, allow_tf32=False)  # every time
    with same, torch.inference_mode(), torch.autocast(images.device.type, torch.bfloat16, precision == "bf16"):
        found: NDArray[np.float32] = network(images).float().cpu().numpy()
    return found


def _chunks(steps: Iterator[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
    """Collect batches into chunks that are worth a write to disk."""
    held: list[NDArray[np.float32]] = []
    began = time.monotonic()
    for found in steps:
        held.append(found)
        if sum(map(len, held)) >= CHUNK or time.monotonic() - began > SECONDS:
            yield np.concatenate(held)
            held, began = [], time.monotonic()
    if held:
        yield np.concatenate(held)


def base_means(parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Return the mean of rows [n, d], given in parts, after each of `PREFIXES`, summed in float64.

    Where a row has a negative entry, there is none after P.
    """
    count = 0

    def counted() -> Iterator[NDArray[Any]]:
        nonlocal count
        for part in parts:
            count += len(part)
            yield part

    sums = base_sums(counted())
    return _float32({prefix: total / count for prefix, total in sums.items()})


def base_sums(parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Return the sums of rows [n, d], given in parts, after each of `PREFIXES`."""
    chains = {prefix: parse(prefix) for prefix in PREFIXES}
    sums: dict[str, Any] = dict.fromkeys(PREFIXES, 0.0)
    for part in parts:
        rows = part.astype(np.float64)
        if (rows < 0).any():
            chains = {prefix: chain for prefix, chain in chains.items() if "P" not in prefix}
        for prefix, chain in chains.items():
            sums[prefix] = sums[prefix] + run(rows, chain).x.sum(axis=0)
    return {prefix: sums[prefix] for prefix in chains}


def base_means_in(path: str | Path, backbone: Backbone) -> dict[str, NDArray[np.float32]]:
    """Return the base means that a bank stores or, if it stores none, those of its own rows.

    They must come from the same weights, as far as the bank tells.
    """
    from sinkshot.bank import load
    from sinkshot.formats.native import read_header

    try:
        with tensors(path, "np") as file:
            names, text = set(file.names), file.metadata.get("sinkshot")
            if text is not None and "class_names" not in texts.json_object(text, "its header"):
                raise InputError(f"{path} holds weights of a network, not features; give a feature bank.")
            meta = {} if text is None else read_header(text)[1]
            found = {name.removeprefix("base."): file.get_tensor(name) for name in names if name.startswith("base.")}
    except (OSError, DamagedTensors):  # another format, or nothing that can be read: the reader has a sentence for it
        bank = load(path)
        meta, found = dict(bank.meta), dict(bank.base)
    except InputError as error:
        raise error if str(error).startswith(str(path)) else InputError(f"{path}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes its parsers raise almost anything
        raise InputError(f"{path} is a damaged bank ({type(error).__name__}: {error}); make it again.") from error
    if not isinstance(meta, dict) or not all(isinstance(text, str) for text in meta.values()):
        raise InputError(f"{path} is a damaged bank: its meta is not a mapping of texts; make it again.")
    for prefix, mean in found.items():
        if mean.ndim != 1 or mean.dtype.kind != "f" or not np.isfinite(mean).all():
            raise InputError(f"{path}: its base mean {prefix!r:.60} is not a vector of finite numbers; make it again.")
    made_by = meta.get("weights_sha256")
    if made_by not in (None, backbone.sha256):
        raise InputError(
            f"{path} has features of different weights ({made_by:.12}) than these ({backbone.sha256:.12})."
        )
    if found:
        return found
    features = load(path).features
    return base_means(features[part] for part in blocks(*features.shape))


def provenance(backbone: Backbone, images: Images, precision: str) -> dict[str, str]:
    """Return the provenance that a bank stores."""
    size = "their own size" if images.size is None else f"{images.size} pixels"
    return {
        **{key: images.meta[key] for key in ("data_set", "split") if key in images.meta},
        "backbone": backbone.name,
        "weights_sha256": backbone.sha256,
        **{f"trained_{key}" if key in ("data_set", "split") else key: text for key, text in backbone.meta.items()},
        "made": f"sinkshot {__version__} extract: images of {size}, margin {images.margin or MARGIN:g}, {precision}",
        "pixel_mean": ", ".join(f"{value:g}" for value in backbone.mean),
        "pixel_std": ", ".join(f"{value:g}" for value in backbone.std),
        "source": images.meta.get("source", ""),
    }


def _images_hash(images: Images) -> str:
    digest = hashlib.sha256(f"{images.size} {images.margin} {len(images)}".encode())
    for index in range(len(images)):
        digest.update(images.source.name(index).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def must_be_finite(features: NDArray[np.float32], images: Images, first: int) -> None:
    """Refuse features that are not finite, naming the first image; `first` is the number of the first row."""
    if not (finite := np.isfinite(features).all(axis=1)).all():
        name = images.source.name(first + int(finite.argmin()))
        raise InputError(
            f"features of {name} are not finite; the weights may not fit this network, or bf16 is too coarse."
        )


def _float32(means: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    return {prefix: np.asarray(mean, np.float32) for prefix, mean in means.items()}


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"the device {name!r} cannot be used ({reason}); use auto, cpu or cuda.") from error
    return device
