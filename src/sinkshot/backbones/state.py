"""The state of a training run in one file, written atomically, from which the run continues exactly.

Tensors (weights, their average, the optimiser's memory) and one JSON object of facts, as safetensors: nothing in it can
run. Random numbers need no state, see `plan`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sinkshot.backbones.checkpoints import write
from sinkshot.errors import InputError
from sinkshot.foreign import texts
from sinkshot.foreign.tensors import tensors

VERSION = 1
FILE = "state.safetensors"


class Average:
    """An exponential average of a module's weights and statistics; early on it forgets faster."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.source = {key: value for key, value in module.state_dict().items() if value.is_floating_point()}
        self.values = {key: value.detach().clone() for key, value in self.source.items()}

    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.values.values()), list(self.source.values()), 1 - decay)


def save(
    path: Path, learner: nn.Module, average: Average | None, optimiser: torch.optim.Optimizer, facts: Mapping[str, Any]
) -> None:
    """Write the state; `facts` are plain values."""
    names = {id(parameter): name for name, parameter in learner.named_parameters()}
    tensors = {f"learner/{key}": value for key, value in learner.state_dict().items()}
    tensors |= {f"average/{key}": value for key, value in (average.values if average else {}).items()}
    for parameter, memory in optimiser.state.items():
        place = f"optimiser/{names[id(parameter)]}"
        tensors |= {f"{place}/{key}": value for key, value in memory.items() if isinstance(value, Tensor)}
    apart = {key: value.detach().cpu().clone(memory_format=torch.contiguous_format) for key, value in tensors.items()}
    header = json.dumps({"version": VERSION, **facts})
    write(apart, path, {"training": header})


def load(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read facts and tensors."""
    try:
        with tensors(path, "pt") as opened:
            found = {key: opened.get_tensor(key) for key in opened.names}
            facts = texts.json_object(opened.metadata["training"])
        version = _checked(facts)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes its parsers raise almost anything
        raise InputError(f"{path} is damaged or not the state of a training run ({error}).") from error
    if version > VERSION:
        raise InputError(f"{path} has format version {version}, this SinkShot reads up to {VERSION}; upgrade it.")
    return facts, found


def _checked(facts: dict[str, Any]) -> int:
    """Return the version of the facts, whose kinds must be those that `save` wrote."""
    version = int(facts["version"])
    kinds = {"stage": int, "step": int, "steps": list, "found": dict, "images": dict, "recipe": dict}
    if version <= VERSION and (wrong := [key for key, kind in kinds.items() if type(facts.get(key)) is not kind]):
        raise InputError(f"{wrong[0]!r} is missing in it, or of the wrong kind")
    if version <= VERSION and not all(type(steps) is int for steps in (*facts["steps"], facts["stage"])):
        raise InputError("its steps are not numbers")
    if version <= VERSION and not 0 <= facts["stage"] <= len(facts["steps"]):
        raise InputError("it has no such stage")
    return version


def restore(
    tensors: Mapping[str, Tensor], learner: nn.Module, average: Average | None, optimiser: torch.optim.Optimizer
) -> None:
    """Put the tensors of a state back where they came from."""
    try:
        _restore(tensors, learner, average, optimiser)
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"the saved state does not fit the network; it is damaged ({error!s:.200}).") from error


def _restore(
    tensors: Mapping[str, Tensor], learner: nn.Module, average: Average | None, optimiser: torch.optim.Optimizer
) -> None:
    learner.load_state_dict(_part(tensors, "learner/"))
    if average is not None:
        for key, value in _part(tensors, "average/").items():
            average.values[key].copy_(value)
    for name, parameter in learner.named_parameters():
        memory = _part(tensors, f"optimiser/{name}/")
        if memory:
            optimiser.state[parameter] = {key: _alike(value, key, parameter) for key, value in memory.items()}


def _alike(value: Tensor, key: str, parameter: Tensor) -> Tensor:
    """Give a part of the optimiser's memory the device and order of its parameter; counters stay as torch made them."""
    if key == "step":
        return value.to(parameter.device) if parameter.is_cuda else value
    return torch.empty_like(parameter).copy_(value)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def differences(theirs: Any, ours: Any, place: str) -> list[str]:
    """Name the keys in which two recipes differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        inside = [(key, f"{place}.{key}" if place else key) for key in sorted({*theirs, *ours})]
        return [line for key, where in inside for line in differences(theirs.get(key), ours.get(key), where)]
    return [] if theirs == ours else [f"{place} = {theirs!r} there and {ours!r} here"]
