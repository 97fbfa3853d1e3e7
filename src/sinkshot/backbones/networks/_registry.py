"""The list of networks: what `@register` writes and `build` reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from sinkshot.backbones.networks._network import Network
from sinkshot.errors import InputError, number, shown, unknown_name, whole
from sinkshot.foreign.limits import LAYERS, PARAMETERS, SIDE, Limit, max_memory

Maker = Callable[..., Network]

WIDEST = 1 << 20  # channels, or any other number that a network takes
SMALLEST = 16  # pixels: below, four halvings leave nothing of an image

_MAKERS: dict[str, Maker] = {}
_OTHER_NAMES: dict[str, tuple[tuple[str, str], ...]] = {}


def register(name: str, *other_names: tuple[str, str]) -> Callable[[Maker], Maker]:
    """Add a function that makes a network from keyword options to the list under a name.

    `other_names` are pairs of a pattern and our word for it: how published checkpoints call the same parameters.
    """

    def add(maker: Maker) -> Maker:
        if name in _MAKERS:
            raise InputError(f"a network named {name!r} is already registered.")
        _MAKERS[name], _OTHER_NAMES[name] = maker, other_names
        return maker

    return add


def our_name(network: str, key: str) -> str:
    """Return what we call a parameter that a published checkpoint of this network calls `key`."""
    for pattern, word in _OTHER_NAMES[network]:
        key = re.sub(pattern, word, key)
    return key


def names() -> tuple[str, ...]:
    """Return the names that `build` takes."""
    return tuple(sorted(_MAKERS))


def build(name: str, /, **options: Any) -> Network:
    """Make a network with fresh weights, drawn from torch's generator, in channels-last order.

    Every network takes `size`, the side of the images in pixels (32 unless given), which decides how its stem begins;
    the other options are the keywords of its maker, such as `depth` and `widen` of a wide residual network. The
    network keeps `name` and all its `options`, with which `build` makes its like again.
    """
    sketch(name, **options)  # without memory, to see that it is not too large
    network, chosen = _made(name, options)
    _initialise(network)
    network.to(memory_format=torch.channels_last)
    network.name, network.options = name, chosen
    return network


def sketch(name: str, /, **options: Any) -> Network:
    """Make a network that has shapes but no weights, and refuse one that is too large to be meant."""
    if name not in _MAKERS:
        raise unknown_name("network", str(name), _MAKERS)
    try:
        with torch.device("meta"):
            network, chosen = _made(name, options)
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{name} cannot be built with these options ({error!s:.160}).") from error
    count = sum(value.numel() for value in network.state_dict().values())
    given = max_memory()
    most = PARAMETERS.value if given is None else given // 4
    if count > most:
        raise InputError(
            f"{name} with these options has {count:,} parameters, more than {most:,}; make it smaller, or allow it "
            "with --max-memory."
        )
    network.name, network.options = name, chosen
    return network


def _made(name: str, options: dict[str, Any]) -> tuple[Network, dict[str, Any]]:
    defaults = {p.name: p.default for p in inspect.signature(_MAKERS[name]).parameters.values()}
    for option in options:
        if option not in defaults:
            raise unknown_name(f"option of {name}", option, defaults)
        _must_be_like(f"the option {option} of {name}", options[option], defaults[option], option)
    chosen = {**defaults, **options}
    return _MAKERS[name](**chosen), chosen


def _must_be_like(what: str, given: Any, default: Any, option: str) -> None:
    """Refuse an option that is not of its default's kind; where that is None, a whole number may stand too."""
    if isinstance(default, bool):
        if not isinstance(given, bool):
            raise InputError(f"{what} must be true or false; {shown(given)} was given.")
    elif isinstance(default, float):
        if not 0 <= number(what, given) < 1:
            raise InputError(f"{what} must be a number of at least 0 and below 1; {shown(given)} was given.")
    elif isinstance(default, tuple):
        if not isinstance(given, list | tuple) or not given:
            raise InputError(f"{what} must be a list of whole numbers; {shown(given)} was given.")
        for entry in given:
            _at_most(what, whole(what, entry, 1), LAYERS)
        if len(given) > SMALLEST:
            raise InputError(f"{what} has {len(given):,} entries; {SMALLEST} are the most.")
    elif default is not None or given is not None:
        limit = {"size": SIDE, "depth": LAYERS}.get(option)
        _at_most(what, whole(what, given, SMALLEST if option == "size" else 1), limit)


def _at_most(what: str, value: int, limit: Limit | None) -> None:
    most = WIDEST if limit is None else limit.value
    if value > most:
        raise InputError(f"{what} is {shown(value)}; {most:,} is the most.")


def _initialise(network: Network) -> None:
    """Draw convolutions as He et al. 2015 do (fan out); batch norms begin as the identity."""
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
