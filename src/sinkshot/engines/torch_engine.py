"""The engine of readable code on torch tensors."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.engines.base import Engine
from sinkshot.engines.job import Job
from sinkshot.engines.readable import ReadableEngine
from sinkshot.errors import InputError
from sinkshot.task import Array

_SENT: WeakKeyDictionary[FeatureBank, dict[str, Array]] = WeakKeyDictionary()


class TorchArrays(Engine):
    """An engine whose arrays are torch tensors on its device."""

    on_host = False

    def _blas_threads(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _threads(self) -> int:
        return 1  # torch has its own

    def _array(self, values: NDArray[Any]) -> Array:
        import torch

        return torch.from_numpy(np.array(values)).to(self.device)

    def _features(self) -> Array:
        """The bank on the device: copied once, and kept as long as the bank."""
        here = _SENT.setdefault(self.job.bank, {})
        if self.device not in here:
            here[self.device] = self._array(self.job.bank.features)
        return here[self.device]


class TorchEngine(TorchArrays, ReadableEngine):
    """The readable code on torch tensors, on any torch device."""

    name = "torch"

    def __init__(self, job: Job, device: str) -> None:
        super().__init__(job, device)
        self.chunk_bytes = 8 << 20 if device == "cpu" else 1 << 30  # a CPU's cache is small


def check_torch(device: str) -> None:
    """Raise an InputError if torch cannot use the device."""
    if importlib.util.find_spec("torch") is None:
        raise InputError("this engine needs torch, which is not installed: pip install 'sinkshot[torch]'.")
    import torch

    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:  # NotImplementedError is a RuntimeError
        reason = str(error).split("\n")[0].split(". ")[0].removesuffix(".")  # the rest is for torch developers
        raise InputError(f"torch cannot use the device {device!r} here: {reason}.") from None
