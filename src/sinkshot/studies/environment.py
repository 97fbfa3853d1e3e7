"""The hardware and library versions that a number was computed with."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from sinkshot.threads import available

_COMPUTING = ("sinkshot", "numpy", "scipy", "scikit-learn", "numba", "array-api-compat", "torch", "triton")


@dataclass(frozen=True)
class Machine:
    """A computer and the software that computed on it."""

    hardware: str  # "AMD EPYC 7B13, 2 cores, Linux x86_64"
    versions: tuple[tuple[str, str], ...]  # Python and the libraries that are installed, by name


@lru_cache
def this_machine(device: str = "cpu") -> Machine:
    """Describe this machine and the device that computes."""
    number = available()
    parts = [
        _processor(),
        f"{number} {'core' if number == 1 else 'cores'}",
        f"{platform.system()} {platform.machine()}",
    ]
    if device.startswith("cuda"):
        import torch

        parts.insert(0, torch.cuda.get_device_name(device))
    versions = {"python": platform.python_version()}
    for name in _COMPUTING:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Machine(", ".join(parts), tuple(versions.items()))


def _processor() -> str:
    """Return the processor's name as its maker spells it."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "Hardware"):
                return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"
