"""Where training runs: devices, precision and processes, by lightning-fabric.

On one device without that package, a few lines of plain torch do the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from sinkshot.backbones import processes
from sinkshot.backbones.recipes import GROUPS
from sinkshot.errors import InputError


class Devices(Protocol):
    """The part of a Fabric that training uses."""

    device: torch.device
    world_size: int
    global_rank: int

    def setup(self, module: nn.Module, optimiser: Any, /) -> Any:  # noqa: D102
        ...

    def backward(self, loss: torch.Tensor, /) -> None:  # noqa: D102
        ...

    def autocast(self) -> AbstractContextManager[Any]:  # noqa: D102
        ...

    def barrier(self) -> None:  # noqa: D102
        ...

    def broadcast(self, value: Any, /) -> Any:  # noqa: D102
        ...


class Alone:
    """One device, without lightning-fabric."""

    world_size, global_rank = 1, 0

    def __init__(self, kind: str, bf16: bool) -> None:
        self.device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
        self.bf16 = bf16

    def setup(self, module: nn.Module, optimiser: Any, /) -> tuple[nn.Module, Any]:
        """Bring the module to the device and let its forward pass run in the chosen precision."""
        return _Cast(module.to(self.device), self), optimiser

    def backward(self, loss: torch.Tensor, /) -> None:
        """Compute gradients."""
        loss.backward()

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the chosen precision."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    def barrier(self) -> None:
        """Do nothing: there is one process."""

    def broadcast(self, value: Any, /) -> Any:
        """Return the value."""
        return value


class _Cast(nn.Module):
    def __init__(self, module: nn.Module, devices: Alone) -> None:
        super().__init__()
        self.module, self.devices = module, devices

    def forward(self, *arguments: Any) -> Any:
        with self.devices.autocast():
            return self.module(*arguments)


def start(device: str, count: int, precision: str, every_loss: bool = True) -> Devices:
    """Take `count` devices of a kind ("auto", "cpu", "cuda"), one process for each, and return them.

    `every_loss` says that every parameter takes part in the loss.
    """
    kind = _kind(device)
    if count not in (1, 2, 4, GROUPS):
        raise InputError(f"a batch is shared by 1, 2, 4 or {GROUPS} devices; {count} were asked for.")
    if kind == "cuda" and count > torch.cuda.device_count():
        raise InputError(f"{count} GPUs were asked for, but there are {torch.cuda.device_count()}.")
    bf16 = precision == "bf16" or (precision == "auto" and kind == "cuda")
    if importlib.util.find_spec("lightning_fabric") is None:
        if count > 1:
            raise InputError("several devices need lightning-fabric: pip install 'sinkshot[torch]'.")
        return Alone(kind, bf16)
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    strategy = "auto" if count == 1 else "ddp" if every_loss else "ddp_find_unused_parameters_true"
    fabric = Fabric(accelerator=kind, devices=count, strategy=strategy, precision="bf16-mixed" if bf16 else "32-true")
    if count > 1 and not fabric.strategy.cluster_environment.creates_processes_externally:
        processes.launch(count)
    fabric.launch()  # joins those that are there
    found: Devices = fabric
    return found


def _kind(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda; {device!r} was given.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no GPU that it can use; use --device cpu, or install a torch build for your GPU.")
    return device


@contextlib.contextmanager
def reproducible(deterministic: bool) -> Iterator[None]:
    """Leave torch's global switches and generators as they were; with `deterministic`, allow no other algorithms."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with torch.random.fork_rng(devices=[]):  # a GPU's generator is seeded anew in every step
        torch.backends.cudnn.benchmark = not deterministic
        if deterministic:
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before[1]
            if deterministic:
                torch.use_deterministic_algorithms(before[0])
