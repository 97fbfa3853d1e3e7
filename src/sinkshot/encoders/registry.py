"""The definition of an encoder, and the registry, filled by `@register` and read by `load`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.backbone import Backbone
from sinkshot.encoders.images import ImageInput
from sinkshot.errors import InputError, unknown_name

Modality = Literal["image", "text"]
Features = NDArray[np.float32]
Loader = Callable[..., "Encoder"]


@dataclass(frozen=True)
class Encoder:
    """A function from a batch of prepared items to features, with its properties."""

    name: str
    modality: Modality
    width: int  # of its features
    digest: str  # digest of its weights and of the preparation of items: equal digests give equal features
    encode: Callable[[Any], Features]  # uint8 images [n, size, size, 3], or a list of texts -> [n, width]
    images: ImageInput | None = None  # how images are prepared
    note: str = ""  # assumptions, to be reported before work starts
    backbone: Backbone | None = None  # the torch network behind it, if there is one
    weights_sha256: str = ""  # of the weights alone, where known
    core_batch: int | None = None  # batches of up to this many items are encoded on one core each, several at once


@dataclass(frozen=True)
class RegisteredEncoder:
    """An entry of the registry: the name of an encoder, and its loader."""

    name: str  # or a prefix that ends in a colon, or a suffix that begins with a dot
    modality: Modality
    summary: str
    extra: str  # the extra that installs its dependencies
    load: Loader


ENCODERS: dict[str, RegisteredEncoder] = {}


def register(name: str, *, modality: Modality, summary: str, extra: str) -> Callable[[Loader], Loader]:
    """Register a loader.

    Parameters
    ----------
    name : str
        A name such as "minilm"; a prefix such as "timm:", whose loader gets the rest of the name; or a suffix such as
        ".onnx", whose loader gets the file.
    modality : {"image", "text"}
    summary : str
        One line of description.
    extra : str
        The extra that installs its dependencies.
    """

    def add(load: Loader) -> Loader:
        if name in ENCODERS:
            raise InputError(f"an encoder called {name!r} is registered already.")
        ENCODERS[name] = RegisteredEncoder(name, modality, summary, extra, load)
        return load

    return add


@cache
def _discover() -> None:
    """Import every module of this package, so that each registers its encoders."""
    package = importlib.import_module("sinkshot.encoders")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"sinkshot.encoders.{module.name}")


def registered() -> tuple[str, ...]:
    """Return the names, prefixes and suffixes of all encoders."""
    _discover()
    return tuple(ENCODERS)


DEFAULTS: dict[Modality, str] = {"image": "efficientnet-lite0", "text": "minilm"}


def load(spec: str | Path | Callable[..., Any] | None, modality: Modality, **options: Any) -> Encoder:
    """Return an encoder for images or texts.

    Parameters
    ----------
    spec : str, path, function or None
        A registered name ("efficientnet-lite0", "minilm"), a prefix with its argument ("timm:resnet50",
        "sentence-transformers:NAME"), a file ("weights.safetensors", "network.onnx"), or a function from a batch to
        an array. None takes the default. A path is always a file, a published checkpoint if its suffix is not known.
    modality : {"image", "text"}
        What to encode.
    **options
        For image encoders that do not say: `size`, `mean`, `std`; `backbone`, and options of that network, for a
        published checkpoint.

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
        raise InputError(
            f"the encoder {spec} takes {entry.modality}s, but {wanted} are given; choose one of {fitting}."
        )
    _must_take(entry, argument, options, str(spec))
    return entry.load(*argument, **options)


def _must_take(entry: RegisteredEncoder, argument: Sequence[Any], options: dict[str, Any], spec: str) -> None:
    """Refuse options that an encoder has no use for, such as another size for one that knows its own."""
    known = inspect.signature(entry.load).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()):
        return
    taken = [name for name in known if name not in list(known)[: len(argument)]]
    for name in options:
        if name not in taken:
            raise InputError(f"the encoder {spec} knows its own {name}; leave --{name} out.")


def _entry(spec: str | Path) -> tuple[RegisteredEncoder, Sequence[Any]]:
    if isinstance(spec, Path):
        return ENCODERS[spec.suffix.lower() if spec.suffix.lower() in ENCODERS else ".pt"], (spec,)
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
