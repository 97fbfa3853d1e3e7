"""What an encoder is, and the list of them: what `@register` writes and `load` reads."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError, unknown_name

Modality = Literal["image", "text"]
Features = NDArray[np.float32]
Loader = Callable[..., "Encoder"]


@dataclass(frozen=True)
class Encoder:
    """A function from a batch of prepared items to features, and what a cache and a reader need to know of it."""

    name: str
    modality: Modality
    width: int  # of its features
    digest: str  # of its weights and of how items are prepared: equal digests give equal features
    encode: Callable[[Any], Features]  # uint8 images [n, size, size, 3], or a list of texts -> [n, width]
    images: ImageInput | None = None  # how images are prepared
    note: str = ""  # what was guessed, to be told before work begins


@dataclass(frozen=True)
class Entry:
    """A line of the list: how an encoder is named, and how it is loaded."""

    name: str  # or a prefix that ends in a colon, or a suffix that begins with a dot
    modality: Modality
    summary: str
    extra: str  # that installs what it needs
    load: Loader


ENCODERS: dict[str, Entry] = {}


def register(name: str, *, modality: Modality, summary: str, extra: str) -> Callable[[Loader], Loader]:
    """Add a loader to the list.

    Parameters
    ----------
    name : str
        A name such as "minilm"; a prefix such as "timm:", whose loader gets what follows it; or a suffix such as
        ".onnx", whose loader gets the file.
    modality : {"image", "text"}
    summary : str
        One line for people.
    extra : str
        The extra of the package that installs what it needs.
    """

    def add(load: Loader) -> Loader:
        if name in ENCODERS:
            raise InputError(f"an encoder called {name!r} is registered already.")
        ENCODERS[name] = Entry(name, modality, summary, extra, load)
        return load

    return add


@cache
def _discover() -> None:
    """Import every module of this package, so that each registers its encoders."""
    package = importlib.import_module("sinkshot.encoders")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"sinkshot.encoders.{module.name}")


DEFAULTS: dict[Modality, str] = {"image": "efficientnet-lite0", "text": "minilm"}


def load(spec: str | Callable[..., Any] | None, modality: Modality, **options: Any) -> Encoder:
    """Return an encoder for images or texts.

    Parameters
    ----------
    spec : str, function or None
        A registered name ("efficientnet-lite0", "minilm"), a prefix with its argument ("timm:resnet50",
        "sentence-transformers:NAME"), a file ("weights.safetensors", "network.onnx"), or a function from a batch to
        an array. None takes the default.
    modality : {"image", "text"}
        What it is to encode.
    **options
        For encoders of images whose file does not say: `size`, `mean`, `std`; `backbone` for a checkpoint of others.

    Returns
    -------
    Encoder
    """
    _discover()
    if spec is None:
        spec = DEFAULTS[modality]
    if callable(spec):
        from sinkshot.encoders.function import from_function

        return from_function(spec, modality, **options)
    entry, argument = _entry(spec)
    if entry.modality != modality:
        wanted = "images" if modality == "image" else "texts"
        fitting = ", ".join(name for name, other in ENCODERS.items() if other.modality == modality)
        raise InputError(f"the encoder {spec} takes {entry.modality}s, and {wanted} are given; take one of {fitting}.")
    return entry.load(*argument, **options)


def _entry(spec: str) -> tuple[Entry, Sequence[Any]]:
    if spec in ENCODERS and not spec.startswith(".") and not spec.endswith(":"):
        return ENCODERS[spec], ()
    prefix = f"{spec.split(':')[0]}:"
    if ":" in spec and prefix in ENCODERS:
        return ENCODERS[prefix], (spec[len(prefix) :],)
    suffix = Path(spec).suffix.lower()
    if suffix in ENCODERS:
        return ENCODERS[suffix], (Path(spec),)
    raise unknown_name("encoder", spec, ENCODERS)


def missing_package(encoder: str, package: str, extra: str) -> InputError:
    """Return the error for an encoder whose package is not installed."""
    return InputError(f"the encoder {encoder} needs the package {package}: pip install 'sinkshot[{extra}]'.")
