"""Engines: how the episodes of an evaluation are computed, and which of them suits a job.

An engine applies the row-wise part of the chain to the whole bank once, and then turns chunks of episodes into
accuracies. `numpy` and `torch` run the readable method on gathered features and can do every job; `numba` and `triton`
go from row numbers to probabilities in fused kernels, if method, chain and size allow it.

Read in this order: `job` (what to compute), `base` (shared by all engines), `readable` and `fused` (each shared by two
engines), `fused_kernels` (methods in one kernel), then an engine; `metrics` compares probabilities with labels.
"""

from __future__ import annotations

import importlib.util
import shutil

from sinkshot import preprocess
from sinkshot.engines.base import Engine
from sinkshot.engines.job import Job
from sinkshot.engines.numba_engine import NumbaEngine
from sinkshot.engines.numpy_engine import NumPyEngine
from sinkshot.engines.torch_engine import TorchEngine, check_torch
from sinkshot.engines.triton_engine import TritonEngine
from sinkshot.errors import InputError, unknown_name
from sinkshot.kernels import check_threads

__all__ = ["ENGINES", "Engine", "Job", "check_torch", "pick"]

ENGINES: dict[str, type[Engine]] = {e.name: e for e in (NumPyEngine, NumbaEngine, TorchEngine, TritonEngine)}
_ON_CPU, _ON_GPU = ("numba", "numpy"), ("triton", "torch")  # in order of preference


def pick(name: str, device: str, job: Job) -> Engine:
    """Return the engine of that name, or for "auto" the fastest one that can do the job on the device."""
    if name != "auto" and name not in ENGINES:
        raise unknown_name("engine", name, ["auto", *ENGINES])
    if device == "auto":
        device = "cuda" if name not in _ON_CPU and _has_gpu() else "cpu"
    if name == "auto" and device not in ("cpu", "cuda") and not device.startswith("cuda:"):
        name = "torch"
    if name == "auto":
        able = [ENGINES[n] for n in (_ON_CPU if device == "cpu" else _ON_GPU) if ENGINES[n].takes(job)]
        name = next(e.name for e in able if e.pays(job))
    elif name == "triton" and importlib.util.find_spec("triton") is None:
        raise InputError("the engine triton needs triton and torch: pip install 'sinkshot[gpu]'.")
    elif not ENGINES[name].takes(job):
        chain = preprocess.spell(job.steps) or "no preprocessing"
        raise InputError(f"the engine {name} cannot do {job.method.name} with {chain} on tasks of this kind; use auto.")
    if name in _ON_CPU:
        check_threads()
    if name in _ON_CPU and device != "cpu":
        raise InputError(f"the engine {name} runs on the CPU; the requested device is {device!r}.")
    if name == "triton" and not device.startswith("cuda"):
        raise InputError(f"the engine triton runs on an NVIDIA GPU (--device cuda); the device is {device!r}.")
    if name not in _ON_CPU:
        check_torch(device)
    return ENGINES[name](job, device)


def _has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
