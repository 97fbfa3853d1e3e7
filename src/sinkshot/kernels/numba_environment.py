"""Imported before Numba: raises an error for environment settings with which Numba cannot start."""

from __future__ import annotations

from sinkshot.errors import InputError
from sinkshot.kernels import check_threads, jit_disabled

if jit_disabled():
    raise InputError("NUMBA_DISABLE_JIT is set in the environment, but this needs compiled code; unset it.")
check_threads()
