"""Weights of networks: ours as safetensors, and those that others published, read without running anything.

A file of ours holds the tensors of `state_dict()` and one metadata string `sinkshot`, a JSON object with the network's
`name` and `options`, `mean` and `std` of the images, and `meta`. Of others, `torch.save` files are read (`.pt`, `.pth`,
`.tar`: the state dict itself, or one inside a dict with the epoch and so on), with `weights_only`; names of parameters
are brought to ours, and classifiers are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sinkshot.backbones import torch_files
from sinkshot.backbones.backbone import IMAGENET, Backbone, Triple, triple, weights_hash
from sinkshot.backbones.networks import Network, build, our_name, sketch
from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.foreign import texts
from sinkshot.foreign.files import opened
from sinkshot.foreign.pickles import NameRefused
from sinkshot.foreign.tensors import tensors

VERSION = 1
WRAPPERS = ("module.", "_orig_mod.", "feature.", "backbone.", "encoder.", "network.", "model.")  # stand before names
HOLDERS = ("state", "state_dict", "model_state_dict", "model", "params", "network")  # keys under which a state may lie
HEADS = re.compile(r"(^|\.)(linear\w*|fc\w*|classifier\w*|head\w*|rot\w*|L)\.")  # classifiers, which are not loaded


def write(tensors: Mapping[str, Tensor], path: str | Path, metadata: dict[str, str]) -> None:
    """Write contiguous tensors atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk, say
            raise OSError(str(error)) from error


def save(network: Network, path: str | Path, mean: Triple, std: Triple, meta: Mapping[str, str] | None = None) -> None:
    """Write a network's weights, with all that is needed to use them, atomically."""
    facts = {"version": VERSION, "name": network.name, "options": network.options, "mean": mean, "std": std}
    header = json.dumps({**facts, "meta": dict(meta or {})})
    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    write(state, path, {"sinkshot": header})


def load(path: str | Path, name: str | None = None, size: int | None = None, **options: Any) -> Backbone:
    """Return a backbone with the weights of a file, ready to extract features.

    A file of ours knows its network. For those of others give the `name` of the network, the `size` of the images that
    it was trained on, and its `options` (see `networks.build`) where they differ from the defaults; images are then
    normalised as ImageNet's. Networks of other kinds are read by `sinkshot.encoders.load`.
    """
    file = Path(path)
    header, state = read(file)
    if header is not None:
        if name not in (None, header["name"]):
            raise InputError(f"{file} holds weights of {header['name']}, not of {name}.")
        name, options = header["name"], {**header["options"], **options}
    elif size is not None:
        options = {"size": size, **options}
    if name is None:
        raise InputError(f"{file} does not say what network its weights belong to; name the backbone.")
    fitting(state, sketch(name, **options), str(file))  # before memory is taken
    network = build(name, **options)
    network.load_state_dict(fitting(state, network, str(file)))
    network.eval().requires_grad_(False)
    known = header or {"mean": IMAGENET[0], "std": IMAGENET[1], "meta": {}}
    mean, std = known["mean"], known["std"]
    digest = weights_hash(network.state_dict())
    guessed = header is None
    return Backbone(network, name, network.width, network.options["size"], mean, std, digest, known["meta"], guessed)


def read(file: Path) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """Return the state dict of a file, and the header of one of ours, else None."""
    if not file.exists():
        raise InputError(f"there is no file {file} with weights (in {Path.cwd()}).")
    try:
        opened(file).close()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from error
    return _safetensors(file) if file.suffix.lower() == ".safetensors" else (None, _torch_file(file))


def fitting(state: Mapping[str, Tensor], network: Network, source: str) -> dict[str, Tensor]:
    """Return the tensors of a state dict under the names of a network; an error names what does not fit."""
    wanted = network.state_dict()
    found = {our_name(network.name, _unwrapped(key)): value for key, value in state.items()}
    unexpected = [key for key in found if key not in wanted and not HEADS.search(key)]
    missing = [key for key in wanted if key not in found and not key.endswith("num_batches_tracked")]
    shapes = [key for key in wanted if key in found and found[key].shape != wanted[key].shape]
    if missing or unexpected:
        parts = [f"{what} {_few(keys)}" for what, keys in (("lacks", missing), ("also has", unexpected)) if keys]
        raise InputError(f"{source} is not a known checkpoint of {network.name}: it {' and '.join(parts)}.")
    if shapes:
        told = [f"{key} {tuple(found[key].shape)}, not {tuple(wanted[key].shape)}" for key in shapes]
        raise InputError(
            f"{source} has weights of a different size than {network.name}: {_few(told)}; change its options."
        )
    return {key: found.get(key, wanted[key]) for key in wanted}


def _few(keys: list[str]) -> str:
    rest = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + rest


def _unwrapped(key: str) -> str:
    while (wrapper := next((word for word in WRAPPERS if key.startswith(word)), None)) is not None:
        key = key.removeprefix(wrapper)
    return key


def _safetensors(file: Path) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    try:
        with tensors(file, "pt") as found:
            state = {key: found.get_tensor(key) for key in found.names}
            text = found.metadata.get("sinkshot")
        header = None if text is None else texts.json_value(text, "its header")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes its parsers raise almost anything
        raise InputError(
            f"{file} is truncated, damaged or not a .safetensors file ({error}); write it again."
        ) from error
    return None if header is None else _header(header, file), state


def _header(header: Any, file: Path) -> dict[str, Any]:
    """Return what a file of ours says of its network, or refuse it."""
    if isinstance(header, dict) and "class_names" in header:
        raise InputError(f"{file} is a feature bank, not the weights of a network.")
    try:
        if header["version"] > VERSION:
            raise InputError(
                f"{file} has format version {header['version']}, this SinkShot reads up to {VERSION}; upgrade it."
            )
        facts = {"name": str(header["name"]), "options": dict(header["options"]), "meta": dict(header["meta"])}
        return {**facts, "mean": triple(header["mean"]), "std": triple(header["std"])}
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{file} has a header that does not describe its network ({error!r}); write it again."
        ) from error


def _torch_file(file: Path) -> dict[str, Tensor]:
    try:
        content = torch_files.read(file)
    except NameRefused as error:
        reason = str(error).partition(":")[0]
        raise InputError(
            f"{file} holds more than tensors and plain containers, so it was not loaded ({reason}). If you trust "
            "it, load it with torch yourself and save its state dict."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes its parsers raise almost anything
        raise InputError(
            f"{file} is truncated, damaged or not a torch.save file ({error}); download it again."
        ) from error
    return _state_in(content, file)


def _is_weight(entry: tuple[Any, Any]) -> bool:
    name, value = entry
    return isinstance(name, str) and isinstance(value, Tensor) and value.layout == torch.strided


def _state_in(content: Any, file: Path) -> dict[str, Tensor]:
    for holder in (None, *HOLDERS):
        inside = content if holder is None else content.get(holder)
        if isinstance(inside, Mapping) and inside and all(map(_is_weight, inside.items())):
            return dict(inside)
        if not isinstance(content, Mapping):
            break
    keys = f"a dict with {_few([str(key) for key in content])}" if isinstance(content, Mapping) else type(content)
    raise InputError(
        f"{file} holds no state dict, neither at the top level nor under {', '.join(HOLDERS)}; it holds {keys}."
    )
