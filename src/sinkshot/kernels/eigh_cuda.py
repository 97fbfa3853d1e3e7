"""Eigenvectors of many symmetric matrices at once on an NVIDIA GPU, by cuSOLVER's `syevBatched`.

`torch.linalg.eigh` decomposes batches of matrices of more than 32 rows one by one there: some milliseconds each, where
a batch takes less than a tenth of that. If cuSOLVER cannot be called, the CPU's cores share the batch.
"""

from __future__ import annotations

import ctypes
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkshot.threads import ONE_BLAS_THREAD, cores

SMALL = 32  # rows of matrices that torch has a batched kernel for
_VECTORS, _LOWER = 1, 0  # CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER
_TYPES = {torch.float32: 0, torch.float64: 1}  # CUDA_R_32F, CUDA_R_64F
_CHECKED: set[torch.dtype] = set()  # types whose first batch was right
_REFUSED: list[str] = []  # why cuSOLVER could not be used in this process; it is then not tried again


def eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues [R, n], ascending, and eigenvectors [R, n, n], in columns, of symmetric matrices [R, n, n]."""
    if matrices.shape[-1] <= SMALL or len(matrices) == 1:
        found: tuple[Tensor, Tensor] = torch.linalg.eigh(matrices)
        return found
    if not _REFUSED:
        try:
            return _batched(matrices)
        except (RuntimeError, OSError, AttributeError) as error:
            _REFUSED.append(str(error))
            message = f"cuSOLVER's batched eigenvectors cannot be used ({error}); the CPU computes them, more slowly."
            warnings.warn(message, RuntimeWarning, stacklevel=3)
    return _on_host(matrices)


def _batched(matrices: Tensor) -> tuple[Tensor, Tensor]:
    library, handle, settings = _solver(matrices.device)
    count, n, _ = matrices.shape
    kind = ctypes.c_int(_TYPES[matrices.dtype])
    vectors = matrices.clone(memory_format=torch.contiguous_format)  # overwritten, column by column
    values, info = vectors.new_empty((count, n)), torch.zeros(count, dtype=torch.int32, device=matrices.device)
    stream = torch.cuda.current_stream(matrices.device).cuda_stream
    _check(library.cusolverDnSetStream(handle, ctypes.c_void_p(stream)))
    there, here = ctypes.c_size_t(), ctypes.c_size_t()
    what = (handle, settings, ctypes.c_int(_VECTORS), ctypes.c_int(_LOWER), ctypes.c_int64(n))
    arrays = (kind, _address(vectors), ctypes.c_int64(n), kind, _address(values), kind)
    sizes = (ctypes.byref(there), ctypes.byref(here), ctypes.c_int64(count))
    _check(library.cusolverDnXsyevBatched_bufferSize(*what, *arrays, *sizes))
    on_device = torch.empty(max(1, there.value), dtype=torch.uint8, device=matrices.device)
    on_host = ctypes.create_string_buffer(max(1, here.value))
    work = (_address(on_device), there, ctypes.cast(on_host, ctypes.c_void_p), here)
    _check(library.cusolverDnXsyevBatched(*what, *arrays, *work, _address(info), ctypes.c_int64(count)))
    if bool((info != 0).any()):
        raise RuntimeError("some matrices did not converge")
    if matrices.dtype not in _CHECKED:
        _check_first(matrices, values, vectors.mT)
        _CHECKED.add(matrices.dtype)
    return values, vectors.mT


def _check_first(matrices: Tensor, values: Tensor, vectors: Tensor) -> None:
    """Refuse a library that answers with something else than eigenvectors."""
    off = (matrices @ vectors - vectors * values[:, None, :]).abs().amax()
    if not float(off) <= 1e4 * torch.finfo(matrices.dtype).eps * float(matrices.abs().amax()):
        raise RuntimeError(f"its eigenvectors are off by {float(off):.1e}")


def _on_host(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose parts of the batch on the cores of the CPU."""
    given = matrices.cpu().numpy()
    with ONE_BLAS_THREAD, ThreadPoolExecutor(cores()) as pool:
        parts = list(pool.map(np.linalg.eigh, np.array_split(given, min(len(given), 4 * cores()))))
    values, vectors = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return torch.from_numpy(values).to(matrices.device), torch.from_numpy(vectors).to(matrices.device)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"cuSOLVER's status {status}")


@cache
def _solver(device: torch.device) -> tuple[Any, ctypes.c_void_p, ctypes.c_void_p]:
    """Return the library that torch itself has loaded, a handle and settings."""
    torch.linalg.eigh(torch.eye(2, device=device).repeat(2, 1, 1))  # torch loads it now, if it has not yet
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcusolver.so" in line}
    if not loaded:
        raise OSError("torch has loaded no libcusolver")
    library = ctypes.CDLL(min(loaded))
    handle, settings = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(library.cusolverDnCreate(ctypes.byref(handle)))
    _check(library.cusolverDnCreateParams(ctypes.byref(settings)))
    return library, handle, settings
